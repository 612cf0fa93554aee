"""The rules by which a server answers, the watch for drift, and faults of our own."""

from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from fastapi import FastAPI
from torch import Tensor

from revar.errors import InputError
from revar.predictions import Predictions
from revar.selection import coverage_drift, threshold_for_coverage, threshold_for_risk
from revar.serving.app import create_app
from revar.serving.deciding import Decider, Decisions
from revar.serving.hosts import LOOPBACK
from revar.serving.limits import Limits
from revar.serving.metrics import DriftWatch
from revar.serving.page import PAGE
from revar.serving.refusals import Refused
from revar.serving.token import Token, find_token
from support.serving import Served, figures_of, refused, save_rows


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return save_rows(tmp_path_factory.mktemp("rules") / "run")


def ask(app: FastAPI, *requests: tuple[str, str, Any]) -> list[httpx.Response]:
    """Requests one after another, within this process."""

    async def main() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://here") as client,
        ):
            return [await client.request(m, path, json=body) for m, path, body in requests]

    return asyncio.run(main())


def test_without_a_threshold_everything_is_answered_and_the_model_says_so(tmp_path: Path) -> None:
    rows = save_rows(tmp_path / "run", threshold="none")
    body = {"rows": rows.unseen[:50].tolist()}
    answer, model, metrics = ask(
        create_app(Decider.of(rows.run), drift_window=10),
        ("POST", "/predict", body), ("GET", "/model", None), ("GET", "/metrics", None),
    )  # fmt: skip
    answers = answer.json()["predictions"]
    assert all(a["accepted"] and a["threshold"] is None for a in answers)
    assert {a["label"] for a in answers} == {"0", "1", "2"}
    said = model.json()
    assert (said["rule"], said["threshold"], said["selection"]) == ("answer everything", None, None)
    assert "no threshold is set, so everything is answered" in said["note"]
    assert math.isnan(figures_of(metrics.text)["revar_coverage_drift"])
    assert figures_of(metrics.text)["revar_acceptance_rate"] == 1.0


def test_where_no_threshold_would_do_it_abstains_always(tmp_path: Path) -> None:
    rows = save_rows(tmp_path / "run", threshold="hopeless")
    body = {"rows": rows.unseen[:50].tolist()}
    answer, model, metrics = ask(
        create_app(Decider.of(rows.run), drift_window=10),
        ("POST", "/predict", body), ("GET", "/model", None), ("GET", "/metrics", None),
    )  # fmt: skip
    answers = answer.json()["predictions"]
    assert not any(a["accepted"] for a in answers)
    assert {(a["label"], a["threshold"]) for a in answers} == {("abstain", None)}
    said = model.json()
    assert (said["rule"], said["threshold"]) == ("abstain always", None)
    assert said["note"].startswith("no threshold keeps the risk at most 1e-06")
    assert math.isnan(figures_of(metrics.text)["revar_coverage_drift"])
    assert figures_of(metrics.text)["revar_acceptance_rate"] == 0.0


def test_the_model_is_known_by_its_weights_and_not_by_its_threshold(
    rows: Served, tmp_path: Path
) -> None:
    same = save_rows(tmp_path / "other", threshold="none")
    assert Decider.of(rows.run).identity == Decider.of(same.run).identity
    decider = Decider.of(rows.run)
    assert len(decider.identity) == 16
    # What an export calls it too.
    assert decider.model.digest.startswith(decider.identity)


def test_a_row_that_overflows_is_refused_and_spares_its_neighbours(
    rows: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    decider = Decider.of(rows.run)
    honest = decider.model.predict_encoded

    def overflowing(x: Tensor, **wanted: Any) -> Predictions:
        found = honest(x, **wanted)
        logits = np.where(x[:, :1].numpy() > 1e30, np.nan, found.logits)
        return replace(found, logits=logits)

    monkeypatch.setattr(decider.model, "predict_encoded", overflowing)
    good = rows.unseen[:3].tolist()
    extreme = [[2e30, 0, 0, 0]]
    whole, mixed = ask(
        create_app(decider),
        ("POST", "/predict", {"rows": good}), ("POST", "/predict", {"rows": good + extreme}),
    )  # fmt: skip
    assert whole.status_code == 200
    refused(mixed, 422, 'no finite answer to "3"')
    x = torch.tensor(good + extreme)
    decided, alone = decider.decide(x), decider.decide(x[:3])
    assert decided.defined.tolist() == [True, True, True, False]
    assert decided.uncertainty[:3] == pytest.approx(alone.uncertainty)
    assert decided.accepted[:3].tolist() == alone.accepted.tolist()


def test_a_fault_of_ours_is_one_sentence_for_the_client_and_a_trace_for_the_log(
    rows: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decider = Decider.of(rows.run)

    def broken(x: Tensor) -> Decisions:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(decider, "decide", broken)
    body = {"rows": rows.unseen[:2].tolist()}
    with caplog.at_level(logging.ERROR, logger="revar.serving"):
        answer, health, metrics = ask(
            create_app(decider),
            ("POST", "/predict", body), ("GET", "/health", None), ("GET", "/metrics", None),
        )  # fmt: skip
    refused(answer, 500, "not your fault")
    assert "secret" not in answer.text
    assert "a secret of the inside" in caplog.text
    assert health.status_code == 200
    name = "revar_requests_total path=/predict status=500"
    assert figures_of(metrics.text)[name] == 1


def test_an_answer_that_takes_too_long_is_withdrawn(
    rows: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    decider = Decider.of(rows.run)
    honest = decider.decide

    def slow(x: Tensor) -> Decisions:
        import time

        time.sleep(3)
        return honest(x)

    monkeypatch.setattr(decider, "decide", slow)
    body = {"rows": rows.unseen[:2].tolist()}
    (answer,) = ask(create_app(decider, Limits(timeout=1.0)), ("POST", "/predict", body))
    refused(answer, 503, "no answer after 1 seconds")
    assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("chosen", ["coverage", "risk"])
def test_each_block_is_looked_at_once_by_coverage_drift(chosen: str) -> None:
    rng = np.random.default_rng(0)
    calibration, live = rng.normal(size=400), rng.normal(size=250)
    live[100:200] += 3.0
    threshold = threshold_for_coverage(calibration, 0.8)
    if chosen == "risk":
        right = (calibration < 0.8) | (rng.random(400) < 0.5)
        threshold = threshold_for_risk(calibration, right, max_risk=0.05, confidence=0.9)
    watch = DriftWatch(threshold, window=100, confidence=0.99)
    flags = []
    for value in np.array_split(live, 50):
        watch.add(value)
        flags.append(None if watch.last is None else watch.last.drifted)
    blocks = [coverage_drift(threshold, live[i : i + 100], confidence=0.99) for i in (0, 100)]
    assert [block.drifted for block in blocks] == [False, True]
    assert flags == [None] * 19 + [False] * 20 + [True] * 11
    assert watch.last == blocks[1]
    assert (watch.looks, watch.alarms) == (2, 1)


def test_tokens_are_checked_where_they_come_from(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("of-the-file\n")
    assert find_token(None, {}) is None
    from_both = find_token(file, {"REVAR_TOKEN": "of-the-environment"})
    assert from_both is not None
    from_both.check("Bearer of-the-file")
    from_both.check("bearer of-the-file")
    with pytest.raises(Refused, match="the token is wrong"):
        from_both.check("Bearer of-the-environment")
    with pytest.raises(Refused, match="a token is needed"):
        from_both.check(None)
    with pytest.raises(Refused, match="the token is wrong"):
        from_both.check("Bearer \udcff")
    assert "of-the-file" not in repr(vars(from_both)) + repr(from_both)
    for secret in ("", "short", "with a space in it", "ünïcödé-token", "line\nbreak-token"):
        with pytest.raises(InputError) as error:
            Token(secret, "REVAR_TOKEN")
        assert not secret or secret not in str(error.value)
    with pytest.raises(InputError, match="cannot read the token file"):
        find_token(tmp_path / "nowhere", {})


def test_the_page_and_its_policy_allow_nothing_from_elsewhere(rows: Served) -> None:
    page, schema = ask(
        create_app(Decider.of(rows.run)), ("GET", "/", None), ("GET", "/openapi.json", None)
    )
    assert page.text == PAGE
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "://" not in PAGE
    assert page.headers["x-content-type-options"] == "nosniff"
    body = schema.json()["paths"]["/predict"]["post"]["requestBody"]["content"]
    assert set(body) == {"application/json", "multipart/form-data"}


def test_a_strange_name_for_this_machine_is_refused(rows: Served) -> None:
    app = create_app(Decider.of(rows.run), hosts=LOOPBACK)

    async def main() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport) as client,
        ):
            names = (
                "localhost:8000",
                "127.0.0.1",
                "[::1]:8000",
                "evil.example",
                "127.0.0.1.nip.io",
            )
            return [await client.get("http://x/health", headers={"Host": name}) for name in names]

    found = asyncio.run(main())
    assert [answer.status_code for answer in found] == [200, 200, 200, 421, 421]
    assert "--host" in found[-1].json()["error"]
