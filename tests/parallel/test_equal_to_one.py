"""P processes that share every batch end with the weights of one process, to rounding."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from revar.parallel import World
from revar.registry import METHODS
from support.gpu import needs_gpu
from support.ranks import Case, train_cases

FAST = {"batch_size": "33", "test_passes": "2"}
BILEVEL = {**FAST, "interval": "3", "passes": "3", "meta_batch": "13", "meta_fraction": "0.2"}
EVERYWHERE = {"dropout_placement": "everywhere"}
SHARED = {"candidates": "train", "update": "linear", "shares_gradient": "true",
          "aligned_layers": "upper"}  # fmt: skip
TABLE: dict[str, tuple[str, dict[str, str]]] = {
    "erm": ("erm", FAST),
    "erm-everywhere": ("erm", {**FAST, **EVERYWHERE}),
    "entropy": ("entropy", FAST),
    "vr": ("vr", {**FAST, "passes": "3"}),
    "vr-everywhere": ("vr", {**FAST, **EVERYWHERE, "passes": "3", "prediction": "dropout_mean"}),
    "vr-pooled": ("vr", {**FAST, "passes": "3", "unlabelled": "pooled", "unlabelled_from": "0.5"}),
    "sat": ("sat", {**FAST, "pretrain": "0.3"}),
    "gamblers": ("gamblers", FAST),
    "selectivenet": ("selectivenet", FAST),
    "mmce": ("mmce", FAST),
    "brier": ("brier", FAST),
    "flsd53": ("flsd53", FAST),
    "adafocal": ("adafocal", FAST),
    "mbr": ("mbr", FAST),
    "revar": ("revar", BILEVEL),
    "revar-everywhere": ("revar", {**BILEVEL, **EVERYWHERE}),
    "revar-shared": ("revar", {**BILEVEL, **SHARED}),
    "revar-only": ("revar", {**BILEVEL, "unlabelled": "only", "unlabelled_from": "0.4"}),
    "revar-pooled": ("revar", {**BILEVEL, "unlabelled": "pooled", "unlabelled_from": "0.4"}),
    "revar-paper": ("revar-paper", {**FAST, "interval": "3", "passes": "3"}),
    "revar-differences": ("revar", {**BILEVEL, "engine": "finite_difference"}),
    "ibr": ("ibr", {**FAST, "interval": "3", "passes": "3"}),
    "trajectory": ("trajectory", {**FAST, "start": "0.3"}),
    "mwn": ("mwn", FAST),
    "l2r": ("l2r", {**FAST, "variance_weight": "1", "passes": "3"}),
    "fsr": ("fsr", {**FAST, "dictionary_batch": "10"}),
    "fsr-full": ("fsr-full", {**FAST, "dictionary_batch": "10"}),
    "history": ("history", {**FAST, "start": "0.3"}),
    "revar-recompute": ("revar", {**BILEVEL, **EVERYWHERE, "recompute": "true"}),
    "history-registered": (
        "history", {**FAST, "start": "0.3", "source": "evaluation", "register": "true"},
    ),
}  # fmt: skip
IMAGES: dict[str, tuple[str, dict[str, str]]] = {
    "images-erm": ("erm", {**FAST, **EVERYWHERE, "augment": "shift+flip"}),
    "images-trajectory": ("trajectory", {**FAST, "start": "0.3", "augment": "shift+flip"}),
    "images-recompute": ("erm", {**FAST, **EVERYWHERE, "recompute": "true"}),
    "images-paper": ("revar-paper", {**FAST, "interval": "3", "passes": "2"}),
}
THREE = [
    "erm-everywhere",
    "sat",
    "revar",
    "revar-pooled",
    "revar-paper",
    "trajectory",
    "mwn",
    "fsr",
    "fsr-full",
    "history-registered",
    "images-erm",
]
"""With three processes 33 rows are even and 32 are not; with two it is the other way round."""


CASES: dict[str, Case] = {
    **{name: ("table", *given) for name, given in TABLE.items()},
    **{name: ("images", *given) for name, given in IMAGES.items()},
}


SHARED_ROWS = {
    "sat": {"memory.belief"},
    "fsr": {"memory.dictionary.values"},
    "fsr-full": {"memory.dictionary.values", "memory.pseudo_labels.logits"},
    "trajectory": {"memory.sums", "memory.targets"},
    "history": {"memory.of_train", "memory.of_meta", "memory.of_unlabelled"},
}
"""What methods remember of each example."""


def test_every_method_is_among_the_cases() -> None:
    assert {method for _, method, _ in CASES.values()} == {entry.name for entry in METHODS}


def assert_equal_to_rounding(name: str, one: Path, several: Path, count: int) -> None:
    """What is trained and remembered, and the predictions of the first.

    At the end the first process has what all remember of examples, and the others their rows of it.
    """
    alone = load_file(one / f"{name}-0.safetensors")
    log = json.loads((one / f"{name}-0.json").read_text())
    for rank in range(count):
        found = load_file(several / f"{name}-{rank}.safetensors")
        parts = {k.removeprefix("part ") for k in found if k.startswith("part ")}
        assert parts == (SHARED_ROWS.get(CASES[name][1], set()) if rank else set())
        expected = {k: v for k, v in alone.items() if k.removeprefix("weights ") not in parts}
        for part in parts:
            table = alone[f"weights {part}"]
            expected[f"part {part}"] = table[list(World(rank, count).span(len(table)))]
        kept = {k for k in expected if rank == 0 or k.startswith(("weights ", "part "))}
        assert found.keys() == kept
        for key in kept:
            if key.startswith("weights of the generator"):
                assert found[key].equal(expected[key]), "the generators are not in step"
                continue
            # Of float64, but for predictions, which are stored in float32.
            double = key.startswith(("weights ", "part ", "progress "))
            np.testing.assert_allclose(
                found[key], expected[key], rtol=1e-7 if double else 1e-4,
                atol=1e-9 if double else 1e-5, err_msg=f"{key} of process {rank}",
            )  # fmt: skip
        for line, other in zip(
            log, json.loads((several / f"{name}-{rank}.json").read_text()), strict=True
        ):
            assert {k: v for k, v in line.items() if v is not None} == pytest.approx(
                {k: v for k, v in other.items() if v is not None}, rel=1e-7
            )


def assert_processes_equal_one(
    folder: Path, names: dict[int, list[str]], device: str = "cpu", seconds: float = 150
) -> None:
    """Train by one process and by several, and compare all that was trained."""
    wrong = []
    for count in (1, *names):
        (folder / str(count)).mkdir()
        chosen = {name: CASES[name] for name in names.get(count, CASES)}
        train_cases(chosen, count, folder / str(count), device, seconds)
    for count, compared in names.items():
        for name in compared:
            try:
                assert_equal_to_rounding(name, folder / "1", folder / str(count), count)
            except AssertionError as error:
                wrong.append(f"{name} on {count}: {error}")
    assert not wrong, "\n".join(wrong)


def test_processes_equal_one(tmp_path: Path) -> None:
    """One test, so that what one process trains is trained once, however tests are shared out."""
    assert_processes_equal_one(tmp_path, {2: list(CASES), 3: THREE})


@needs_gpu
def test_processes_on_one_gpu_equal_one(tmp_path: Path) -> None:
    """By gloo: NCCL refuses to share a GPU."""
    assert_processes_equal_one(tmp_path, {2: list(CASES), 3: THREE}, "cuda:0", seconds=400)
