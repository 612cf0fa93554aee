"""Mixing predictions: by hand, by its properties, and what an ensemble is for."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from revar.cli import run
from revar.commands.mixtures import evaluate_ensemble
from revar.data.source import Part, Source
from revar.ensembles import FITTED, combine, mix
from revar.errors import InputError
from revar.evaluation import evaluate
from revar.metrics import auarc
from revar.predictions import Predictions
from revar.scores import available, uncertainty
from revar.scores.softmax import softmax, softmax_entropy
from support.problems import blobs, fit
from support.properties import PROPERTY

NAMES = {
    "ensemble_softmax",
    "ensemble_entropy",
    "ensemble_mutual_information",
    "ensemble_disagreement",
}


def of_probabilities(*rows: list[float], **other: Any) -> Predictions:
    # A constant added to logits changes nothing.
    logits = np.log(np.array(rows)) + 1.5
    return Predictions(index=np.arange(len(rows)), logits=logits, **other)


def entropy(*p: float) -> float:
    return -sum(q * math.log(q) for q in p)


def random_members(seed: int, count: int, n: int = 8, n_classes: int = 4) -> list[Predictions]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, n_classes, n)
    return [
        Predictions(
            index=np.arange(n),
            logits=(4 * generator.standard_normal((n, n_classes))).astype(np.float32),
            labels=labels,
        )
        for _ in range(count)
    ]


# Arithmetic ------------------------------------------------------------------------------------


def test_two_members_by_hand() -> None:
    # Means (0.6, 0.3, 0.1) and (0.35, 0.35, 0.3).
    one = of_probabilities([0.8, 0.1, 0.1], [0.5, 0.2, 0.3])
    two = of_probabilities([0.4, 0.5, 0.1], [0.2, 0.5, 0.3])
    found = combine([one, two])
    np.testing.assert_allclose(found.probabilities, [[0.6, 0.3, 0.1], [0.35, 0.35, 0.3]])
    scores = {name: values.tolist() for name, values in found.scores.items()}
    assert set(scores) == NAMES
    odds = [math.log(0.4 / 0.6), math.log(0.65 / 0.35)]
    assert scores["ensemble_softmax"] == pytest.approx(odds)
    whole = [entropy(0.6, 0.3, 0.1), entropy(0.35, 0.35, 0.3)]
    assert scores["ensemble_entropy"] == pytest.approx(whole)
    expected = [
        (entropy(0.8, 0.1, 0.1) + entropy(0.4, 0.5, 0.1)) / 2,
        entropy(0.5, 0.2, 0.3),
    ]
    information = [w - e for w, e in zip(whole, expected, strict=True)]
    assert scores["ensemble_mutual_information"] == pytest.approx(information)
    # One of two disagrees with the ensemble in each row; 1 - p is 0.4 and 0.65.
    assert scores["ensemble_disagreement"] == pytest.approx([1.4 / 2, 1.65 / 2])


def test_disagreement_counts_members_first_and_breaks_ties_by_the_mean() -> None:
    # Nobody against, sure; nobody against, unsure; one of three against, though the mean is surer.
    found = combine(
        [
            of_probabilities([0.99, 0.01], [0.51, 0.49], [0.999, 0.001]),
            of_probabilities([0.99, 0.01], [0.51, 0.49], [0.999, 0.001]),
            of_probabilities([0.99, 0.01], [0.51, 0.49], [0.49, 0.51]),
        ]
    )
    sure, unsure, contested = found.scores["ensemble_disagreement"]
    assert sure < unsure < contested
    assert found.scores["ensemble_softmax"][2] < found.scores["ensemble_softmax"][1]
    assert int(3 * unsure) == 0
    assert int(3 * contested) == 1


def test_an_ensemble_of_one_is_its_member() -> None:
    member = random_members(0, 1)[0]
    found = combine([member])
    np.testing.assert_allclose(found.scores["ensemble_softmax"], softmax(member))
    np.testing.assert_allclose(found.scores["ensemble_entropy"], softmax_entropy(member))
    np.testing.assert_allclose(found.scores["ensemble_mutual_information"], 0, atol=1e-12)
    order = np.argsort(found.scores["ensemble_disagreement"])
    assert np.array_equal(order, np.argsort(softmax(member)))
    assert np.array_equal(found.predicted, member.predicted)
    assert found.labels is member.labels


@PROPERTY
@given(st.integers(0, 10_000), st.integers(2, 6), st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(seed: int, count: int, shuffler: Any) -> None:
    members = random_members(seed, count)
    found = combine(members)
    shuffler.shuffle(members)
    again = combine(members)
    np.testing.assert_allclose(found.logits, again.logits, rtol=1e-10, atol=1e-10)
    for name in NAMES:
        np.testing.assert_allclose(found.scores[name], again.scores[name], rtol=1e-9, atol=1e-9)


@PROPERTY
@given(st.integers(0, 10_000), st.integers(1, 5))
def test_bounds(seed: int, count: int) -> None:
    members = random_members(seed, count)
    found = combine(members)
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0)
    information = found.scores["ensemble_mutual_information"]
    # A member has one of C classes to tell, and there are K members to tell apart.
    assert (information >= 0).all()
    assert (information <= math.log(min(count, 4)) + 1e-9).all()
    assert (found.scores["ensemble_entropy"] <= math.log(4) + 1e-9).all()
    disagreement = found.scores["ensemble_disagreement"]
    # The mean may predict a class that no member predicts: then all of them disagree.
    assert ((disagreement > 0) & (disagreement < 1 + 1 / count)).all()
    together = combine(members * 2)
    for name in NAMES - {"ensemble_disagreement"}:
        np.testing.assert_allclose(together.scores[name], found.scores[name], atol=1e-9)


def test_confident_members_do_not_tie() -> None:
    logits = [[1e4, 0.0, 0.0], [1.1e4, 0.0, 0.0], [60.0, 0.0, 0.0]]
    members = [Predictions(index=np.arange(3), logits=np.array(logits, np.float32))] * 2
    found = combine(members)
    assert all(np.isfinite(values).all() for values in found.scores.values())
    first, second, third = found.scores["ensemble_softmax"]
    assert second < first < third < 0


def test_an_empty_set_stays_empty() -> None:
    empty = Predictions(index=np.arange(0), logits=np.zeros((0, 3)))
    found = combine([empty, empty])
    assert len(found) == 0
    assert set(found.scores) == NAMES


# Refusals --------------------------------------------------------------------------------------


def test_members_that_do_not_belong_together_are_refused() -> None:
    base = of_probabilities([0.8, 0.2], [0.4, 0.6], labels=np.array([0, 1]))
    others = {
        "different examples": Predictions(
            index=np.array([1, 0]), logits=base.logits, labels=base.labels
        ),
        "different labels": of_probabilities([0.8, 0.2], [0.4, 0.6], labels=np.array([0, 0])),
        "none in the other": of_probabilities([0.8, 0.2], [0.4, 0.6]),
        "numbers of classes": of_probabilities([0.8, 0.1, 0.1], [0.4, 0.3, 0.3]),
    }
    for reason, other in others.items():
        with pytest.raises(InputError, match=reason) as caught:
            combine([base, base, other])
        assert "members 1 and 3" in str(caught.value)
    with pytest.raises(InputError, match="at least one"):
        combine([])
    with pytest.raises(InputError, match="nothing to mix"):
        mix([])


# Figures ---------------------------------------------------------------------------------------


def test_figures_have_the_ensembles_default_and_no_fusion() -> None:
    found = combine(random_members(1, 3, n=60))
    figures = evaluate(found, FITTED)
    assert figures["default_score"] == "ensemble_softmax"
    assert set(figures["scores"]) == NAMES | {"softmax", "softmax_entropy", "own"}
    assert "fused" not in available(found, FITTED)
    # The softmax response of the mean is what the ensemble is ranked by.
    np.testing.assert_allclose(
        uncertainty(found, "softmax", FITTED), found.scores["ensemble_softmax"]
    )


def test_predictions_of_an_ensemble_are_kept_like_any_others() -> None:
    found = combine(random_members(2, 3))
    again = Predictions.from_bytes(found.to_bytes(), "file")
    assert np.array_equal(again.logits, found.logits)
    assert set(again.scores) == NAMES


# Behaviour -------------------------------------------------------------------------------------


def noisy(seed: int) -> Source:
    """Overlapping clusters, 30 % of the training labels wrong."""
    generator = np.random.default_rng(10 + seed)
    x, y = blobs(400, seed=10 + seed, spread=0.9)
    wrong = generator.random(len(y)) < 0.3
    y = np.where(wrong, (y + generator.integers(1, 3, len(y))) % 3, y)
    return Source(Part(x, y), tests={"test": Part(*blobs(1500, seed=100 + seed, spread=0.9))})


@pytest.mark.parametrize("seed", [0, 1])
def test_an_ensemble_ranks_better_than_its_members(seed: int) -> None:
    fitted = [
        fit("erm", noisy(seed), epochs=25, seed=s, batch_size=64, test_passes=0) for s in range(3)
    ]
    members = [model.predictions["test"] for model in fitted]
    alone = [auarc(softmax(member), member.correct()) for member in members]
    together = combine(members)
    found = auarc(uncertainty(together, "ensemble_softmax", FITTED), together.correct())
    assert found > np.mean(alone) + 0.005, (found, alone)
    assert found >= max(alone)


# The command line ------------------------------------------------------------------------------


def save_table(path: Path, seed: int = 0, n_classes: int = 3) -> None:
    """Clusters with a test set that does not depend on the seed."""
    (x, y), (x_test, y_test) = blobs(150, n_classes, seed), blobs(60, n_classes, seed=9)
    np.savez(path, x=x, y=y, x_test=x_test, y_test=y_test)


def train(data: Path, out: Path, seed: int) -> None:
    command = ["train", "--data", str(data), "--out", str(out), "--seed", str(seed)]
    assert run([*command, "--method", "erm", "--epochs", "2"]) == 0


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``a`` and ``b`` of one table, ``c`` of one with another test set, ``d`` of more classes."""
    folder = tmp_path_factory.mktemp("runs")
    save_table(folder / "data.npz")
    save_table(folder / "more.npz", n_classes=4)
    x, y = blobs(150)
    x_test, y_test = blobs(60, seed=8)
    np.savez(folder / "other.npz", x=x, y=y, x_test=x_test, y_test=y_test)
    train(folder / "data.npz", folder / "a", 0)
    train(folder / "data.npz", folder / "b", 1)
    train(folder / "other.npz", folder / "c", 0)
    train(folder / "more.npz", folder / "d", 0)
    return folder


def test_evaluate_with_other_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["evaluate", str(runs / "a"), "--with", str(runs / "b"), "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["n"] == 60
    assert figures["default_score"] == "ensemble_softmax"
    assert set(figures["scores"]) >= NAMES
    assert run(["evaluate", str(runs / "b"), "--with", str(runs / "a")]) == 0
    assert "test, ensemble of 2" in capsys.readouterr().out
    again = evaluate_ensemble([runs / "b", runs / "a"])
    assert again.figures["scores"]["ensemble_softmax"]["auarc"] == pytest.approx(
        figures["scores"]["ensemble_softmax"]["auarc"]
    )


def test_members_of_another_test_split_do_on_common_data(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = [str(runs / "a"), "--with", str(runs / "c")]
    assert run(["evaluate", *members]) == 2
    assert "another test split" in capsys.readouterr().err
    x, y = blobs(45, seed=77)
    np.savez(runs / "later.npz", x=x, y=y)
    assert run(["evaluate", *members, "--on", str(runs / "later.npz"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 45


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--with", "d"], "other classes"),
        (["--with", "b", "--with", "a"], "given twice"),
        (["--with", "nowhere"], "no run at"),
        (["--with", "b", "--augmentations", "3"], "choose one"),
    ],
)
def test_refusals_on_the_command_line(
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(runs)
    assert run(["evaluate", "a", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1


def frame(n: int, seed: int) -> str:
    """A CSV file with gaps, which runs of different seeds fill by different medians."""
    generator = np.random.default_rng(seed)
    x: NDArray[np.float64] = generator.standard_normal(n)
    lines = [f"{'' if i % 5 == 0 else f'{v:.4f}'},{int(v > 0)}" for i, v in enumerate(x)]
    return "\n".join(["x,y", *lines]) + "\n"


def test_runs_that_encode_a_table_differently_are_one_ensemble(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, later = tmp_path / "data.csv", tmp_path / "later.csv"
    data.write_text(frame(80, 0))
    later.write_text(frame(40, 1))
    for seed in range(2):
        command = ["train", "--data", str(data), "--target", "y", "--seed", str(seed)]
        out = ["--out", str(tmp_path / f"{seed}"), "--method", "erm", "--epochs", "2"]
        assert run([*command, *out]) == 0
    both = [str(tmp_path / "0"), "--with", str(tmp_path / "1"), "--on", str(later)]
    capsys.readouterr()
    assert run(["evaluate", *both, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 40
