"""``--label-noise``: what is flipped, what stays clean, and what is remembered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from revar.cli import run
from revar.data.digits import digits
from revar.data.noisy import LabelNoise
from revar.data.source import Part, Source
from revar.errors import InputError

Capture = pytest.CaptureFixture[str]


def noisy(text: str, source: Source, *, clean_meta: bool = False, seed: int = 0) -> Source:
    noise = LabelNoise.parse(text, clean_meta=clean_meta)
    return noise.added_to(source, meta_share=0.1, seed=seed)


def share(one: Part, two: Part) -> float:
    assert one.y is not None
    assert two.y is not None
    return float(np.mean(one.y != two.y))


@pytest.mark.parametrize("kind", ["symmetric", "asymmetric", "instance"])
def test_training_labels_are_flipped_and_test_labels_are_not(kind: str) -> None:
    clean = digits()
    got = noisy(f"{kind}:0.4", clean)
    assert share(got.train, clean.train) == pytest.approx(0.4, abs=4 * np.sqrt(0.24 / 1198))
    assert share(got.tests["test"], clean.tests["test"]) == 0
    np.testing.assert_array_equal(got.train.x, clean.train.x)
    assert got.meta is None
    assert share(noisy(f"{kind}:0.4", clean).train, got.train) == 0
    assert share(noisy(f"{kind}:0.4", clean, seed=1).train, got.train) > 0.2


def test_a_clean_meta_set_is_taken_off_before_the_noise() -> None:
    clean = digits()
    got = noisy("symmetric:0.4", clean, clean_meta=True)
    assert got.meta is not None
    assert len(got.meta) == pytest.approx(120, abs=10)
    assert len(got.train) + len(got.meta) == len(clean.train)
    true = {
        image.tobytes(): label for image, label in zip(clean.train.x, _labels(clean), strict=True)
    }
    wrong = {
        name: np.mean([true[x.tobytes()] != y for x, y in zip(part.x, part.y, strict=True)])
        for name, part in (("train", got.train), ("meta", got.meta))
        if part.y is not None
    }
    assert wrong["meta"] == 0
    assert wrong["train"] == pytest.approx(0.4, abs=4 * np.sqrt(0.24 / 1078))


def _labels(source: Source) -> list[int]:
    assert source.train.y is not None
    listed: list[int] = source.train.y.tolist()
    return listed


def test_labels_of_text_and_tables_with_gaps_are_flipped_too() -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": generator.normal(50, 10, 400), "city": generator.choice(["a", "b"], 400)}
    )
    frame.loc[3, "age"] = np.nan
    y = np.where(generator.random(400) < 0.5, "sick", "well")
    source = Source(Part(frame, y), meta=Part(frame[:5], y[:5]))
    for kind in ("symmetric", "asymmetric", "instance"):
        got = noisy(f"{kind}:0.3", source)
        assert set(got.train.y if got.train.y is not None else ()) == {"sick", "well"}
        assert share(got.train, source.train) == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / 400))
        assert got.meta is source.meta


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("symmetric", "not KIND:RATE, such as symmetric:0.4"),
        ("symetric:0.4", 'unknown label noise "symetric": did you mean "symmetric"'),
        ("symmetric:", r"rate must be in \(0, 1\)"),
        ("symmetric:much", r"rate must be in \(0, 1\)"),
        ("symmetric:0", r"rate must be in \(0, 1\)"),
        ("instance:1.2", r"rate must be in \(0, 1\)"),
        ("instance:nan", r"rate must be in \(0, 1\)"),
    ],
)
def test_what_is_no_noise_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LabelNoise.parse(text)


def test_noise_that_does_not_suit_the_data_is_refused() -> None:
    x, y = np.zeros((40, 2)), np.arange(40) % 3
    with pytest.raises(InputError, match="for the classes of CIFAR-10, not for 3"):
        noisy("asymmetric-cifar10:0.4", Source(Part(x, y)))
    with pytest.raises(InputError, match="meta set of its own"):
        noisy("symmetric:0.4", Source(Part(x, y), meta=Part(x, y)), clean_meta=True)
    with pytest.raises(InputError, match="meta_fraction above 0"):
        LabelNoise.parse("symmetric:0.4", clean_meta=True).added_to(
            Source(Part(x, y)), meta_share=0, seed=0
        )
    with pytest.raises(InputError, match="no labels"):
        noisy("symmetric:0.4", Source(Part(x)))
    pairs = noisy("asymmetric-cifar10:0.4", digits())
    assert share(pairs.train, digits().train) == pytest.approx(0.2, abs=0.05)


# --- the command line

TRAIN = ["train", "--data", "digits", "--method", "erm", "--epochs", "1", "--out", "run"]
TRAIN += ["--set", "test_passes=0"]
SPLIT = ["--set", "meta_fraction=0.1"]
"""So that runs with and without a clean meta set differ in nothing else."""


def test_noise_is_an_option_of_train_and_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*TRAIN, *SPLIT, "--label-noise", "symmetric:0.40", "--clean-meta"]) == 0
    data = json.loads(Path("run/recipe.json").read_text())["data"]
    assert data["added_label_noise"] == "symmetric:0.4 with a clean meta set"
    capsys.readouterr()
    # A clean meta set is one without saying so, for a method that does not learn from it too.
    assert run([*TRAIN, "--label-noise", "symmetric:0.4", "--clean-meta", "--resume"]) == 0
    for other in (["--label-noise", "symmetric:0.3", "--clean-meta"], []):
        capsys.readouterr()
        assert run([*TRAIN, *SPLIT, *other, "--resume"]) == 2
        assert "its data.added_label_noise is 'symmetric:0.4 with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--label-noise", "symmetric"], "not KIND:RATE"),
        (["--label-noise", "blue:0.3"], 'unknown label noise "blue"'),
        (["--clean-meta"], "--clean-meta needs --label-noise"),
    ],
)
def test_bad_noise_is_one_line_and_leaves_nothing(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*TRAIN, *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
