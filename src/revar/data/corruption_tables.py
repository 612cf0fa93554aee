"""How strong each corruption is: the published numbers, and what lies between them.

Hendrycks and Dietterich (2019) give two sets of numbers, for images of 32 px (CIFAR-10-C) and of
224 px (ImageNet-C). `parameters` carries them to any image side.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log

Row = tuple[float, ...]
SMALL, LARGE = 32, 224
"""The image sides that the two sets of numbers were published for."""
SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers of one corruption.

    Attributes:
        lengths: which of the numbers are in pixels, and so grow with the image.
        small: a row for each severity, at 32 px.
        large: a row for each severity, at 224 px.
    """

    lengths: tuple[bool, ...]
    small: tuple[Row, ...]
    large: tuple[Row, ...]


def _single(small: Row, large: Row) -> Table:
    """A table of one number, which is no length."""
    return Table((False,), tuple((a,) for a in small), tuple((b,) for b in large))


TABLES = {
    # Standard deviation.
    "gaussian_noise": _single((0.04, 0.06, 0.08, 0.09, 0.10), (0.08, 0.12, 0.18, 0.26, 0.38)),
    # Photons at white.
    "shot_noise": _single((500, 250, 100, 75, 50), (60, 25, 12, 5, 3)),
    # Share of values.
    "impulse_noise": _single((0.01, 0.02, 0.03, 0.05, 0.07), (0.03, 0.06, 0.09, 0.17, 0.27)),
    # Radius of the disc, deviation of the blur of its rim.
    "defocus_blur": Table(
        (True, False),
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    # Deviation of the blur, furthest move, rounds.
    "glass_blur": Table(
        (True, True, False),
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    # Radius, deviation along the line.
    "motion_blur": Table(
        (True, True),
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    # Largest enlargement less one, step.
    "zoom_blur": Table(
        (False, False),
        ((0.06, 0.01), (0.11, 0.01), (0.15, 0.01), (0.20, 0.01), (0.25, 0.01)),
        ((0.11, 0.01), (0.15, 0.01), (0.20, 0.02), (0.24, 0.02), (0.30, 0.03)),
    ),
    # Mean and deviation of flakes, enlargement, threshold, radius and deviation of the fall,
    # share of the picture that is not whitened.
    "snow": Table(
        (False, False, False, False, True, True, False),
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    # Share of the picture, share of the frost.
    "frost": Table(
        (False, False),
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    ),
    # Amount, decay from one octave to the next.
    "fog": Table(
        (False, False),
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    # Added to the value of HSV.
    "brightness": _single((0.05, 0.1, 0.15, 0.2, 0.3), (0.1, 0.2, 0.3, 0.4, 0.5)),
    # Share of the contrast that is left.
    "contrast": _single((0.75, 0.5, 0.4, 0.3, 0.15), (0.4, 0.3, 0.2, 0.1, 0.05)),
    # Strength and smoothness of the displacement, furthest move of the corners: shares of the
    # side, which was taken for 244 px at 224.
    "elastic_transform": Table(
        (False, False, False),
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        tuple(
            (a * 244 / 224, b * 244 / 224, c * 244 / 224)
            for a, b, c in (
                (2, 0.7, 0.1),
                (2, 0.08, 0.2),
                (0.05, 0.01, 0.02),
                (0.07, 0.01, 0.02),
                (0.12, 0.01, 0.02),
            )
        ),
    ),
    # Side of a block: one over the published share of the side that is left.
    "pixelate": Table(
        (True,),
        tuple((1 / share,) for share in (0.95, 0.9, 0.85, 0.75, 0.65)),
        tuple((1 / share,) for share in (0.6, 0.5, 0.4, 0.3, 0.25)),
    ),
    # Quality.
    "jpeg_compression": _single((80, 65, 58, 50, 40), (25, 18, 15, 10, 7)),
}
"""By name, in the order of the paper."""


def parameters(name: str, severity: int, side: int) -> Row:
    """The numbers of a corruption for images of some side.

    Up to 32 px they are those of CIFAR-10-C: shorter lengths would be below one pixel. Between,
    each number follows the power of the side that meets both tables, or a line in ``log side``
    where one end is zero. From 224 px on they are those of ImageNet-C, lengths in proportion to
    the side.

    Args:
        name: of the corruption.
        severity: 1 to 5.
        side: the shorter one, in pixels.
    """
    table = TABLES[name]
    share = min(max(log(side / SMALL) / log(LARGE / SMALL), 0.0), 1.0)
    growth = max(side / LARGE, 1.0)
    rows = zip(table.small[severity - 1], table.large[severity - 1], table.lengths, strict=True)
    return tuple(_between(a, b, share) * (growth if length else 1.0) for a, b, length in rows)


def _between(small: float, large: float, share: float) -> float:
    if small > 0 and large > 0:
        return float(small ** (1 - share) * large**share)
    return (1 - share) * small + share * large
