"""A trained model: networks with everything needed to use them on raw inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from revar import fields
from revar.augmented import predict_augmented
from revar.data.augment import resolve as augmentation
from revar.data.inputs import Inputs
from revar.data.labels import Classes
from revar.data.stored import Stored
from revar.errors import InputError
from revar.predictions import Predictions
from revar.randomness import derive
from revar.recipe import Recipe
from revar.scores import answers, correct, uncertainty
from revar.scores.learned import Fitted
from revar.scoring import EVERYTHING, Wanted, predict
from revar.selection import Threshold, threshold_for_coverage, threshold_for_risk
from revar.selection.risk import Procedure
from revar.splits import Fingerprint, refuse_reuse
from revar.types import Networks, Task

_DESCRIBED = ("inputs", "task", "fitted")


@dataclass
class Model:
    """What training leaves behind.

    Attributes:
        recipe: what was chosen, with nothing left open.
        task: what was learned.
        classes: labels by class number.
        inputs: what one example looks like.
        networks: f, g and the normalisation.
        fitted: what the tune split decided.
        fingerprints: which examples served as what.
        predictions: on the splits of the training data and its test sets.
        threshold: if one was set.
        device: the networks are on.
    """

    recipe: Recipe
    task: Task
    classes: Classes
    inputs: Inputs
    networks: Networks
    fitted: Fitted
    device: torch.device
    fingerprints: dict[str, Fingerprint] = field(default_factory=dict)
    predictions: MutableMapping[str, Predictions] = field(default_factory=dict)
    threshold: Threshold | None = None

    def __post_init__(self) -> None:
        self.networks.eval()

    @property
    def digest(self) -> str:
        """64 hex digits: equal for equal weights, recipe, inputs, classes and fitted scores.

        Another threshold leaves it, and so do a folder and a device.
        """
        described = {name: fields.to_json(getattr(self, name)) for name in _DESCRIBED}
        described |= {"recipe": self.recipe.to_json(), "classes": list(self.classes.values)}
        digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())
        for name, value in sorted(self.networks.trained_state().items()):
            tensor = value.detach().cpu().contiguous()
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode())
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def predict(self, raw: Any, y: Any = None, *, wanted: Wanted = EVERYTHING) -> Predictions:
        """Predictions on raw inputs, with labels where given.

        Args:
            raw: inputs as they come.
            y: their labels.
            wanted: `Model.needs` says what one score reads, and saves the rest.
        """
        x = self.inputs.encode(raw)
        return self.predict_encoded(x, self._encoded(y, x), wanted=wanted)

    def _encoded(self, y: Any, x: Stored) -> NDArray[np.int64] | None:
        if y is None:
            return None
        labels = self.classes.encode(y)
        if len(labels) != len(x):
            raise InputError(f"X has {len(x)} rows, y has {len(labels)}")
        return labels

    def needs(self, score: str | None = None) -> Wanted:
        """What has to be computed for the named score, or the default one."""
        return Wanted.by(self.fitted.named(score), self.fitted)

    def predict_encoded(
        self,
        x: Stored,
        labels: NDArray[np.int64] | None = None,
        index: NDArray[np.int64] | None = None,
        *,
        wanted: Wanted = EVERYTHING,
    ) -> Predictions:
        """Predictions on stored values."""
        return predict(
            self.networks,
            self.recipe.method,
            x,
            labels=labels,
            index=index,
            passes=self.recipe.test_passes,
            seed=derive(self.recipe.seed, "scoring"),
            device=self.device,
            wanted=wanted,
        )

    def predict_augmented(self, raw: Any, y: Any = None, *, copies: int = 8) -> Predictions:
        """Predictions on raw images by the mean over augmented copies, see `revar.augmented`.

        Raises:
            InputError: no images, or a run trained without augmentation.
        """
        x = self.inputs.encode(raw)
        return predict_augmented(
            self.networks,
            augmentation(self.recipe.budget.augment, self.task.input_shape),
            x,
            labels=self._encoded(y, x),
            copies=copies,
            seed=derive(self.recipe.seed, "augmented"),
            device=self.device,
        )

    def uncertainty(
        self, predictions: Predictions, score: str | None = None
    ) -> NDArray[np.float64]:
        """The named score, or the default one."""
        return uncertainty(predictions, self.fitted.named(score), self.fitted)

    def answers(
        self, predictions: Predictions, score: str | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """[n] class numbers to give where the score decides, and [n, C] their probabilities."""
        return answers(predictions, self.fitted.named(score), self.fitted)

    def select(
        self,
        raw: Any,
        y: Any = None,
        *,
        coverage: float | None = None,
        max_risk: float | None = None,
        confidence: float = 0.95,
        procedure: Procedure = "fixed_sequence",
        score: str | None = None,
        keep: Literal["always", "if_attained"] = "always",
    ) -> Threshold:
        """Choose the threshold on calibration data, and remember both.

        Args:
            raw: calibration inputs.
            y: their labels; a risk needs them.
            coverage: share of such inputs to accept, or
            max_risk: share of errors among the accepted that must not be exceeded.
            confidence: that it is not.
            procedure: how the threshold for a risk is searched for.
            score: a name of ``revar list scores``; ``None`` takes the method's default.
            keep: ``if_attained`` leaves everything as it was where no threshold will do.

        Raises:
            InputError: not one wish, no labels, or data that served another purpose already.
        """
        if (coverage is None) == (max_risk is None):
            raise InputError("give either a coverage or a max_risk, as in max_risk=0.05")
        if max_risk is not None and y is None:
            raise InputError("a threshold for a risk needs the labels of the calibration data")
        name = self.fitted.named(score)
        x = self.inputs.encode(raw)
        labels = self._encoded(y, x)
        print_ = Fingerprint.of(x)
        refuse_reuse(print_, "calibration", self.fingerprints)
        predictions = replace(self.predict_encoded(x, labels), split="calibration")
        found = self.threshold_from(
            predictions, coverage=coverage, max_risk=max_risk, confidence=confidence,
            procedure=procedure, score=name,
        )  # fmt: skip
        found = replace(found, fingerprint=print_.digest)
        if found.threshold is None and keep == "if_attained":
            return found
        self.fingerprints["calibration"] = print_
        self.predictions["calibration"] = predictions
        self.threshold = found
        return found

    def threshold_from(
        self,
        predictions: Predictions,
        *,
        coverage: float | None,
        max_risk: float | None,
        confidence: float,
        score: str,
        procedure: Procedure = "fixed_sequence",
    ) -> Threshold:
        """The threshold these calibration predictions give for one of the two wishes."""
        values = self.uncertainty(predictions, score)
        if coverage is not None:
            return threshold_for_coverage(values, coverage, confidence=confidence, score=score)
        assert max_risk is not None
        return threshold_for_risk(
            values, correct(predictions, score, self.fitted), max_risk=max_risk,
            confidence=confidence, procedure=procedure, score=score,
        )  # fmt: skip

    def claim(self, raw: Any, purpose: str) -> None:
        """Remember that these examples serve a purpose; refuse what serves another already.

        Raises:
            InputError: more than half of the rows serve another purpose.
        """
        new = Fingerprint.of(self.inputs.encode(raw))
        refuse_reuse(new, purpose, self.fingerprints)
        # A model has one calibration set at a time but may be tested on many.
        key = f"test:{new.digest[:12]}" if purpose == "test" else purpose
        self.fingerprints[key] = new
