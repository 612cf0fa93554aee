"""A trained model: networks with everything needed to use them on raw inputs."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from revar.data.inputs import Inputs
from revar.data.labels import Classes
from revar.data.stored import Stored
from revar.predictions import Predictions
from revar.randomness import derive
from revar.recipe import Recipe
from revar.scores import uncertainty
from revar.scores.learned import Fitted
from revar.scoring import predict
from revar.selection import Threshold
from revar.splits import Fingerprint, refuse_reuse
from revar.types import Networks, Task


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

    def predict(self, raw: Any, y: Any = None) -> Predictions:
        """Predictions on raw inputs, with labels where given."""
        x = self.inputs.encode(raw)
        labels = None if y is None else self.classes.encode(y)
        return self.predict_encoded(x, labels)

    def predict_encoded(
        self,
        x: Stored,
        labels: NDArray[np.int64] | None = None,
        index: NDArray[np.int64] | None = None,
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
        )

    def uncertainty(
        self, predictions: Predictions, score: str | None = None
    ) -> NDArray[np.float64]:
        """The named score, or the default one."""
        return uncertainty(predictions, score or self.fitted.default_score, self.fitted)

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
