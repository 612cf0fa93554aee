"""What is in the page: exact orders, escaped texts, the CSV, and its size."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import zlib
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from revar import metrics
from revar.errors import InputError
from revar.evaluation import evaluate
from revar.predictions import Predictions
from revar.report.page import PageRun, bands, build_page
from revar.report.page.coding import kept_at_risks, kept_at_steps, order_of_rejection
from revar.report.page.panels import set_panel
from revar.report.page.picks import examples, picks, suspects
from revar.report.page.pictures import png
from revar.scores import uncertainty
from support.reports import FITTED, drawn, page_run

HOSTILE = (
    '</script><script>window.hacked = 1</script>', '<img src=x onerror="window.hacked = 2">',
    "'; window.hacked = 3; '", "\u2028@@script@@<!--",
)  # fmt: skip


def data_of(html: str) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert found
    data: dict[str, object] = json.loads(found[1])
    return data


def unpacked(packed: dict[str, str]) -> np.ndarray:
    kinds = {"u1": np.uint8, "u2": np.uint16, "u4": np.uint32, "f8": np.float64}
    return np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), kinds[packed["type"]])


@given(st.integers(1, 5000))
def test_the_slider_keeps_what_evaluate_keeps(n: int) -> None:
    kept = kept_at_steps(n)
    hits = np.zeros(n, dtype=bool)
    hits[: n // 2] = True
    order = np.arange(n)
    for step in (1, 137, 500, 999, 1000):
        expected = metrics.accuracy_at_coverage(order, hits, step / 1000)
        assert min(n // 2, kept[step - 1]) / kept[step - 1] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_risks_keep_what_evaluate_keeps(ties: bool) -> None:
    predictions = drawn(200, ties=ties)
    values = uncertainty(predictions, "fused", FITTED)
    right = predictions.correct()
    kept = kept_at_risks(values, right)
    for step in (0, 10, 20, 50, 100, 200, 333, 500):
        expected = metrics.coverage_at_risk(values, right, step / 1000)
        assert kept[step] / 200 == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n_classes", [2, 300, 70000])
def test_the_order_of_rejection_is_kept_exactly(n_classes: int) -> None:
    generator = np.random.default_rng(0)
    values = np.round(generator.normal(size=50), 1)
    labels, predicted = generator.integers(0, n_classes, (2, 50))
    groups = generator.integers(0, 3, 50)
    coded = order_of_rejection(values, labels, predicted, n_classes, groups)
    order = np.argsort(values, kind="stable")
    label = unpacked(coded["label"]).astype(int)
    np.testing.assert_array_equal(label, labels[order])
    answered = (label + unpacked(coded["offset"])) % n_classes
    np.testing.assert_array_equal(answered, predicted[order])
    np.testing.assert_array_equal(unpacked(coded["group"]), groups[order])
    tied = values[order][1:] == values[order][:-1]
    np.testing.assert_array_equal(unpacked(coded["tied"])[1:], tied)
    np.testing.assert_array_equal(unpacked(coded["threshold"])[499], values[order][24])


def test_the_page_of_100000_examples_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    # The bands are as large whatever they are drawn from.
    monkeypatch.setattr(bands, "RESAMPLES", 4)
    run = page_run("large", drawn(100_000, 10), groups=("a", "b", "c"))
    page = build_page([run], title="large", csv_name="large.csv")
    assert len(page.html.encode()) < 2_000_000
    data = data_of(page.html)
    scores = data["runs"][0]["sets"]["test"]["scores"]  # type: ignore[index]
    assert len(scores) == 8
    assert all(len(score["curve"]["kept"]) <= 2000 for score in scores.values())
    assert all(len(unpacked(score["label"])) == 100_000 for score in scores.values())


def test_figures_are_those_of_evaluate_and_so_is_the_csv() -> None:
    run = page_run()
    page = build_page([run], title="t", csv_name="t.csv")
    figures = evaluate(run.tests["test"].predictions, FITTED)
    embedded = data_of(page.html)["runs"][0]["sets"]["test"]["figures"]  # type: ignore[index]
    assert embedded == json.loads(json.dumps(figures))
    rows = list(csv.DictReader(io.StringIO(page.csv)))
    found = {(row["score"], row["metric"]): row["value"] for row in rows}
    assert float(found["", "accuracy"]) == figures["accuracy"]
    wanted = figures["scores"]["fused"]["accuracy_at_coverage"]["0.8"]
    assert float(found["fused", "accuracy_at_coverage_0.8"]) == wanted
    assert {row["run"] for row in rows} == {"one"}


def test_hostile_texts_stay_texts() -> None:
    run = replace(page_run(HOSTILE[0], classes=HOSTILE, groups=HOSTILE), path=HOSTILE[1])
    page = build_page([run], title=HOSTILE[0], csv_name='"><script>.csv')
    # The data and the script, and nothing that a name brought along.
    assert len(re.findall(r"<script", page.html)) == 2
    assert "<img" not in page.html.partition("<script>")[0]
    data = data_of(page.html)
    assert data["title"] == HOSTILE[0]
    assert data["runs"][0]["classes"] == list(HOSTILE)  # type: ignore[index]


def test_only_its_own_script_and_style_may_run() -> None:
    html = build_page([page_run()], title="t", csv_name="t.csv").html
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    assert "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1]
    outside = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert not re.search(r'(src|href)="(https?:)?//', outside)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", html)


def test_infinite_scores_do_not_break_the_json() -> None:
    predictions = drawn(40)
    values = np.where(np.arange(40) < 3, np.inf, np.arange(40.0))
    predictions = replace(predictions, scores={"odd": values})
    page = build_page([page_run("one", predictions)], title="t", csv_name="t.csv")
    assert data_of(page.html)["title"] == "t"


def test_other_examples_under_one_name_are_told() -> None:
    same = build_page([page_run("a"), page_run("b")], title="t", csv_name="t.csv")
    assert data_of(same.html)["notes"] == []
    other = build_page([page_run("a"), page_run("b", drawn(seed=5))], title="t", csv_name="t.csv")
    assert "do not compare" in str(data_of(other.html)["notes"])


def test_too_many_groups_are_told_not_shown() -> None:
    run = page_run(groups=tuple(f"patient {i}" for i in range(60)))
    page = build_page([run], title="t", csv_name="t.csv")
    panel = data_of(page.html)["runs"][0]["sets"]["test"]  # type: ignore[index]
    assert panel["groups"] is None
    assert "60 values" in panel["group_note"]


def test_a_page_needs_runs_and_test_sets() -> None:
    with pytest.raises(InputError, match="no run is given"):
        build_page([], title="t", csv_name="t.csv")
    empty: PageRun = replace(page_run(), tests={})
    with pytest.raises(InputError, match="no labelled test set"):
        build_page([empty], title="t", csv_name="t.csv")


def test_picks_are_what_they_say() -> None:
    predictions = drawn()
    values = uncertainty(predictions, "fused", FITTED)
    shelves = picks(predictions, FITTED)
    uncertain, confident, first, second = shelves
    assert uncertain.rows[0] == int(values.argmax())
    wrong = ~predictions.correct()
    assert all(wrong[list(confident.rows)])
    assert confident.rows[0] == int(np.flatnonzero(wrong)[values[wrong].argmin()])
    softmax = uncertainty(predictions, "softmax", FITTED)
    border, other = np.quantile(values, 0.8), np.quantile(softmax, 0.8)
    assert all(values[row] >= border and softmax[row] <= other for row in first.rows)
    assert all(values[row] <= border and softmax[row] >= other for row in second.rows)


def test_what_is_shown_of_mcd_goes_with_its_answers() -> None:
    """Its calibration error, its band, and the answers beside its most confident mistakes."""
    predictions = drawn()
    assert predictions.dropout_mean is not None
    mean, labels = predictions.dropout_mean, predictions.labels
    assert labels is not None
    by_mean = replace(FITTED, default_score="mcd")
    run = replace(page_run(), fitted=by_mean)
    panel = set_panel(run, run.tests["test"])["scores"]
    values = uncertainty(predictions, "mcd", by_mean)
    for name, probabilities in (("mcd", mean), ("dropout_entropy", predictions.probabilities)):
        wanted = metrics.selective_ece(
            values, probabilities, labels, coverages=bands.ECE_GRID.tolist()
        )
        assert panel[name]["ece"] == pytest.approx(wanted, abs=1e-6)
        low, high = np.array(panel[name]["ece_band"])
        assert low[-1] < wanted[-1] < high[-1]
    assert panel["mcd"]["ece_band"] != panel["dropout_entropy"]["ece_band"]
    mistakes = picks(predictions, by_mean)[1]
    shown = examples(mistakes.rows, predictions, by_mean, mistakes.scores)
    assert [one["predicted"] for one in shown] == mean[list(mistakes.rows)].argmax(1).tolist()
    assert all(one["predicted"] != one["label"] for one in shown)
    assert shown[0]["confidence"] == pytest.approx(mean[mistakes.rows[0]].max())


def test_suspects_have_the_least_weight_or_the_highest_u_score() -> None:
    train = drawn(100)
    weight = 1 / (1 + np.exp(-train.columns["uscore"]))
    weighed = replace(train, columns={**train.columns, "weight": weight})
    light, unsure = suspects(weighed, FITTED)
    assert light.rows[0] == int(weight.argmin())
    assert unsure.rows[0] == int(train.columns["uscore"].argmax())
    assert suspects(train, FITTED) == [unsure]
    assert suspects(replace(train, columns={}), FITTED) == []
    assert suspects(None, FITTED) == []


def test_suspects_of_a_method_that_weighs_nothing_have_no_weight() -> None:
    run = replace(page_run(), train=drawn(40))
    html = build_page([run], title="one", csv_name="page.csv").html
    (shown,) = cast("list[dict[str, Any]]", data_of(html)["runs"])
    shelves = shown["suspects"]
    assert [shelf["title"] for shelf in shelves] == ["Highest U-Score"]
    assert {one["weight"] for one in shelves[0]["examples"]} == {None}


@pytest.mark.parametrize("channels", [1, 3])
def test_pictures_are_png_files(channels: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (5, 7, channels)).astype(np.uint8)
    with Image.open(io.BytesIO(png(image))) as opened:
        opened.load()
        assert opened.format == "PNG"
        found = np.asarray(opened).reshape(5, 7, channels)
    np.testing.assert_array_equal(found, image)


def test_one_example_of_one_class_is_enough() -> None:
    one = Predictions(index=np.arange(2), logits=np.eye(2), labels=np.array([0, 1]))
    fitted = replace(FITTED, default_score="softmax", own="softmax", fusion=None)
    page = build_page([replace(page_run("one", one), fitted=fitted)], title="t", csv_name="t.csv")
    assert data_of(page.html)["runs"]
