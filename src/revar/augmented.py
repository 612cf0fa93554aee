"""Test-time augmentation: one network, several versions of every image."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar.data.augment import Augment
from revar.data.stored import Stored
from revar.ensembles import mix
from revar.errors import InputError
from revar.functional import mode, without_autocast
from revar.predictions import Predictions
from revar.randomness import derive, seeded
from revar.scores.learned import Fitted
from revar.turns import TURNS
from revar.types import Networks

FITTED = Fitted(default_score="tta_softmax", own="tta_softmax")
"""What goes with these predictions: nothing is fitted, so nothing is fused."""
_CPU = torch.device("cpu")


@TURNS.mine()
@torch.no_grad()
def predict_augmented(
    networks: Networks,
    augment: Augment,
    x: Stored,
    *,
    labels: NDArray[np.int64] | None = None,
    copies: int,
    seed: int,
    device: torch.device,
    batch_size: int = 512,
) -> Predictions:
    """Predictions by the mean probability over every image and its augmented copies.

    Scores, higher is rejected first: ``tta_softmax``, ``tta_entropy``, ``tta_mutual_information``
    (see `revar.ensembles.Mixture`). Copy k is shifted and mirrored alike for all images, so that
    the score of a row depends on that row alone, as with dropout masks (design note 007).

    Args:
        networks: trained.
        augment: how copies are made, that of training.
        x: [n, channels, h, w] stored values.
        labels: [n] class numbers, copied and not looked at.
        copies: K, beside the image itself.
        seed: of the shifts and mirrors.
        device: to compute on.
        batch_size: rows at a time.

    Raises:
        InputError: the copies would all be the image itself.
    """
    if copies < 1:
        raise InputError(f"{copies} augmented copies were asked for: 1 or more are needed")
    if not (augment.pad or augment.flip):
        msg = (
            "test-time augmentation needs images and a run trained with some: "
            "train with --set augment=shift or augment=shift+flip"
        )
        raise InputError(msg)
    mixtures = []
    with mode(networks, dropout=False, statistics=True), without_autocast():
        # max(): an empty set still has the right columns.
        for start in range(0, max(len(x), 1), batch_size):
            views = _views(augment, x[start : start + batch_size], copies, seed)
            outputs = (networks.classifier(networks.normalise(view.to(device))) for view in views)
            mixtures.append(mix(logits.cpu().numpy() for logits in outputs))
    scores = [mixture.scores("tta") for mixture in mixtures]
    return Predictions(
        index=np.arange(len(x)),
        logits=np.concatenate([mixture.log_mean for mixture in mixtures]),
        labels=labels,
        scores={name: np.concatenate([part[name] for part in scores]) for name in scores[0]},
    )


def _views(augment: Augment, x: Tensor, copies: int, seed: int) -> Iterator[Tensor]:
    """The images, then the copies: [n, channels, h, w] each, the same on every device."""
    yield x
    images = x.to(_CPU)
    for k in range(copies):
        with seeded(derive(seed, k), _CPU):
            # Seen as the channels of one image they are moved together.
            moved = augment(images.flatten(0, 1)[None]).view_as(images)
        yield moved
