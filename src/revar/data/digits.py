"""Handwritten digits that come with scikit-learn, plain and made difficult."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from revar.data.label_noise import instance_dependent
from revar.data.source import Part, Source
from revar.randomness import derive

NOISE_RATE = 0.2


def _load() -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Images [1797, 8, 8] in 0..255, labels, and the rows of train and test."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    images = np.round(bunch.images * (255 / 16)).astype(np.uint8)
    labels = bunch.target.astype(np.int64)
    rows = np.arange(len(labels))
    train, test = train_test_split(rows, test_size=1 / 3, stratify=labels, random_state=0)
    return images, labels, train, test


def digits() -> Source:
    """1,198 digits to train on and 599 to test on."""
    images, labels, train, test = _load()
    return Source(
        Part(images[train], labels[train]), tests={"test": Part(images[test], labels[test])}
    )


def digits_noisy() -> Source:
    """The same with noisy training labels, and a second test set that has shifted.

    A fifth of the training labels are flipped depending on the image. The test labels are clean;
    ``shifted`` are the test images, some moved by a pixel, with less contrast and some noise.
    """
    images, labels, train, test = _load()
    noisy = instance_dependent(
        images[train], labels[train], NOISE_RATE, 10, derive(0, "digits noise"), input_scale="unit"
    )
    return Source(
        Part(images[train], noisy.labels),
        tests={
            "test": Part(images[test], labels[test]),
            "shifted": Part(shift(images[test]), labels[test]),
        },
    )


def shift(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Move every third image by one pixel, lower the contrast of all, add noise."""
    generator = np.random.default_rng(derive(0, "digits shift"))
    moves = generator.integers(-1, 2, size=(len(images), 2))
    moves[generator.random(len(images)) > 1 / 3] = 0
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    side = images.shape[1]
    moved = np.stack(
        [
            image[1 + dy : 1 + dy + side, 1 + dx : 1 + dx + side]
            for image, (dy, dx) in zip(padded, moves, strict=True)
        ]
    )
    darker = 0.8 * moved + generator.normal(0, 20, moved.shape)
    return np.clip(np.round(darker), 0, 255).astype(np.uint8)
