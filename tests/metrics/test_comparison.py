from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import norm, rankdata, sem
from scipy.stats import t as student

from revar import metrics
from revar.errors import UndefinedMetricWarning
from revar.metrics import Comparison, compare, comparison, holm
from support.properties import Bools, Floats

SINGLE: dict[str, Callable[[Any, Any], float]] = {
    "auarc": metrics.auarc,
    "aurc": metrics.aurc,
    "e_aurc": metrics.e_aurc,
    "augrc": metrics.augrc,
    "normalised_auarc": metrics.normalised_auarc,
    "failure_auroc": metrics.failure_auroc,
    "accuracy": lambda _, correct: float(np.mean(correct)),
}
LOWER_IS_BETTER = {"aurc", "e_aurc", "augrc"}


def scores_of(correct: Bools, rng: np.random.Generator, signal: float) -> Floats:
    """Noise, and so much on top for errors; one decimal, so that there are ties."""
    scores: Floats = rng.normal(size=correct.shape) + signal * ~correct
    return np.round(scores, 1)


def three_methods(
    seed: int = 0, n: int = 60, n_seeds: int = 3
) -> tuple[dict[str, Floats], dict[str, Bools]]:
    rng = np.random.default_rng(seed)
    correct = {name: rng.random((n_seeds, n)) > 0.3 for name in "abc"}
    signal = {"a": 1.0, "b": 0.5, "c": 1.5}
    return {name: scores_of(correct[name], rng, signal[name]) for name in "abc"}, correct


def fields(found: Comparison) -> dict[str, tuple[float, ...]]:
    """All numbers of all methods, by name."""
    return {
        m.name: (
            m.value, m.low, m.high, *m.by_seed, m.rank, m.difference, m.difference_low,
            m.difference_high, m.p_value, m.p_holm,
        )
        for m in found.methods
    }  # fmt: skip


# Against a loop over resamples ----------------------------------------------------------------


def slow_resamples(
    uncertainty: dict[str, Floats],
    correct: dict[str, Bools],
    figure: str,
    clusters: NDArray[Any] | None,
    n_resamples: int,
) -> Floats:
    """[resamples, methods]: the figure on the rows that were drawn, one resample at a time.

    And so much as the seeds that were drawn are better on all rows than all seeds.
    """
    n_seeds, n = next(iter(uncertainty.values())).shape
    names = np.arange(n) if clusters is None else np.unique(clusters)
    rows_of = [[i] if clusters is None else np.flatnonzero(clusters == i) for i in names]
    rng = np.random.default_rng(0)
    seeds = rng.integers(0, n_seeds, (n_resamples, n_seeds))
    factor = math.sqrt(n_seeds / (n_seeds - 1))
    drawn = np.empty((n_resamples, len(uncertainty)))
    for r in range(n_resamples):
        rows = np.concatenate([rows_of[i] for i in rng.integers(0, len(names), len(names))])
        for m, name in enumerate(uncertainty):
            one = uncertainty[name], correct[name]
            level = np.mean([SINGLE[figure](one[0][s, rows], one[1][s, rows])
                             for s in range(n_seeds)])  # fmt: skip
            whole = [SINGLE[figure](one[0][s], one[1][s]) for s in range(n_seeds)]
            better = np.mean([whole[s] for s in seeds[r]]) - np.mean(whole)
            drawn[r, m] = level + factor * better
    return drawn


def widened(drawn: Floats, by_seed: list[float]) -> Floats:
    """[resamples] of one column as few seeds want them, by the statistics of SciPy."""
    of_seeds = sem(by_seed) ** 2
    if of_seeds == 0:
        return drawn
    freedom = (len(by_seed) - 1) * max(1.0, np.var(drawn) / of_seeds) ** 2
    share = (rankdata(drawn) - 0.5) / len(drawn)
    with np.errstate(invalid="ignore"):
        stretch = np.where(share == 0.5, 1, student.ppf(share, freedom) / norm.ppf(share))
    wide: Floats = np.mean(by_seed) + stretch * (drawn - np.mean(by_seed))
    return wide


@pytest.mark.parametrize("clustered", [False, True])
@pytest.mark.parametrize("figure", get_args(comparison.Figure))
def test_resamples_are_those_of_a_plain_loop(figure: Any, clustered: bool) -> None:
    uncertainty, correct = three_methods()
    # Clusters of different size with names that are no numbers.
    clusters = np.array([f"p{i * i // 120}" for i in range(60)]) if clustered else None
    n_resamples = 40
    drawn = slow_resamples(uncertainty, correct, figure, clusters, n_resamples)
    of_seeds = {name: [SINGLE[figure](uncertainty[name][s], correct[name][s]) for s in range(3)]
                for name in "abc"}  # fmt: skip
    found = compare(
        uncertainty, correct, figure=figure, clusters=clusters, n_resamples=n_resamples,
        confidence=0.9, reference="b",
    )  # fmt: skip
    sign = -1 if figure in LOWER_IS_BETTER else 1
    assert found.n_clusters == (len(np.unique(clusters)) if clusters is not None else 60)
    assert (found.n_seeds, found.n_examples, found.n_resamples) == (3, 60, n_resamples)
    ranks = np.zeros(3)
    for row in np.round(sign * drawn, 12):  # equal means over seeds differ in the last digit
        ranks += [1 + (row > x).sum() + ((row == x).sum() - 1) / 2 for x in row]
    for m, name in enumerate("abc"):
        method = found[name]
        by_seed = of_seeds[name]
        assert method.by_seed == pytest.approx(by_seed, abs=1e-12)
        assert method.value == pytest.approx(np.mean(by_seed), abs=1e-12)
        ends = np.quantile(widened(drawn[:, m], by_seed), [0.05, 0.95])
        assert (method.low, method.high) == pytest.approx(tuple(ends), abs=1e-12)
        assert method.rank == pytest.approx(ranks[m] / n_resamples, abs=1e-12)
        differences = widened(
            sign * (drawn[:, m] - drawn[:, 1]),
            [sign * (one - other) for one, other in zip(by_seed, of_seeds["b"], strict=True)],
        )  # fmt: skip
        ends = np.quantile(differences, [0.05, 0.95])
        assert method.difference_low == pytest.approx(ends[0], abs=1e-12)
        assert method.difference_high == pytest.approx(ends[1], abs=1e-12)
        expected = sign * (method.value - found["b"].value)
        assert method.difference == pytest.approx(expected, abs=1e-12)
        sides = np.sign(np.round(differences, 12))
        one_side = min((sides <= 0).sum(), (sides >= 0).sum())
        expected = min(1.0, 2 * (one_side + 1) / (n_resamples + 1))
        assert method.p_value == pytest.approx(1.0 if name == "b" else expected, abs=1e-12)
    holm_of_two = holm([found["a"].p_value, found["c"].p_value])
    assert [found["a"].p_holm, found["c"].p_holm] == holm_of_two.tolist()
    assert found["b"].p_holm == 1.0


@pytest.mark.parametrize("clustered", [False, True])
def test_result_does_not_depend_on_the_size_of_blocks(
    monkeypatch: pytest.MonkeyPatch, clustered: bool
) -> None:
    uncertainty, correct = three_methods(n=61)  # odd: half a random word is left over
    clusters = np.arange(61) // 2 if clustered else None
    expected = fields(compare(uncertainty, correct, clusters=clusters, n_resamples=33))
    for cells in (1, 61 * 5, 61 * 32):
        monkeypatch.setattr(comparison, "_CELLS", cells)
        found = fields(compare(uncertainty, correct, clusters=clusters, n_resamples=33))
        for name, values in expected.items():
            assert found[name] == pytest.approx(values, abs=1e-13)


def test_seed_decides_the_resamples() -> None:
    uncertainty, correct = three_methods()
    one, same, other = (
        fields(compare(uncertainty, correct, n_resamples=20, seed=seed)) for seed in (1, 1, 2)
    )
    assert one == same
    assert one != other


# What it says ---------------------------------------------------------------------------------


def test_same_method_twice_is_no_different() -> None:
    uncertainty, correct = three_methods()
    twice = {"one": uncertainty["a"], "other": np.exp(uncertainty["a"])}
    found = compare(twice, correct["a"], n_resamples=50)
    other = found["other"]
    assert other.difference == other.difference_low == other.difference_high == 0.0
    assert other.p_value == other.p_holm == 1.0
    assert [m.rank for m in found.methods] == [1.5, 1.5]


@pytest.mark.parametrize("figure", get_args(comparison.Figure))
def test_clearly_better_is_positive_and_first_whatever_the_figure(figure: Any) -> None:
    rng = np.random.default_rng(0)
    truth = rng.random(400)
    correct = {"weak": truth > 0.5, "strong": truth > 0.1}
    if figure != "accuracy":
        correct["strong"] = correct["weak"]
    uncertainty = {
        "weak": rng.random(400), "strong": rng.normal(size=400) + 3.0 * ~correct["strong"],
    }  # fmt: skip
    found = compare(uncertainty, correct, figure=figure, n_resamples=200)
    strong, weak = found.methods
    assert (strong.name, weak.name) == ("strong", "weak")
    assert found.reference == "weak"
    assert 0 < strong.difference_low < strong.difference < strong.difference_high
    assert strong.p_value == pytest.approx(2 / 201)
    assert (strong.rank, weak.rank) == (1.0, 2.0)
    assert strong.low < strong.value < strong.high
    backwards = compare(uncertainty, correct, figure=figure, n_resamples=200, reference="strong")
    assert backwards["weak"].difference == -strong.difference
    assert backwards["weak"].difference_low == pytest.approx(-strong.difference_high, abs=1e-14)


def test_means_over_seeds_that_differ_by_rounding_are_level() -> None:
    one, other = 0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1
    assert one != other
    drawn = np.array([[one, other], [other, one], [one, one + 0.1]])
    assert comparison._ranks(drawn).tolist() == pytest.approx([5 / 3, 4 / 3])
    assert comparison._p_values(drawn[:2] - drawn[:2, :1]).tolist() == [1.0, 1.0]


def test_ranks_share_out_what_there_is() -> None:
    uncertainty, correct = three_methods()
    for figure in get_args(comparison.Figure):
        found = compare(uncertainty, correct, figure=figure, n_resamples=30)
        assert np.mean([m.rank for m in found.methods]) == pytest.approx(2.0)
        values = [m.value for m in found.methods]
        assert values == sorted(values, reverse=figure not in LOWER_IS_BETTER)


def test_one_method_has_an_interval_and_nothing_to_differ_from() -> None:
    uncertainty, correct = three_methods()
    (only,) = compare({"a": uncertainty["a"]}, correct, n_resamples=30).methods
    assert only.low < only.value < only.high
    assert (only.rank, only.difference, only.p_value, only.p_holm) == (1.0, 0.0, 1.0, 1.0)


def test_what_is_common_to_methods_cancels() -> None:
    """Nearly the same score: a far narrower interval for the difference than for each."""
    rng = np.random.default_rng(5)
    correct = rng.random(500) > 0.3
    score = scores_of(correct, rng, 1.0)
    found = compare(
        {"a": score, "b": score + 0.1 * rng.random(500)}, correct, n_resamples=200
    )["b"]  # fmt: skip
    assert found.difference_high - found.difference_low < 0.2 * (found.high - found.low)


def test_clusters_are_drawn_as_wholes() -> None:
    """Twenty patients with nine copies of one row: a ninth of the rows, thrice the width."""
    rng = np.random.default_rng(0)
    correct = rng.random(40) > 0.4
    uncertainty = {"a": rng.normal(size=40) + ~correct}
    copies = {"a": np.repeat(uncertainty["a"], 9)}
    patients = np.repeat(np.arange(40), 9)
    how: dict[str, Any] = {"n_resamples": 1000, "figure": "accuracy"}

    def width(found: Comparison) -> float:
        return found["a"].high - found["a"].low

    rows = width(compare(copies, np.repeat(correct, 9), **how))
    whole = width(compare(copies, np.repeat(correct, 9), clusters=patients, **how))
    once = width(compare(uncertainty, correct, **how))
    assert whole == pytest.approx(once, abs=1e-12)  # the same draws, each row nine times
    assert whole / rows == pytest.approx(3.0, rel=0.2)


def test_seeds_add_their_own_spread() -> None:
    """The same examples, seeds of very different quality: one seed knows nothing of that."""
    rng = np.random.default_rng(0)
    correct = rng.random(300) > 0.3
    seeds = np.stack([scores_of(correct, rng, signal) for signal in (0.0, 1.0, 2.0, 3.0)])
    several = compare({"a": seeds}, correct, n_resamples=300)
    alone = compare({"a": seeds[2]}, correct, n_resamples=300)
    assert several.n_seeds == 4
    assert several["a"].by_seed[0] < several["a"].by_seed[3]
    widths = [found["a"].high - found["a"].low for found in (several, alone)]
    assert widths[0] > 1.5 * widths[1]


# Is it right as often as it says? -------------------------------------------------------------


def test_p_values_are_small_as_rarely_as_they_should_be() -> None:
    """Two scores of equal worth: below 0.05 in a twentieth of 300 studies, within 3 errors."""
    rng = np.random.default_rng(11)
    studies, small = 300, 0
    for study in range(studies):
        correct = rng.random(120) > 0.3
        common = rng.normal(size=120) + ~correct
        uncertainty = {name: common + rng.normal(size=120) for name in "ab"}
        found = compare(uncertainty, correct, n_resamples=399, seed=study)
        small += found["b"].p_value < 0.05
    error = math.sqrt(0.05 * 0.95 / studies)
    assert abs(small / studies - 0.05) < 3 * error


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Bools]:
        correct = rng.random(n) > 0.3
        return rng.normal(size=n) + ~correct, correct

    rng = np.random.default_rng(12)
    truth = metrics.auarc(*draw(rng, 400_000))
    studies, inside = 200, 0
    for study in range(studies):
        uncertainty, correct = draw(rng, 150)
        method = compare({"a": uncertainty}, correct, n_resamples=300, seed=study)["a"]
        inside += method.low <= truth <= method.high
    error = math.sqrt(0.95 * 0.05 / studies)
    assert abs(inside / studies - 0.95) < 3 * error


# Holm -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], []),
        ([0.04], [0.04]),
        # Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1: 0.02, 0.03, 0.06, then not below 0.06.
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.5, 0.6, 0.9], [1.0, 1.0, 1.0]),
        ([0.02, 0.02], [0.04, 0.04]),
        # What could not be tested was meant to be: it counts.
        ([0.01, float("nan"), 0.02], [0.03, float("nan"), 0.04]),
    ],
)
def test_holm_by_hand(given: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(holm(given), expected, rtol=1e-14)


# Undefined ------------------------------------------------------------------------------------


def few_errors(n: int, errors: int) -> tuple[Floats, Bools]:
    correct = np.arange(n) >= errors
    return np.random.default_rng(0).normal(size=n) + ~correct, correct


@pytest.mark.parametrize("figure", ["failure_auroc", "normalised_auarc"])
def test_few_undefined_resamples_are_counted_and_left_out(figure: Any) -> None:
    """With 5 errors a resample has none with probability near exp(-5), 0.7 %."""
    uncertainty, correct = few_errors(100, 5)
    rng = np.random.default_rng(0)
    rng.integers(0, 1, (1000, 1))
    rows = rng.integers(0, 100, (1000, 100))
    none = int((~(rows < 5).any(axis=1)).sum())
    assert 0 < none < 50
    message = (
        f"{figure} is undefined in resamples with no errors or nothing right, "
        f'{none} of 1000 for "a", {none} of 1000 for "b": they are left out$'
    )
    with pytest.warns(UndefinedMetricWarning, match=message) as caught:
        found = compare({"a": uncertainty, "b": -uncertainty}, correct, figure=figure)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    values = [
        SINGLE[figure](uncertainty[r], correct[r]) for r in rows if not correct[r].all()
    ]  # fmt: skip
    ends = np.quantile(values, [0.025, 0.975])
    assert (found["a"].low, found["a"].high) == pytest.approx(tuple(ends), abs=1e-12)
    assert all(math.isfinite(x) for row in fields(found).values() for x in row)
    assert np.mean([m.rank for m in found.methods]) == pytest.approx(1.5)


def test_what_is_too_often_undefined_is_nan_and_the_others_are_not() -> None:
    """With one error over a third of the resamples have none; its figure itself stands."""
    good, correct = few_errors(200, 60)
    scores = {"a": good, "few": good, "c": good + 0.5 * np.sin(np.arange(200))}
    hits = {"a": correct, "few": np.arange(200) > 0, "c": correct}
    with pytest.warns(UndefinedMetricWarning, match='NaN for "few", over 5% of them$'):
        found = compare(scores, hits, figure="failure_auroc", n_resamples=200)
    few = found["few"]
    assert few.value == metrics.failure_auroc(good, hits["few"])
    undefined = (few.low, few.high, few.rank, few.difference_low, few.p_value, few.p_holm)
    assert np.isnan(undefined).all()
    alone = compare({k: scores[k] for k in "ac"}, hits, figure="failure_auroc", n_resamples=200)
    for name in "ac":
        assert found[name].low == alone[name].low
        assert found[name].p_value == alone[name].p_value
        assert found[name].rank == alone[name].rank
    # Two tests were meant to be made.
    assert found["c"].p_holm == pytest.approx(min(1.0, 2 * found["c"].p_value))


def test_method_without_errors_has_no_value_and_comes_last() -> None:
    score, correct = few_errors(100, 40)
    hits = {"perfect": np.ones(100, dtype=bool), "a": correct}
    with pytest.warns(UndefinedMetricWarning, match='50 of 50 for "perfect", 0 of 50 for "a"'):
        found = compare(
            {"perfect": score, "a": score}, hits, figure="failure_auroc", n_resamples=50,
            reference="a",
        )  # fmt: skip
    assert [m.name for m in found.methods] == ["a", "perfect"]
    assert math.isnan(found["perfect"].value)
    assert found["a"].rank == 1.0


def test_a_seed_that_is_undefined_counts_where_it_was_not_drawn() -> None:
    """Of two seeds one has no errors: how far it is from the other cannot be said."""
    score, correct = few_errors(100, 40)
    hits = np.stack([correct, np.ones(100, dtype=bool)])
    with pytest.warns(UndefinedMetricWarning, match="undefined in resamples") as caught:
        compare({"a": np.stack([score, score])}, {"a": hits}, figure="failure_auroc")
    assert '1000 of 1000 for "a"' in str(caught[0].message)


# Arguments ------------------------------------------------------------------------------------


def test_correct_may_be_one_array_for_all() -> None:
    uncertainty, correct = three_methods()
    shared = correct["a"]
    one = compare(uncertainty, shared, n_resamples=20)
    each = compare(uncertainty, dict.fromkeys("abc", shared), n_resamples=20)
    assert fields(one) == fields(each)
    row = compare(uncertainty, shared[0], n_resamples=20)
    repeated = compare(uncertainty, np.stack([shared[0]] * 3), n_resamples=20)
    assert fields(row) == fields(repeated)


def test_a_vector_is_one_seed_and_tensors_are_arrays() -> None:
    uncertainty, correct = three_methods(n_seeds=1)
    expected = fields(compare(uncertainty, correct, n_resamples=20))
    vectors = {k: v[0] for k, v in uncertainty.items()}
    hits = {k: v[0] for k, v in correct.items()}
    assert fields(compare(vectors, hits, n_resamples=20)) == expected
    tensors = {k: torch.tensor(v) for k, v in vectors.items()}
    bits = {k: torch.tensor(v).int() for k, v in hits.items()}
    patients = torch.arange(60)
    assert fields(compare(tensors, bits, clusters=patients, n_resamples=20)) == expected


def test_unknown_name_of_a_method_is_a_key_error() -> None:
    uncertainty, correct = three_methods()
    with pytest.raises(KeyError, match="nobody"):
        compare(uncertainty, correct, n_resamples=2)["nobody"]


TWO = {"a": [0.1, 0.2], "b": [0.2, 0.1]}
HITS = [True, False]


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (({}, HITS), {}, "no methods to compare"),
        ((TWO, HITS), {"figure": "auc"}, 'figure is "auc": known are auarc, aurc'),
        ((TWO, HITS), {"reference": "c"}, 'reference is "c": known are a, b'),
        ((TWO, {"a": HITS}), {}, 'correct has no "b"'),
        ((TWO, [True]), {}, r'"a": uncertainty has shape \(1, 2\), correct \(1, 1\)'),
        ((TWO, [[HITS]]), {}, '"a": uncertainty has shape'),
        (({"a": np.empty((0, 2))}, HITS), {}, r'"a": uncertainty has shape \(0, 2\)'),
        (({"a": []}, []), {}, '"a": no examples'),
        (({"a": [0.1], "b": [0.1, 0.2]}, {"a": [True], "b": HITS}), {},
         r"same seeds and examples, not a \(1, 1\), b \(1, 2\)"),
        (({"a": [[1, 2], [1, 2]], "b": [1, 2]}, HITS), {},
         r"same seeds and examples, not a \(2, 2\), b \(1, 2\)"),
        (({"a": [0.1, 0.2], "b": [0.1, float("nan")]}, HITS), {},
         '"b": uncertainty is NaN in 1 rows: 1'),
        ((TWO, [2, 0]), {}, '"a": correct must be booleans'),
        ((TWO, HITS), {"confidence": 1.0}, r"confidence is 1.0, n_resamples 1000: in \(0, 1\)"),
        ((TWO, HITS), {"n_resamples": 0}, "n_resamples 0"),
        ((TWO, HITS), {"clusters": [1]}, r"clusters has shape \(1,\): \(2,\) needed"),
        ((TWO, HITS), {"clusters": [1.0, float("nan")]}, "clusters is NaN in 1 rows: 1"),
        ((TWO, HITS), {"clusters": np.array(["x", None])}, "clusters is NaN in 1 rows: 1"),
        ((TWO, HITS), {"clusters": ["x", "x"]}, "all examples are in one cluster"),
        (({"a": [0.1]}, [True]), {}, "one example cannot be resampled"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_is_refused(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare(*arguments, **options)
