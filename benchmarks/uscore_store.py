"""Finished runs of the study: one small file each, which opens a set only when it is asked for.

<folder>/<way>-<seed>.npz
    about                    JSON: way, recipe, time, versions
    <set>/figures            JSON: score to figure to value
    <set>/correct            [n] of the deterministic prediction
    <set>/correct/mcd        [n] of the prediction by the mean of the dropout passes
    <set>/correct/tta_softmax       [n] of that by the mean over augmented copies, if it was asked
    <set>/score/<name>       [n] uncertainty, float32
    <set>/patients           [n] what must be resampled together, if anything
    <set>/labels, <set>/log_probabilities       of members of ensembles, float16
"""

from __future__ import annotations

import json
import math
import os
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from revar.errors import InputError, UndefinedMetricWarning
from revar.metrics import curve_figures, ece
from uscore_tasks import AUGMENTED

FIGURES = ("auarc", "normalised_auarc", "augrc", "failure_auroc", "accuracy")
_OTHERS = 200
"""More classes than any data set of the study has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """What a run said of one set.

    Attributes:
        correct: [n] whether the prediction is the label.
        scores: [n] uncertainty each, by name.
        correct_mcd: [n] the same of predictions by the mean of the dropout passes.
        correct_augmented: [n] the same by the mean over augmented copies, where they were asked;
            scores then have that of `AUGMENTED`, which goes with these predictions only.
        patients: [n] numbers.
        labels: [n] class numbers.
        log_probabilities: [n, C]
    """

    correct: NDArray[np.bool_]
    scores: Mapping[str, NDArray[np.floating]] = field(default_factory=dict)
    correct_mcd: NDArray[np.bool_] | None = None
    correct_augmented: NDArray[np.bool_] | None = None
    patients: NDArray[np.integer] | None = None
    labels: NDArray[np.integer] | None = None
    log_probabilities: NDArray[np.floating] | None = None

    def figures(self) -> dict[str, dict[str, float | None]]:
        """By score, ``mcd`` among them; ``None`` where one is undefined."""
        found = {
            name: _figures(values, self.correct)
            for name, values in self.scores.items()
            if name != AUGMENTED
        }
        if self.correct_mcd is not None:
            found["mcd"] = _figures(self.scores["dropout_entropy"], self.correct_mcd)
        if self.correct_augmented is not None:
            found[AUGMENTED] = _figures(self.scores[AUGMENTED], self.correct_augmented)
        return found


def _figures(values: NDArray[Any], correct: NDArray[np.bool_]) -> dict[str, float | None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        curve = curve_figures(values.astype(np.float32), correct)
    all_ = {**curve, "accuracy": float(correct.mean())}
    return {name: all_[name] if math.isfinite(all_[name]) else None for name in FIGURES}


def write_run(path: Path, about: Mapping[str, Any], sets: Mapping[str, Scored]) -> None:
    """Write one run; the file appears when it is whole, and a note of failure goes.

    Args:
        path: of the file.
        about: anything JSON can hold; ``own`` and ``default`` name scores.
        sets: by name.
    """
    arrays: dict[str, NDArray[Any]] = {"about": _packed(about)}
    for name, scored in sets.items():
        arrays[f"{name}/figures"] = _packed(scored.figures())
        arrays[f"{name}/correct"] = scored.correct
        if scored.correct_mcd is not None:
            arrays[f"{name}/correct/mcd"] = scored.correct_mcd
        if scored.correct_augmented is not None:
            arrays[f"{name}/correct/{AUGMENTED}"] = scored.correct_augmented
        for score, values in scored.scores.items():
            arrays[f"{name}/score/{score}"] = values.astype(np.float32)
        if scored.patients is not None:
            arrays[f"{name}/patients"] = scored.patients.astype(np.int32)
        if scored.labels is not None and scored.log_probabilities is not None:
            arrays[f"{name}/labels"] = scored.labels.astype(np.int16)
            arrays[f"{name}/log_probabilities"] = scored.log_probabilities.astype(np.float16)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    with beside.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    beside.replace(path)
    note(path).unlink(missing_ok=True)


def note(path: Path) -> Path:
    """Where the reason of a failed run is said."""
    return path.with_suffix(".txt")


def _packed(data: Mapping[str, Any]) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(data, sort_keys=True).encode(), dtype=np.uint8)


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        path: of its file.
    """

    path: Path

    @property
    def folder(self) -> str:
        """Of the task."""
        return self.path.parent.name

    @property
    def way(self) -> str:
        """How it was trained."""
        return self.path.stem.rpartition("-")[0]

    @property
    def seed(self) -> int:
        """Of data draws and run."""
        return int(self.path.stem.rpartition("-")[2])

    @cached_property
    def about(self) -> dict[str, Any]:
        """What `write_run` was told."""
        return self._json("about")

    @cached_property
    def sets(self) -> tuple[str, ...]:
        """Names of its sets; none of them is opened."""
        with zipfile.ZipFile(self.path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist()]
        return tuple(n.removesuffix("/figures") for n in names if n.endswith("/figures"))

    def figures(self, name: str) -> dict[str, dict[str, float | None]]:
        """Of every score on a set."""
        return self._json(f"{name}/figures")

    def named(self, score: str) -> str:
        """What ``own`` and ``default`` mean here."""
        return str(self.about[score]) if score in ("own", "default") else score

    def uncertainty(self, name: str, score: str) -> NDArray[np.float32]:
        """[n] on a set.

        Raises:
            InputError: the run has no such score.
        """
        score = self.named(score)
        # The same entropy, which goes with other predictions.
        stored = "dropout_entropy" if score == "mcd" else score
        return self._array(f"{name}/score/{stored}")

    def correct(self, name: str, score: str) -> NDArray[np.bool_]:
        """[n] whether the prediction that goes with a score is right."""
        score = self.named(score)
        by_mean = score in ("mcd", AUGMENTED)
        return self._array(f"{name}/correct/{score}" if by_mean else f"{name}/correct")

    def calibration_error(self, name: str, score: str = "softmax") -> float:
        """Expected calibration error of the softmax, or of its mean over copies, 15 bins.

        Probabilities are not kept, but both scores are the log-odds of the top class.
        """
        confidence = expit(-self.uncertainty(name, score).astype(float))
        # The metric takes whole distributions: what is left goes to many others in equal parts,
        # so that the first class is the predicted one.
        others = np.repeat((1 - confidence)[:, None] / _OTHERS, _OTHERS, axis=1)
        wrong = ~self.correct(name, score)
        return ece(np.column_stack([confidence, others]), wrong.astype(int))

    def patients(self, name: str) -> NDArray[np.int32] | None:
        """[n] numbers, where there are any."""
        return self._array(f"{name}/patients") if self._has(f"{name}/patients") else None

    def member(self, name: str) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """[n] labels and [n, C] logarithms of probabilities, where they were kept."""
        if not self._has(f"{name}/log_probabilities"):
            return None
        return self._array(f"{name}/labels"), self._array(f"{name}/log_probabilities")

    def _has(self, key: str) -> bool:
        with zipfile.ZipFile(self.path) as archive:
            return f"{key}.npy" in archive.namelist()

    def _array(self, key: str) -> NDArray[Any]:
        with np.load(self.path, allow_pickle=False) as arrays:
            if key not in arrays:
                raise InputError(f'"{self.path}" has no "{key}"')
            found: NDArray[Any] | bytes = arrays[key]
        if isinstance(found, bytes):
            raise InputError(f'"{self.path}" is damaged: "{key}" is no array')
        return found

    def _json(self, key: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._array(key).tobytes())
        return found


def runs_in(out: Path) -> Iterator[Run]:
    """All finished runs, in the order of their names."""
    for path in sorted(out.glob("*/*.npz")):
        if not path.name.startswith("."):
            yield Run(path)


PART_BYTES = 15 * 2**20 - 2**16
"""Of a part at most, with room for its list of files."""
_PARTS, _PACKED = "parts", "packed.txt"


def pack(out: Path, most: int) -> list[Path]:
    """Put finished runs, and notes of failures, that are in no earlier part into new ones.

    What was packed is listed in ``parts/packed.txt``; without that file all of it is packed again.
    Parts of an earlier call are removed.

    Args:
        out: of the study.
        most: parts; what does not fit waits for another call.
    """
    folder = out / _PARTS
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("part-*.zip"):
        old.unlink()
    listed = folder / _PACKED
    before = set(listed.read_text(encoding="utf-8").split("\n")) if listed.exists() else set()
    finished = [run.path for run in runs_in(out)]
    notes = sorted(path for path in out.glob("*/*.txt") if path.parent != folder)
    bins: list[list[Path]] = []
    room = 0
    for path in finished + notes:
        if str(path.relative_to(out)) in before and path.suffix == ".npz":
            continue
        size = path.stat().st_size + 512
        if size > room or not bins:
            if len(bins) == most:
                break
            bins.append([])
            room = PART_BYTES
        bins[-1].append(path)
        room -= size
    made = []
    for number, paths in enumerate(bins):
        made.append(folder / f"part-{number}.zip")
        with zipfile.ZipFile(made[-1], "w", zipfile.ZIP_STORED) as archive:
            for path in paths:
                archive.write(path, path.relative_to(out).as_posix())
    packed = [str(path.relative_to(out)) for paths in bins for path in paths]
    listed.write_text("\n".join(sorted(before | set(packed))), encoding="utf-8")
    return made


def unpack(files: list[Path], out: Path) -> tuple[int, int]:
    """Merge parts into a study; runs that are there already stay as they are.

    Returns:
        How many were new, and how many were there.

    Raises:
        InputError: a file is no part of a study, or damaged.
    """
    new = there = 0
    for file in files:
        try:
            with zipfile.ZipFile(file) as archive:
                if archive.testzip() is not None:
                    raise InputError(f'"{file}" is damaged: {archive.testzip()}')
                for name in archive.namelist():
                    inside = Path(name)
                    odd = len(inside.parts) != 2 or inside.parts[0] in ("..", "/")
                    if odd or inside.suffix not in (".npz", ".txt"):
                        raise InputError(f'"{file}" is no part of a study: it holds "{name}"')
                    target = out / inside
                    if target.exists() or (out / inside.with_suffix(".npz")).exists():
                        there += inside.suffix == ".npz"
                        continue
                    target.parent.mkdir(parents=True, exist_ok=True)
                    beside = target.with_name(f".{target.name}.new")
                    beside.write_bytes(archive.read(name))
                    beside.replace(target)
                    if inside.suffix == ".npz":
                        note(target).unlink(missing_ok=True)
                        new += 1
        except (OSError, zipfile.BadZipFile) as error:
            raise InputError(f'"{file}" is no part of a study: {error}') from error
    return new, there
