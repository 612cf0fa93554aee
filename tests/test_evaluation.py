from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from revar import metrics, scores
from revar.errors import InputError, UndefinedMetricWarning
from revar.evaluation import COVERAGES, RISKS, evaluate, rows
from revar.predictions import Predictions
from revar.registry import SCORES
from revar.scores.learned import Fitted, fit_scores
from support.synthetic import of_logits, of_passes, with_errors
from support.threads import one_thread

PLAIN = Fitted(default_score="softmax")
TOP = [
    "n", "accuracy", "ece", "ece_equal_mass", "ece_classwise", "ece_top_label", "mce", "brier",
    "nll",
]  # fmt: skip
FIGURES = [
    "auarc", "aurc", "e_aurc", "augrc", "normalised_auarc", "failure_auroc", "failure_aupr",
    "fpr_at_95_tpr",
]  # fmt: skip
TABLES = ["accuracy_at_coverage", "coverage_at_risk", "selective_ece"]
COVERAGE_KEYS = ["0.5", "0.6", "0.7", "0.8", "0.9", "1.0"]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with one_thread():
        yield


def full(seed: int = 0, n: int = 120) -> Predictions:
    """Every part there is; the passes' mean and the deterministic pass sometimes disagree."""
    rng = np.random.default_rng(seed)
    samples = rng.normal(0, 2, (5, n, 3)) + rng.normal(0, 2, (n, 3))
    predictions = of_passes(
        samples,
        logits=samples[0].astype(np.float32),
        columns={"uscore": rng.normal(size=n).astype(np.float32)},
    )
    labels = np.where(rng.random(n) < 0.3, rng.integers(0, 3, n), predictions.predicted)
    return replace(predictions, labels=labels)


def bare(hits: list[bool]) -> Predictions:
    """Two classes, gaps 1, 2, 3, ..; right or wrong as told."""
    logits = np.array([[float(i + 1), 0.0] for i in range(len(hits))])
    return of_logits(logits, labels=np.array([0 if hit else 1 for hit in hits]))


# Keys -----------------------------------------------------------------------------------------


def test_the_keys_are_those_documented_and_no_others() -> None:
    predictions = full()
    fitted = fit_scores(predictions, default_score="fused", orientation="high")
    result = evaluate(predictions, fitted)
    assert list(result) == [*TOP, "default_score", "own_score", "scores"]
    assert result["n"] == 120
    assert type(result["n"]) is int
    assert result["default_score"] == "fused"
    assert result["own_score"] == "softmax"
    assert list(result["scores"]) == [*(entry.name for entry in SCORES), "own"]
    for name, figures in result["scores"].items():
        more = ["auc_at_coverage"] if name == "fused" else []
        more += ["entropy_pearson", "entropy_spearman"] if name == "uscore" else []
        assert list(figures) == [*FIGURES, *TABLES, *more]
        assert list(figures["accuracy_at_coverage"]) == COVERAGE_KEYS
        numbers = [figures[name] for name in FIGURES]
        numbers += figures["accuracy_at_coverage"].values()
        assert all(type(number) is float for number in numbers)


def test_only_available_scores_are_listed() -> None:
    assert list(evaluate(bare([True, False]), PLAIN)["scores"]) == [
        "softmax", "softmax_entropy", "own",
    ]  # fmt: skip


# Values ---------------------------------------------------------------------------------------


def test_values_by_hand() -> None:
    # Softmax keeps the widest gap first: rows 3, 2, 1, 0, that is right, wrong, right, wrong.
    # The figures of that order are worked out in tests/metrics/test_selective.py.
    result = evaluate(bare([False, True, False, True]), PLAIN)
    assert result["n"] == 4
    assert result["accuracy"] == 0.5
    softmax = result["scores"]["softmax"]
    assert softmax["auarc"] == pytest.approx(2 / 3)
    assert softmax["aurc"] == pytest.approx(1 / 3)
    assert softmax["e_aurc"] == pytest.approx(1 / 8)
    assert softmax["augrc"] == pytest.approx(3 / 16)
    assert softmax["failure_auroc"] == pytest.approx(3 / 4)
    # floor of 2, 2.4, 2.8, 3.2, 3.6 and 4 rows.
    assert list(softmax["accuracy_at_coverage"].values()) == pytest.approx(
        [1 / 2, 1 / 2, 1 / 2, 2 / 3, 2 / 3, 1 / 2]
    )
    # With two classes entropy ranks the same.
    softmax = {k: v for k, v in softmax.items() if k != "auc_at_coverage"}
    assert result["scores"]["softmax_entropy"] == softmax


def test_ece_is_of_the_deterministic_probabilities_in_fifteen_bins() -> None:
    # One row, wrong, with confidence sigmoid(1).
    assert evaluate(bare([False]), PLAIN)["ece"] == pytest.approx(1 / (1 + np.exp(-1)))
    predictions = full()
    expected = metrics.ece(predictions.probabilities, predictions.labels, n_bins=15)
    assert evaluate(predictions, PLAIN)["ece"] == expected


@pytest.mark.parametrize("seed", range(3))
def test_each_figure_is_the_metric_of_that_score(seed: int) -> None:
    predictions = full(seed)
    fitted = fit_scores(predictions, default_score="fused", orientation="high")
    result = evaluate(predictions, fitted)
    for name, figures in result["scores"].items():
        values = scores.uncertainty(predictions, name, fitted)
        right = scores.correct(predictions, name, fitted)
        for figure in FIGURES:
            metric = metrics.fpr_at_tpr if figure == "fpr_at_95_tpr" else getattr(metrics, figure)
            assert figures[figure] == metric(values, right)
        for coverage in COVERAGES:
            expected = metrics.accuracy_at_coverage(values, right, coverage)
            assert figures["accuracy_at_coverage"][str(coverage)] == expected
        for risk in RISKS:
            expected = metrics.coverage_at_risk(values, right, risk)
            assert figures["coverage_at_risk"][str(risk)] == expected
        _, given = scores.answers(predictions, name, fitted)
        curve = metrics.selective_ece(values, given, predictions.labels, coverages=COVERAGES)
        assert list(figures["selective_ece"].values()) == curve.tolist()
    for coverage in COVERAGES:
        values = scores.uncertainty(predictions, "fused", fitted)
        area = metrics.auc_at_coverage(
            values, predictions.probabilities, predictions.labels, coverage
        )
        assert result["scores"]["fused"]["auc_at_coverage"][str(coverage)] == area
    for metric in (metrics.ece, metrics.mce, metrics.brier, metrics.nll):
        expected = metric(predictions.probabilities, predictions.labels)
        assert result[metric.__name__] == pytest.approx(expected, abs=1e-12)


def test_mcd_is_graded_by_its_own_predictions() -> None:
    predictions = full()
    plain = predictions.correct().mean()
    by_mean = predictions.correct(by_dropout_mean=True).mean()
    assert plain != by_mean
    result = evaluate(predictions, PLAIN)
    assert result["accuracy"] == plain
    for name, figures in result["scores"].items():
        full_coverage = figures["accuracy_at_coverage"]["1.0"]
        assert full_coverage == (by_mean if name == "mcd" else plain)


def test_all_figures_of_mcd_are_of_the_mean_of_passes() -> None:
    """As if these means, kept in four bytes a number, were what the network said at once."""
    predictions = full()
    assert predictions.dropout_mean is not None
    mean = predictions.dropout_mean.astype(np.float64)
    short = replace(predictions, dropout_mean=mean.astype(np.float32))
    alone = replace(predictions, logits=np.log(mean))
    fitted = Fitted(default_score="mcd", own="softmax")
    found = evaluate(short, fitted)["scores"]["mcd"]
    wanted = evaluate(alone, fitted)["scores"]["mcd"]
    mixed = evaluate(short, Fitted(default_score="dropout_entropy"))["scores"]["dropout_entropy"]
    for table in (*TABLES, "auc_at_coverage"):
        assert found[table] == pytest.approx(wanted[table], abs=1e-6)
        if table != "coverage_at_risk":
            assert found[table] != pytest.approx(mixed[table], abs=1e-3)


def test_the_order_of_rows_does_not_matter() -> None:
    predictions = with_errors(0, 200, evidence=1.0)
    assert predictions.labels is not None
    order = np.random.default_rng(1).permutation(200)
    moved = of_logits(
        predictions.logits[order],
        labels=predictions.labels[order],
        columns={"uscore": predictions.columns["uscore"][order]},
    )
    one, other = evaluate(predictions, PLAIN), evaluate(moved, PLAIN)
    for name in one["scores"]:
        for figure in FIGURES:
            assert one["scores"][name][figure] == other["scores"][name][figure]
        for table in TABLES:
            assert one["scores"][name][table] == pytest.approx(other["scores"][name][table])
    assert one["ece"] == pytest.approx(other["ece"], abs=1e-14)


# Undefined ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hit", "reason"), [(True, "no errors"), (False, "nothing right")])
def test_an_undefined_figure_is_none_with_its_reason_and_no_warning(hit: bool, reason: str) -> None:
    # Warnings are errors in these tests, so a warning that got out would fail.
    result = evaluate(bare([hit] * 3), PLAIN)
    for figures in result["scores"].values():
        for figure in ("normalised_auarc", "failure_auroc", "failure_aupr", "fpr_at_95_tpr"):
            assert figures[figure] is None
            assert f"undefined: {reason} among 3 examples" in figures[f"{figure}_reason"]
        assert figures["auarc"] == pytest.approx(float(hit), abs=1e-14)
        assert figures["e_aurc"] == 0.0
    areas = result["scores"]["softmax"]["auc_at_coverage"]
    assert areas["1.0"] is None
    assert "all 3" in areas["1.0_reason"]
    assert result["accuracy"] == float(hit)


def test_a_figure_defined_for_mcd_alone_is_none_elsewhere() -> None:
    predictions = replace(
        bare([True, True]),
        dropout_mean=np.array([[0.9, 0.1], [0.2, 0.8]]),
        dropout_variance=np.array([0.1, 0.2]),
        dropout_entropy=np.array([0.3, 0.5]),
        dropout_expected_entropy=np.array([0.2, 0.3]),
    )
    result = evaluate(predictions, PLAIN)["scores"]
    assert result["mcd"]["failure_auroc"] == 1.0
    assert "failure_auroc_reason" not in result["mcd"]
    assert result["softmax"]["failure_auroc"] is None


def test_the_warning_is_still_given_outside() -> None:
    evaluate(bare([True]), PLAIN)
    with pytest.warns(UndefinedMetricWarning):
        metrics.failure_auroc([0.1], [True])


@pytest.mark.parametrize("predictions", [full(), bare([True]), bare([False] * 2)])
def test_the_result_is_json_without_nan(predictions: Predictions) -> None:
    fitted = fit_scores(predictions, default_score="fused", orientation="high")
    result = evaluate(predictions, fitted)
    assert json.loads(json.dumps(result, allow_nan=False)) == result


# Refused --------------------------------------------------------------------------------------


def test_a_set_without_labels_is_refused() -> None:
    with pytest.raises(InputError, match="no labels"):
        evaluate(of_logits([[1.0, 0.0]]), PLAIN)


def test_nan_in_the_logits_is_refused_with_its_row() -> None:
    predictions = bare([True, False, True])
    predictions.logits[2] = np.nan
    with pytest.raises(ValueError, match="NaN in 1 rows: 2"):
        evaluate(predictions, PLAIN)


# Rows -----------------------------------------------------------------------------------------


def test_rows_hold_every_figure_once() -> None:
    predictions = full()
    result = evaluate(predictions, PLAIN)
    table = list(rows("test", result))
    assert [row[:3] for row in table[: len(TOP)]] == [("test", "", name) for name in TOP]
    found = {(score, metric): value for _, score, metric, value in table}
    # By coverage twice, by risk once; AUC for one score and its other name, correlations for g.
    each = len(FIGURES) + 2 * len(COVERAGES) + len(RISKS)
    more = 2 * len(COVERAGES) + 2
    assert len(found) == len(table) == len(TOP) + len(result["scores"]) * each + more
    assert {split for split, *_ in table} == {"test"}
    assert found["", "n"] == 120
    for name, figures in result["scores"].items():
        for figure in FIGURES:
            assert found[name, figure] == figures[figure]
        for key in COVERAGE_KEYS:
            at: Any = figures["accuracy_at_coverage"][key]
            assert found[name, f"accuracy_at_coverage_{key}"] == at


def test_rows_hold_none_for_what_is_undefined() -> None:
    table = list(rows("test", evaluate(bare([True]), PLAIN)))
    assert ("test", "softmax", "failure_auroc", None) in table
