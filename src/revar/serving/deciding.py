"""Examples to decisions: what ``revar predict`` says, for one model that stays loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar import __version__, fields
from revar.data.frames import FrameInputs
from revar.devices import choose
from revar.model import Model
from revar.run import RunFolder
from revar.serving.inputs import FORMATS, Examples, reads_images, shape_of
from revar.serving.refusals import Refused

ABSTAIN = "abstain"
Rule = Literal["threshold", "answer everything", "abstain always"]
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Decisions:
    """What the model says about n examples.

    Attributes:
        predicted: [n] class numbers.
        probabilities: [n, C].
        uncertainty: [n] higher is less certain.
        accepted: [n] whether the label is given.
        defined: [n] false where the network overflowed; nothing else is known of these.
    """

    predicted: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    uncertainty: NDArray[np.float64]
    accepted: NDArray[np.bool_]
    defined: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.predicted)

    def __getitem__(self, rows: slice) -> Decisions:
        return Decisions(*(getattr(self, name)[rows] for name in self.__slots__))

    @classmethod
    def joined(cls, parts: list[Decisions]) -> Decisions:
        """One after another."""
        if len(parts) == 1:
            return parts[0]
        columns = ([getattr(part, name) for part in parts] for name in cls.__slots__)
        return cls(*(np.concatenate(column) for column in columns))


class Decider:
    """A run that was loaded to be asked.

    Attributes:
        model: the run's.
        name: of the run.
        identity: the first digits of `Model.digest`, which an export says in full; another
            threshold leaves it.
        score: that says when to abstain.
        rule: how a decision is made.
    """

    def __init__(self, model: Model, *, name: str, identity: str) -> None:
        self.model, self.name, self.identity = model, name, identity
        stored = model.threshold
        self.score = model.fitted.named(stored.score if stored else None)
        # Dropout passes cost as much as they do in training: only where the score reads them.
        self.wanted = model.needs(self.score)
        self.rule: Rule = "answer everything"
        if stored is not None:
            self.rule = "abstain always" if stored.threshold is None else "threshold"

    @classmethod
    def of(cls, run: Path, device: str = "auto") -> Decider:
        """Load a run.

        Raises:
            InputError: no finished run, damaged, or no such device.
        """
        folder = RunFolder(run)
        model = folder.load(device=choose(device))
        decider = cls(model, name=run.resolve().name, identity=model.digest[:_DIGITS])
        # The first pass loads and allocates; no client should wait for that.
        decider.decide(torch.zeros(1, *model.inputs.shape))
        return decider

    @property
    def threshold(self) -> float | None:
        """Accept iff the uncertainty is at most this; ``None`` for the other two rules."""
        stored = self.model.threshold
        return None if stored is None else stored.threshold

    def decide(self, x: Tensor) -> Decisions:
        """Decisions on stored values, row by row independent of the others.

        A row for which the network overflows would spoil figures of the others, so it is asked
        for alone and left undefined.
        """
        predictions = self.model.predict_encoded(x, wanted=self.wanted)
        whole = np.asarray(np.isfinite(predictions.logits).all(axis=1))
        if not whole.all():
            return self._mend(x, whole)
        uncertainty = self.model.uncertainty(predictions, self.score)
        defined = np.isfinite(uncertainty)
        accepted = defined.copy()
        if self.model.threshold is not None and defined.any():
            accepted[defined] = self.model.threshold.accept(uncertainty[defined])
        predicted, probabilities = self.model.answers(predictions, self.score)
        return Decisions(predicted, probabilities, uncertainty, accepted, defined)

    def _mend(self, x: Tensor, whole: NDArray[np.bool_]) -> Decisions:
        n, c = len(x), len(self.model.classes)
        found = Decisions(
            np.zeros(n, dtype=np.int64), np.full((n, c), np.nan), np.full(n, np.nan),
            np.zeros(n, dtype=bool), np.zeros(n, dtype=bool),
        )  # fmt: skip
        if whole.any():
            some = self.decide(x[np.flatnonzero(whole)])
            for name in Decisions.__slots__:
                getattr(found, name)[whole] = getattr(some, name)
        return found

    def answers(self, examples: Examples, decisions: Decisions) -> list[dict[str, Any]]:
        """One JSON object per example.

        Raises:
            Refused: 422, the network has no finite answer to one of them.
        """
        if not decisions.defined.all():
            name = examples.names[int(np.argmin(decisions.defined))]
            msg = f'the model has no finite answer to "{name}": its values are too extreme'
            raise Refused(422, msg)
        labels, threshold = self.model.classes.names, self.threshold
        return [
            {
                "input": name,
                "label": labels[number] if accepted else ABSTAIN,
                "accepted": accepted,
                "uncertainty": uncertainty,
                "threshold": threshold,
                "probabilities": dict(zip(labels, row, strict=True)),
                "model": self.identity,
            }
            for name, number, row, uncertainty, accepted in zip(
                examples.names,
                decisions.predicted.tolist(),
                decisions.probabilities.tolist(),
                decisions.uncertainty.tolist(),
                decisions.accepted.tolist(),
                strict=True,
            )
        ]

    def describe(self) -> dict[str, Any]:
        """What ``/model`` says."""
        recipe, stored = self.model.recipe.to_json(), self.model.threshold
        note = "no threshold is set, so everything is answered: revar select RUN --on DATA first"
        return {
            "model": self.identity,
            "run": self.name,
            "revar": __version__,
            "method": recipe["method"]["name"],
            "backbone": recipe["backbone"],
            "classes": list(self.model.classes.names),
            "inputs": self._inputs(),
            "score": self.score,
            "rule": self.rule,
            "threshold": self.threshold,
            "note": note if stored is None else stored.describe(),
            "selection": None if stored is None else fields.to_json(stored),
            "device": str(self.model.device),
        }

    def _inputs(self) -> dict[str, Any]:
        inputs = self.model.inputs
        described: dict[str, Any] = {"row": shape_of(inputs), "images": reads_images(inputs)}
        if isinstance(inputs, FrameInputs):
            described["columns"] = [
                {
                    "name": column.name,
                    "type": "category" if column.median is None else "number",
                    "categories": list(column.categories),
                }
                for column in inputs.columns
            ]
        else:
            described["shape"] = list(inputs.shape)
        if described["images"]:
            described["formats"] = list(FORMATS)
        return described
