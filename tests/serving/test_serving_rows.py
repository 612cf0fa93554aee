"""Rows over HTTP: the answers of ``revar predict``, whoever else asks; the watch; the refusals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from support.serving import (
    Running,
    Served,
    check_answers,
    expected,
    figures,
    refused,
    save_rows,
    serving,
)

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return save_rows(tmp_path_factory.mktemp("rows") / "run")


@pytest.fixture(scope="module")
def server(rows: Served) -> Iterator[Running]:
    with serving(rows.run) as running:
        yield running


def test_answers_equal_those_of_the_command(server: Running, rows: Served, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=rows.unseen)
    wanted = expected(rows.run, tmp_path / "x.npz")
    accepted = [row["accepted"] for row in wanted]
    assert {"true", "false"} == set(accepted), "the test needs both decisions"
    answers = []
    for start in range(0, 300, 150):
        given = {"rows": rows.unseen[start : start + 150].tolist()}
        answers += server.client.post("/predict", json=given).json()["predictions"]
    check_answers(answers, wanted)
    described = server.client.get("/model").json()
    assert {answer["model"] for answer in answers} == {described["model"]}
    assert {answer["threshold"] for answer in answers} == {described["threshold"]}
    for answer in answers:
        assert answer["accepted"] == (answer["uncertainty"] <= answer["threshold"])


def test_concurrent_clients_share_passes_and_get_their_own_answers(
    server: Running, rows: Served, tmp_path: Path
) -> None:
    """An input's answer does not depend on those of others in its batch."""
    np.savez(tmp_path / "x.npz", x=rows.unseen)
    wanted = expected(rows.run, tmp_path / "x.npz")
    before = figures(server.client)

    def client(seed: int) -> None:
        rng = np.random.default_rng(seed)
        with httpx.Client(base_url=server.url, timeout=60) as session:
            for _ in range(12):
                chosen = rng.choice(300, size=rng.integers(1, 6), replace=False)
                answer = session.post("/predict", json={"rows": rows.unseen[chosen].tolist()})
                assert answer.status_code == 200, answer.text
                check_answers(answer.json()["predictions"], [wanted[i] for i in chosen])

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(client, range(12)))
    after = figures(server.client)
    passes = after["revar_batch_examples_count"] - before["revar_batch_examples_count"]
    assert passes < 12 * 12, "no two requests shared a pass"


def test_metrics_count_requests_decisions_and_time(server: Running, rows: Served) -> None:
    before = figures(server.client)
    answers = server.client.post("/predict", json={"rows": rows.unseen[:40].tolist()}).json()
    server.client.post("/predict", content=b"{", headers=JSON)
    server.client.get("/etc/passwd")
    after = figures(server.client)

    def gained(name: str) -> float:
        return after.get(name, 0.0) - before.get(name, 0.0)

    accepted = sum(answer["accepted"] for answer in answers["predictions"])
    assert gained("revar_requests_total path=/predict status=200") == 1
    assert gained("revar_requests_total path=/predict status=400") == 1
    assert gained("revar_requests_total path=other status=404") == 1
    assert gained("revar_answers_total decision=label") == accepted
    assert gained("revar_answers_total decision=abstain") == 40 - accepted
    assert gained("revar_request_seconds_count path=/predict") == 2
    assert 0 < gained("revar_request_seconds_sum path=/predict") < 30
    assert after["revar_queue_examples"] == 0
    assert 0 < after["revar_acceptance_rate"] < 1
    assert not any("passwd" in name for name in after)


def test_strange_data_raises_the_drift_flag_and_familiar_data_lowers_it(
    server: Running, rows: Served
) -> None:
    """Between the clusters nothing is certain, so nearly all is rejected."""
    strange = (0.05 * np.random.default_rng(0).standard_normal((250, 4))).tolist()
    familiar = np.tile(rows.unseen, (4, 1))[:1000].tolist()

    def send(given: list[Any]) -> dict[str, float]:
        for start in range(0, len(given), 250):
            answer = server.client.post("/predict", json={"rows": given[start : start + 250]})
            assert answer.status_code == 200
        return figures(server.client)

    # Blocks of 500 begin anywhere in what was sent before: two of them hold a whole one.
    after = send(strange * 4)
    assert after["revar_coverage_drift"] == 1.0
    assert after["revar_coverage_drift_p_value"] < 0.001
    assert after["revar_acceptance_rate"] < 0.3
    assert server.client.get("/health").json()["drift"] is True
    assert "has left" in server.client.get("/model").json()["drift"]
    after = send(familiar)
    assert after["revar_coverage_drift"] == 0.0
    assert after["revar_drift_alarms_total"] >= 1
    assert after["revar_drift_looks_total"] >= 4


BAD: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 400, "no JSON"),
    "half": (b'{"rows": [[1, 2', 400, "no JSON"),
    "not UTF-8": (b'{"rows": "\xff\xfe"}', 400, "UTF-8"),
    "a list": (b"[[1, 2, 3, 4]]", 400, '{"rows": [...]}'),
    "another name": (b'{"data": [[1, 2, 3, 4]]}', 400, '{"rows": [...]}'),
    "one more name": (b'{"rows": [[1, 2, 3, 4]], "path": "/etc/passwd"}', 400, '"path"'),
    "rows is a number": (b'{"rows": 3}', 400, '{"rows": [...]}'),
    "no rows": (b'{"rows": []}', 422, "no rows"),
    "null": (b'{"rows": [[1, 2, 3, null]]}', 422, "row 0 holds null"),
    "NaN": (b'{"rows": [[1, 2, 3, NaN]]}', 422, "holds NaN"),
    "Infinity": (b'{"rows": [[1, 2, 3, -Infinity]]}', 422, "holds -Infinity"),
    "too large for a float": (b'{"rows": [[1, 2, 3, 1e999]]}', 422, "too large"),
    "too large for single precision": (b'{"rows": [[1, 2, 3, 1e99]]}', 422, "too large"),
    "a long integer": (b'{"rows": [[1, 2, 3, 1%s]]}' % (b"0" * 99), 422, "smaller number"),
    "thousands of digits": (b'{"rows": [[1, 2, 3, %s]]}' % (b"9" * 5000), 400, "ordinary numbers"),
    "text": (b'{"rows": [[1, 2, 3, 4], [1, 2, 3, "four"]]}', 422, 'row 1 holds "four"'),
    "half a character": (b'{"rows": [[1, 2, 3, "\\ud800"]]}', 422, "row 0 holds"),
    "true": (b'{"rows": [[1, 2, 3, true], [true, true, true, true]]}', 422, "row 1 holds true"),
    "short": (b'{"rows": [[1, 2, 3]]}', 422, "row 0 has shape [3]"),
    "long": (b'{"rows": [[1, 2, 3, 4], [1, 2, 3, 4, 5]]}', 422, "row 1 has shape [5]"),
    "nested": (b'{"rows": [[[1, 2], [3, 4]]]}', 422, "row 0 has shape [2, 2]"),
    "ragged": (b'{"rows": [[1, [2, 3], 4]]}', 422, "row 0 is ragged"),
    "flat": (b'{"rows": [1, 2, 3, 4]}', 422, "row 0 has shape no list"),
    "empty row": (b'{"rows": [[]]}', 422, "row 0 is empty"),
    "named": (b'{"rows": [{"a": 1, "b": 2, "c": 3, "d": 4}]}', 422, "where a number is needed"),
    "deep": (b"[" * 50_000, 400, "nested too deeply"),
    "deep within": (b'{"rows": [%s1%s]}' % (b"[" * 200, b"]" * 200), 422, "row 0"),
    "many rows": (json.dumps({"rows": [[0, 0, 0, 0]] * 257}).encode(), 413, "at most 256"),
    "huge": (b'{"rows": [' + b" " * 40_000_000, 413, "longer than"),
}


@pytest.mark.parametrize(("body", "status", "words"), BAD.values(), ids=BAD.keys())
def test_bad_rows_are_refused_in_one_sentence(
    server: Running, body: bytes, status: int, words: str
) -> None:
    answer = server.client.post("/predict", content=body, headers=JSON)
    refused(answer, status, words)
    assert server.client.get("/health").json()["status"] == "ok"


def test_a_body_without_a_length_is_counted_as_it_comes(server: Running) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(500):
            yield b" " * 10_000

    refused(server.client.post("/predict", content=endless(), headers=JSON), 413, "longer than")


def test_other_kinds_of_requests_are_refused_in_one_sentence(server: Running) -> None:
    client, good = server.client, b'{"rows": [[1, 2, 3, 4]]}'
    plain = {"content-type": "text/plain"}
    refused(client.post("/predict", content=good, headers=plain), 415, '"text/plain"')
    refused(client.post("/predict", content=good), 415, "content type is missing")
    packed = {**JSON, "content-encoding": "gzip"}
    refused(client.post("/predict", content=good, headers=packed), 415, "gzip")
    refused(client.post("/predict", files={"a": ("a.png", b"x")}), 415, "reads no image files")
    refused(client.get("/predict"), 405, "another method")
    refused(client.get("/../../etc/passwd"), 404, "nothing at this address")
    refused(client.get("/docs"), 404, "nothing at this address")
    assert client.post("/predict", content=good, headers=JSON).status_code == 200
