"""Predictions: one row per example, everything that scores and metrics need, and no network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from scipy.special import log_softmax

from revar.errors import InputError

Floats = NDArray[np.floating]


@dataclass(frozen=True, slots=True, kw_only=True)
class Predictions:
    """What a run says about the examples of one set.

    Attributes:
        index: [n] positions in the data the set was taken from.
        logits: [n, C] of the deterministic pass.
        labels: [n] class numbers, or none.
        dropout_mean: [n, C] mean probabilities of the dropout passes, if there were any.
        dropout_variance: [n] equation 5.
        dropout_entropy: [n] entropy of the mean, kept apart because it needs more digits.
        dropout_expected_entropy: [n] mean entropy of the passes.
        columns: [n] each; what the method adds, such as ``uscore`` (the logit of g) and, for
            training points, ``weight``.
        scores: [n] each; uncertainty that needs no further treatment, higher is rejected first,
            such as what a calibrator adds.
        split: what the examples served as: ``train``, ``meta``, ``tune``, ``calibration``,
            ``test``, ``on-...``; nothing where nobody said.
    """

    index: NDArray[np.int64]
    logits: Floats
    labels: NDArray[np.int64] | None = None
    dropout_mean: Floats | None = None
    dropout_variance: Floats | None = None
    dropout_entropy: Floats | None = None
    dropout_expected_entropy: Floats | None = None
    columns: Mapping[str, Floats] = field(default_factory=dict)
    scores: Mapping[str, Floats] = field(default_factory=dict)
    split: str = ""

    def __len__(self) -> int:
        return len(self.logits)

    @property
    def log_probabilities(self) -> NDArray[np.float64]:
        """[n, C] log softmax, in float64."""
        result: NDArray[np.float64] = log_softmax(self.logits.astype(np.float64), axis=1)
        return result

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """[n, C] softmax of the deterministic pass."""
        result: NDArray[np.float64] = np.exp(self.log_probabilities)
        return result

    @property
    def predicted(self) -> NDArray[np.int64]:
        """[n] class numbers: the argmax of the deterministic pass."""
        numbers: NDArray[np.int64] = self.logits.argmax(axis=1)
        return numbers

    def correct(self, *, by_dropout_mean: bool = False) -> NDArray[np.bool_]:
        """[n] whether the prediction is the label.

        Args:
            by_dropout_mean: predict by the mean of the passes (the column ``mcd``) instead.

        Raises:
            InputError: the set has no labels.
        """
        if self.labels is None:
            raise InputError("these examples have no labels, so nothing can be right or wrong")
        predicted = self.predicted
        if by_dropout_mean:
            if self.dropout_mean is None:
                raise InputError("these predictions hold no dropout passes")
            predicted = self.dropout_mean.argmax(axis=1)
        right: NDArray[np.bool_] = predicted == self.labels
        return right

    def to_bytes(self) -> bytes:
        """As the content of a ``.safetensors`` file."""
        arrays = {f"{_COLUMN}{name}": values for name, values in self.columns.items()}
        arrays |= {f"{_SCORE}{name}": values for name, values in self.scores.items()}
        for name in _ARRAYS:
            value = getattr(self, name)
            if value is not None:
                arrays[name] = value
        # One key at most: safetensors writes several in an order that changes.
        metadata = {"split": self.split} if self.split else None
        whole = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
        return save(whole, metadata=metadata)

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> Predictions:
        """Read what `to_bytes` wrote.

        Args:
            data: the content of the file.
            path: of the file, to be named if it is not one of ours.

        Raises:
            InputError: it is not.
        """
        try:
            arrays = load(data)
        except SafetensorError as error:
            raise InputError(f'"{path}" is damaged: {error}') from error
        for name in ("index", "logits"):
            if name not in arrays:
                raise InputError(f'"{path}" holds no predictions: "{name}" is missing')
        if len({len(value) for value in arrays.values()}) != 1:
            raise InputError(f'"{path}" is damaged: its columns have different lengths')
        return cls(
            columns=_named(_COLUMN, arrays),
            scores=_named(_SCORE, arrays),
            split=_metadata(data).get("split", ""),
            **{name: arrays[name] for name in _ARRAYS if name in arrays},
        )


def together(parts: Sequence[Predictions], split: str) -> Predictions:
    """Predictions on several splits as those on one; what some of them lack is left out.

    Args:
        parts: of one model, one or more; positions stay those within each.
        split: their common name.
    """

    def joined(arrays: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
        shared = [name for name in arrays[0] if all(name in other for other in arrays[1:])]
        return {name: np.concatenate([each[name] for each in arrays]) for name in shared}

    given = [
        {name: getattr(part, name) for name in _ARRAYS if getattr(part, name) is not None}
        for part in parts
    ]
    return Predictions(
        columns=joined([part.columns for part in parts]),
        scores=joined([part.scores for part in parts]),
        split=split,
        **joined(given),
    )


def _named(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(prefix): value
        for name, value in arrays.items()
        if name.startswith(prefix)
    }


def _metadata(data: bytes) -> dict[str, str]:
    """The text a safetensors file carries, which `load` does not return.

    The file begins with the length of its header (8 bytes, little-endian) and the header, JSON.
    """
    end = 8 + int.from_bytes(data[:8], "little")
    found: dict[str, str] = json.loads(data[8:end]).get("__metadata__") or {}
    return found


_COLUMN, _SCORE = "column.", "score."
_ARRAYS = (
    "index",
    "logits",
    "labels",
    "dropout_mean",
    "dropout_variance",
    "dropout_entropy",
    "dropout_expected_entropy",
)
