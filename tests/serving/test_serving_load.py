"""Under overload and at the end, in a process of its own; and what is refused before it starts."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from pathlib import Path

import httpx
import pytest

from revar.cli import run as revar
from revar.commands.serve import serve
from revar.serving.server import address_of, is_loopback, listen
from support.serving import Served, refused, save_rows, serving


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return save_rows(tmp_path_factory.mktemp("load") / "run")


def test_overload_is_refused_and_what_was_accepted_is_finished_after_sigterm(rows: Served) -> None:
    """A queue for two long requests: one more is computed, others are told when to return."""
    n = 150
    body = {"rows": rows.unseen[:n].tolist()}
    options = ("--max-batch", "1", "--max-items", str(n), "--queue", str(2 * n))
    with serving(rows.run, *options) as server, ThreadPoolExecutor(8) as pool:

        def ask(_: int) -> tuple[httpx.Response, float]:
            answer = httpx.post(f"{server.url}/predict", json=body, timeout=60, verify=False)
            return answer, time.monotonic()

        answers = [answer for answer, _ in pool.map(ask, range(8))]
        refusals = [answer for answer in answers if answer.status_code != 200]
        assert 1 <= len(refusals) < 8
        for answer in refusals:
            refused(answer, 503, "are waiting already: try again later")
            assert 1 <= int(answer.headers["retry-after"]) <= 60

        # Two and no more, so that none is on its way unseen when the signal comes.
        both = [pool.submit(ask, i) for i in range(2)]
        deadline = time.monotonic() + 30
        while server.client.get("/health").json()["accepted"] < 2:
            assert time.monotonic() < deadline, "they never overlap"
            if all(future.done() for future in both):
                both = [pool.submit(ask, i) for i in range(2)]
        told = time.monotonic()
        said = server.stop()
        finished = [future.result() for future in both]
        assert [answer.status_code for answer, _ in finished] == [200, 200]
        assert all(len(answer.json()["predictions"]) == n for answer, _ in finished)
        assert max(at for _, at in finished) > told, "nothing was under way"
        assert server.process.returncode == 0
        assert "stopped" in said
        assert "Traceback" not in said
        assert server.url.startswith("http://127.0.0.1:")
        with pytest.raises(httpx.ConnectError):
            ask(0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--port", "70000"], "--port is 70000"),
        (["--port", "0", "--host", "256.0.0.1"], "cannot listen at 256.0.0.1"),
        (["--port", "0", "--max-batch", "0"], "max_batch is 0"),
        (["--port", "0", "--max-wait", "-1"], "max_wait"),
        (["--port", "0", "--queue", "10"], "queue is 10, it must hold one request of 256"),
        (["--port", "0", "--timeout", "0"], "timeout is 0.0"),
        (["--port", "0", "--token-file", "nowhere"], 'no token file at "nowhere"'),
        (["--port", "0", "--device", "abacus"], 'device "abacus" is not here'),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(
    rows: Served, options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert revar(["serve", str(rows.run), *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_it_listens_at_this_machine_alone_unless_told_otherwise() -> None:
    default = signature(serve).parameters["host"].default
    with listen(default, 0) as near, listen("0.0.0.0", 0) as far:
        assert is_loopback(near)
        assert not is_loopback(far)
        assert address_of(near).startswith("http://127.0.0.1:")


def test_a_taken_port_and_a_bad_token_are_said_in_one_line(
    rows: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        assert revar(["serve", str(rows.run), "--port", port]) == 2
        assert f"cannot listen at 127.0.0.1 port {port}" in capsys.readouterr().err
    for secret, words in (("short", "has 5 characters"), ("with spaces in", "printable ASCII")):
        monkeypatch.setenv("REVAR_TOKEN", secret)
        assert revar(["serve", str(rows.run), "--port", "0"]) == 2
        said = capsys.readouterr().err
        assert words in said
        assert secret not in said
    assert revar(["serve", str(tmp_path / "no"), "--port", "0"]) == 2
    assert "no run at" in capsys.readouterr().err
