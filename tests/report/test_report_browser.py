"""The page in a browser: its numbers are those of ``revar evaluate``, and it asks nobody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from revar import metrics
from revar.cli import run
from revar.evaluation import RISKS
from revar.scores import correct, uncertainty
from support.browser import browser_page
from support.reports import FITTED, drawn, page_run, written

if TYPE_CHECKING:
    from playwright.sync_api import Page

HOSTILE = (
    "</script><script>window.hacked = 1</script>", '<img src=x onerror="window.hacked = 2">',
    "{{7*7}}${window.hacked = 3}", "'\"--><b>bold</b>",
)  # fmt: skip


DETAIL = """() => {
  const found = detail(active(), keptOf(active()));
  const plain = Object.entries(found).map(([name, values]) => [name, [...values]]);
  return Object.fromEntries(plain);
}"""
UNNAMED = """() => {
  const all = (what) => [...document.querySelectorAll(what)];
  const bare = [
    ...all("svg[role=img]").filter((one) => !one.getAttribute("aria-label")),
    ...all("svg:not([role])").filter((one) => !one.getAttribute("aria-hidden")),
    ...all("img").filter((one) => !one.alt),
    ...all("table").filter((one) => !one.caption?.textContent),
    ...all("input, select").filter((one) => !one.ariaLabel && !one.labels.length),
    ...all("section").filter((one) => !document.querySelector(`#${one.id}-h`)),
  ];
  return bare.map((one) => one.outerHTML.slice(0, 120));
}"""


@contextmanager
def opened(path: Path) -> Iterator[Page]:
    """The page, drawn; at the end nothing went wrong and nothing else was asked for."""
    with browser_page() as watched:
        asked: list[str] = []
        watched.page.on("request", lambda request: asked.append(request.url))
        watched.page.goto(path.resolve().as_uri())
        watched.page.wait_for_selector("html[data-ready=yes]", timeout=20_000)
        yield watched.page
        assert watched.errors == []
        assert watched.external == []
        others = [url for url in asked if not url.startswith(("data:", "blob:"))]
        assert others == [path.resolve().as_uri()]


def value(page: Page, what: str) -> float:
    """The exact value behind a number of the chosen point."""
    return float(page.locator(f"#n-{what} data").get_attribute("value") or "nan")


def settle(page: Page) -> None:
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)))")


def slide(page: Page, step: int) -> None:
    page.locator("#slider").fill(str(step))
    settle(page)


def cells(page: Page, where: str) -> list[list[str]]:
    found: list[list[str]] = page.locator(where).evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    )
    return found


@dataclass
class Real:
    """Two trained runs and their page."""

    page: Path
    runs: dict[str, Path]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    """ERM and ReVaR on a few digits, tested on two sets, one with a guarantee."""
    from sklearn.datasets import load_digits

    folder = tmp_path_factory.mktemp("real")
    bunch = load_digits()
    images = (bunch.images * 15).astype(np.uint8)
    x, y = images, bunch.target
    noisy = np.clip(x + np.random.default_rng(0).integers(0, 60, x.shape), 0, 255).astype(np.uint8)
    np.savez(folder / "digits.npz", x=x[:400], y=y[:400], x_test=noisy[400:800], y_test=y[400:800])
    np.savez(folder / "calibration.npz", x=noisy[800:1200], y=y[800:1200])
    np.savez(folder / "later.npz", x=255 - x[1200:1500], y=y[1200:1500])
    runs = {name: folder / name for name in ("erm", "revar")}
    for name, path in runs.items():
        train = ["train", "--data", str(folder / "digits.npz"), "--method", name]
        assert run([*train, "--out", str(path), "--epochs", "4", "--device", "cpu"]) == 0
    select = ["select", str(runs["revar"]), "--on", str(folder / "calibration.npz")]
    assert run([*select, "--max-risk", "0.25", "--confidence", "0.9"]) == 0
    later = str(folder / "later.npz")
    assert run(["evaluate", str(runs["revar"]), "--on", later, "--device", "cpu"]) == 0
    page = folder / "page.html"
    command = ["report", *map(str, runs.values()), "--out", str(page), "--data", later]
    assert run(command) == 0
    return Real(page, runs)


def figures_of(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["evaluate", str(path), "--json", *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_slider_gives_what_evaluate_prints(
    real: Real, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = {name: figures_of(path, capsys) for name, path in real.runs.items()}
    with opened(real.page) as page:
        for step in (500, 600, 700, 800, 900, 1000):
            slide(page, step)
            for row in cells(page, "#compare tbody tr"):
                name, score = re.sub(r"[ *+]*$", "", row[0]).strip().split(" · ")
                wanted = figures[name]["scores"][score]["accuracy_at_coverage"][str(step / 1000)]
                assert row[3] == f"{100 * wanted:.2f} %", (name, score, step)
            scores = figures["revar"]["scores"]["fused"]
            wanted = scores["accuracy_at_coverage"][str(step / 1000)]
            assert value(page, "accuracy") == pytest.approx(wanted, abs=1e-12)
            assert value(page, "accepted") == np.floor(step / 1000 * figures["revar"]["n"])
        page.locator("#by-risk").check()
        for risk in RISKS:
            slide(page, round(1000 * risk))
            wanted = figures["revar"]["scores"]["fused"]["coverage_at_risk"][str(risk)]
            assert value(page, "coverage") == pytest.approx(wanted, abs=1e-12)
        assert page.locator("#cards").inner_text().count("%") >= 4
        shown = page.locator("#cards data").first.get_attribute("value")
        assert float(shown or "nan") == figures["revar"]["accuracy"]


def test_a_saved_guarantee_is_shown_at_its_own_point_only(real: Real) -> None:
    threshold = json.loads((real.runs["revar"] / "threshold.json").read_text())
    with opened(real.page) as page:
        promise = page.locator("#promise")
        assert "Guaranteed here" in promise.inner_text()
        assert f"{100 * threshold['risk_bound']:.2f} %" in promise.inner_text()
        assert value(page, "threshold") == threshold["threshold"]
        assert page.locator("#command").inner_text() == f"revar predict {real.runs['revar']} INPUTS"
        accepted = value(page, "accepted")
        slide(page, 420)
        assert "No guarantee at this point" in promise.inner_text()
        assert "none here" in page.locator("#cards").inner_text()
        command = page.locator("#command").inner_text()
        assert command.endswith("--on CALIBRATION --coverage 0.42 --score fused")
        page.locator("#by-risk").check()
        slide(page, 50)
        assert "No guarantee" in promise.inner_text()
        assert "--max-risk 0.05 --confidence 0.95" in page.locator("#command").inner_text()
        page.locator("#to-saved").click()
        assert "Guaranteed here" in promise.inner_text()
        assert value(page, "accepted") == accepted
        # The other run has none.
        page.locator("#choose-run").select_option("0")
        assert "No guarantee" in promise.inner_text()
        assert page.locator("#to-saved").count() == 0


def test_suspects_without_weights_are_shown_without_them(tmp_path: Path) -> None:
    train = drawn(40)
    with opened(written(tmp_path, replace(page_run(), train=train))) as page:
        (table,) = page.locator("#suspect-list table").all()
        head = table.locator("th[scope=col]").all_inner_texts()
        assert head[-2:] == ["probability of the label", "U-Score"]
        first = cells(page, "#suspect-list tbody tr")[0]
        assert first[-1] == f"{train.columns['uscore'].max():.3f}"


def test_two_runs_side_by_side_and_two_test_sets(real: Real) -> None:
    with opened(real.page) as page:
        rows = cells(page, "#side tbody tr")
        assert [row[0] for row in rows] == ["erm", "revar"]
        # Six scores of erm; of revar the U-Score and the fused one as well.
        assert len(cells(page, "#compare tbody tr")) == 14
        assert page.locator("#chart .stroke.s").count() >= 4
        assert page.locator("#chart .band").count() == 1
        assert page.locator("#reliability figure").count() == 2
        assert page.locator("#shifts figure").count() == 2
        assert [row[:2] for row in cells(page, "#shift-table tbody tr")] == [
            ["test", "erm"], ["test", "revar"], ["on-later", "revar"],
        ]  # fmt: skip
        assert page.locator("#training-curves figure").count() == 4
        assert page.locator("#gallery img").count() > 12
        assert page.locator("#suspect-list img").count() == 32
        page.locator("#choose-set").select_option("on-later")
        assert page.locator("#gallery img").count() > 12
        assert value(page, "accepted") + value(page, "rejected") == 300
        page.locator("input[name=inspect]").first.check()
        assert page.locator("#choose-score").input_value() == "softmax"
        link = page.locator("#csv")
        assert link.get_attribute("href") == "page.csv"
        assert (real.page.parent / "page.csv").exists()


def test_ties_classes_groups_and_confusions_are_exact(tmp_path: Path) -> None:
    predictions = drawn(250, ties=True)
    groups = ("north", "south", "west")
    path = written(tmp_path, page_run("one", predictions, groups=groups))
    assert predictions.labels is not None
    assert predictions.dropout_mean is not None
    labels, sites = predictions.labels, np.arange(250) % 3
    with opened(path) as page:
        for score in ("fused", "softmax", "mcd", "uscore"):
            values = uncertainty(predictions, score, FITTED)
            right = correct(predictions, score, FITTED)
            mean = predictions.dropout_mean.argmax(axis=1)
            answers = mean if score == "mcd" else predictions.predicted
            page.locator("#choose-score").select_option(score)
            for step in (1, 137, 400, 733, 1000):
                slide(page, step)
                kept = metrics.kept_weights(values, step / 1000)
                wanted = metrics.accuracy_at_coverage(values, right, step / 1000)
                assert value(page, "accuracy") == pytest.approx(wanted, abs=1e-12)
                found = page.evaluate(DETAIL)
                for name, index in (("taken", labels), ("groupTaken", sites)):
                    expected = np.bincount(index, kept)
                    np.testing.assert_allclose(found[name], expected, atol=1e-9)
                expected = np.bincount(sites, kept * right)
                np.testing.assert_allclose(found["groupRight"], expected, atol=1e-9)
                confusion = np.bincount(labels * 4 + answers, kept, minlength=16)
                pairs = np.zeros(16)
                for pair, size in found["pairs"]:
                    pairs[pair] = size
                np.testing.assert_allclose(pairs, confusion, atol=1e-9)
                shown = [row[1:] for row in cells(page, "#confusion tbody tr")]
                near = np.array(shown, dtype=float)
                np.testing.assert_allclose(near, confusion.reshape(4, 4), atol=0.051)
                rows = cells(page, "#classes tbody tr")
                assert [row[1] for row in rows] == [str((labels == k).sum()) for k in range(4)]
                assert [row[0] for row in cells(page, "#groups tbody tr")] == list(groups)


def test_keys_move_the_slider_and_it_says_so(tmp_path: Path) -> None:
    with opened(written(tmp_path, page_run())) as page:
        page.locator("#slider").focus()
        before = value(page, "accepted")
        for key in ("ArrowLeft",) * 10:
            page.keyboard.press(key)
        settle(page)
        assert value(page, "accepted") == before - 3
        assert page.locator("#exact").input_value() == "79.0"
        page.keyboard.press("End")
        settle(page)
        assert value(page, "accepted") == 300
        assert "300 of 300 answered" in (
            page.locator("#slider").get_attribute("aria-valuetext") or ""
        )
        assert "300 of 300 answered" in page.get_by_role("status").inner_text()
        # The number beside it does the same.
        page.locator("#exact").fill("25")
        page.locator("#exact").press("Enter")
        settle(page)
        assert value(page, "accepted") == 75


def test_a_pointer_on_the_curve_moves_the_point(tmp_path: Path) -> None:
    with opened(written(tmp_path, page_run())) as page:
        page.locator("#chart svg").first.scroll_into_view_if_needed()
        box = page.locator("#chart .plot svg").bounding_box()
        assert box
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        settle(page)
        assert 0.4 < value(page, "coverage") < 0.55


def test_a_screen_reader_finds_its_way(tmp_path: Path) -> None:
    with opened(written(tmp_path, page_run(), page_run("two"))) as page:
        assert page.get_by_role("slider", name="Coverage: share of inputs answered").count() == 1
        assert page.get_by_role("navigation", name="Sections").count() == 1
        assert page.get_by_role("main").count() == 1
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.locator("h1").count() == 1
        assert page.evaluate(UNNAMED) == []
        ids = page.evaluate("() => [...document.querySelectorAll('[id]')].map((one) => one.id)")
        assert len(ids) == len(set(ids))
        page.keyboard.press("Tab")
        assert page.evaluate("() => document.activeElement.textContent") == (
            "Skip to the operating point"
        )


def _lightness(colour: str) -> float:
    red, green, blue = (int(part) for part in re.findall(r"\d+", colour)[:3])
    return (red + green + blue) / 3


def test_it_follows_the_readers_scheme(tmp_path: Path) -> None:
    with opened(written(tmp_path, page_run())) as page:
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            paper, ink = (
                _lightness(page.evaluate(f"() => getComputedStyle(document.body).{name}"))
                for name in ("backgroundColor", "color")
            )
            assert abs(paper - ink) > 150
            assert (paper < ink) == (scheme == "dark")


def test_nothing_sticks_out_at_the_side(tmp_path: Path) -> None:
    long = tuple(f"a_class_with_a_name_that_goes_on_{'and_on' * 6}_{k}" for k in range(4))
    path = written(tmp_path, page_run("one" * 20, classes=long, groups=long), page_run("two"))
    with opened(path) as page:
        for width in (320, 390, 800, 1280):
            page.set_viewport_size({"width": width, "height": 800})
            page.wait_for_timeout(150)
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width
            plots = page.locator(".plot svg").evaluate_all(
                "all => all.map((one) => one.clientWidth)"
            )
            assert plots
            assert max(plots) <= width


def test_hostile_names_do_nothing(tmp_path: Path) -> None:
    run_ = replace(page_run(HOSTILE[0], classes=HOSTILE, groups=HOSTILE), path="a b'; rm $(x)")
    with opened(written(tmp_path, run_, page_run(HOSTILE[1], classes=HOSTILE))) as page:
        page.locator("#choose-run").select_option("0")
        slide(page, 500)
        assert page.evaluate("() => typeof window.hacked") == "undefined"
        assert page.locator("main b", has_text="bold").count() == 0
        assert [row[0] for row in cells(page, "#classes tbody tr")] == list(HOSTILE)
        assert "revar select 'a b'\\''; rm $(x)' --on" in page.locator("#command").inner_text()


def test_a_classifier_without_a_fault(tmp_path: Path) -> None:
    perfect = drawn(60)
    assert perfect.labels is not None
    perfect = replace(perfect, logits=50.0 * np.eye(4)[perfect.labels])
    with opened(written(tmp_path, page_run("one", perfect))) as page:
        assert value(page, "risk") == 0.0
        page.locator("#by-risk").check()
        slide(page, 0)
        assert value(page, "coverage") == 1.0


def test_many_classes_are_listed_by_their_commonest_mistakes(tmp_path: Path) -> None:
    with opened(written(tmp_path, page_run("one", drawn(400, 30)))) as page:
        slide(page, 1000)
        rows = cells(page, "#confusion tbody tr")
        assert 0 < len(rows) <= 20
        sizes = [float(row[2]) for row in rows]
        assert sizes == sorted(sizes, reverse=True)
        assert len(cells(page, "#classes tbody tr")) == 30
