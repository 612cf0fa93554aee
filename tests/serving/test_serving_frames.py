"""Tables with named columns over HTTP, behind a token, by programs and by keyboard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.browser import browser_page
from support.serving import (
    Running,
    Served,
    check_answers,
    expected,
    refused,
    save_frame,
    serving,
)

SECRET = "correct-horse-battery"
BEARER = {"authorization": f"Bearer {SECRET}"}


@pytest.fixture(scope="module")
def frame(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return save_frame(tmp_path_factory.mktemp("frame") / "run")


@pytest.fixture(scope="module")
def server(frame: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    file = tmp_path_factory.mktemp("secret") / "token"
    file.write_text(SECRET + "\n")
    with serving(frame.run, "--token-file", str(file), REVAR_TOKEN="other-token") as running:
        yield running
        said = running.stop()
    assert running.process.returncode == 0
    assert SECRET not in said
    assert "other-token" not in said


def test_a_token_is_needed_and_the_file_goes_before_the_environment(server: Running) -> None:
    client = server.client
    assert client.get("/health").json()["token"] is True
    assert client.get("/").status_code == 200
    for path in ("/model", "/metrics"):
        refused(client.get(path), 401, "a token is needed")
    body: dict[str, Any] = {"rows": [{"age": 50.5, "eyes": "left", "count": 2}]}
    answer = client.post("/predict", json=body)
    refused(answer, 401, "a token is needed")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    for wrong in (SECRET[:-1], SECRET + "x", "other-token", SECRET.upper()):
        headers = {"authorization": f"Bearer {wrong}"}
        refused(client.post("/predict", json=body, headers=headers), 401, "Bearer TOKEN")
    basic = {"authorization": f"Basic {SECRET}"}
    refused(client.post("/predict", json=body, headers=basic), 401, "the token is wrong")


def test_gaps_and_categories_are_read_as_the_command_reads_a_file(
    server: Running, frame: Served, tmp_path: Path
) -> None:
    frame.unseen.to_csv(tmp_path / "unseen.csv", index=False)
    wanted = expected(frame.run, tmp_path / "unseen.csv")
    given = json.loads(frame.unseen.to_json(orient="records"))
    assert any(row["age"] is None for row in given)
    assert any(row["eyes"] is None for row in given)
    answer = server.client.post("/predict", json={"rows": given}, headers=BEARER)
    check_answers(answer.json()["predictions"], wanted)
    columns = server.client.get("/model", headers=BEARER).json()["inputs"]["columns"]
    assert [column["name"] for column in columns] == ["age", "eyes", "count"]


def test_cells_of_the_wrong_kind_are_refused_by_name(server: Running) -> None:
    client = server.client
    good = {"age": 50.5, "eyes": "left", "count": 2}
    for change, words in (
        ({"age": "fifty"}, '"age" of row 0 is "fifty" where a number is needed'),
        ({"age": "50.5"}, "where a number is needed"),
        ({"age": 1e300}, "too large"),
        ({"count": 10**400}, '"count" of row 0 is too large'),
        ({"eyes": ["left"]}, '"eyes" of row 0 is ["left"], not one value'),
    ):
        answer = client.post("/predict", json={"rows": [{**good, **change}]}, headers=BEARER)
        refused(answer, 422, words)
    # A row that lacks a column must not be read as one with a gap because others have it.
    lacking = {"rows": [good, {"age": 50.5, "eyes": "left"}]}
    refused(client.post("/predict", json=lacking, headers=BEARER), 422, 'row 1 lacks "count"')
    refused(
        client.post("/predict", json={"rows": [[1, 2, 3]]}, headers=BEARER), 422, "3 named values"
    )
    unseen = {**good, "eyes": "third", "extra": "ignored, as in a file"}
    assert client.post("/predict", json={"rows": [unseen]}, headers=BEARER).status_code == 200


def test_rows_are_decided_by_keyboard_alone_behind_a_token(server: Running) -> None:
    with browser_page(scheme="light") as seen:
        page = seen.page
        page.goto(server.url)
        page.get_by_text("asks for a token").wait_for()
        page.keyboard.press("Tab")
        page.keyboard.type(SECRET)
        page.keyboard.press("Enter")
        page.get_by_label("Paste a row").wait_for()
        page.keyboard.press("Tab")
        page.keyboard.type("71.5, both, 3")
        page.keyboard.press("Control+Enter")
        page.get_by_text("of 1 answered").wait_for()
        body = {"rows": [{"age": 71.5, "eyes": "both", "count": 3}]}
        answer = server.client.post("/predict", json=body, headers=BEARER)
        (wanted,) = answer.json()["predictions"]
        said = page.locator(".decision").inner_text()
        assert said == (f"✓ {wanted['label']}" if wanted["accepted"] else "I abstain")
        shown = page.locator("article").inner_text()
        assert f"{wanted['threshold']:.5g}" in shown
        assert f"{wanted['uncertainty']:.5g}" in shown
        page.fill("#row", '{"age": null, "eyes": "left", "count": 1}\n')
        page.get_by_role("button", name="Decide").press("Enter")
        page.get_by_text("of 1 answered").wait_for()
        page.fill("#row", "1, 2")
        page.get_by_role("button", name="Decide").press("Enter")
        page.get_by_role("alert").wait_for()
        assert "There are 2 values; the model has 3 columns" in page.inner_text("#problem")
        assert page.locator("article").count() == 0, "an old decision beside a new row"
        assert SECRET not in page.content()
        assert (seen.errors, seen.external) == ([], [])


def test_a_missing_browser_is_no_excuse_where_one_is_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("REVAR_REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception), browser_page():
        pass
    monkeypatch.setenv("REVAR_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="no chromium"), browser_page():
        pass
