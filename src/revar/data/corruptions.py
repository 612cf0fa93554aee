"""ImageNet-C style corruptions of any image set: ``fog:3``.

The fifteen kinds of Hendrycks and Dietterich (2019), each at five severities, written from their
definitions. Frost is procedural, not the published photographs; docs/corruptions.md lists all
differences from the published benchmark.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from revar import fields
from revar.data.corruption_laws import LAWS, to_bytes
from revar.data.corruption_tables import SEVERITIES, parameters
from revar.data.source import Part
from revar.data.stored import ImageFiles, Items
from revar.errors import InputError, unknown
from revar.randomness import derive

CORRUPTIONS = tuple(LAWS)
"""The names, in the order of the paper."""
_BLOCK = 1 << 22
"""Values that are worked on at once."""
_CHANNELS = (1, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Corruption:
    """One kind of corruption at one severity.

    What happens to an image depends on the seed, the kind and the image's position, not on the
    severity or on the other images: a subset comes out as it does within the whole.

    Attributes:
        name: one of `CORRUPTIONS`.
        severity: 1 to 5.
        seed: of all draws.
    """

    name: str
    severity: int
    seed: int = 0

    def __post_init__(self) -> None:
        fields.check(self)
        if self.name not in LAWS:
            raise unknown("corruption", self.name, LAWS)
        fields.require(self.severity in SEVERITIES, self, "severity", "be from 1 to 5")

    @classmethod
    def parse(cls, text: str, *, seed: int = 0) -> Self:
        """From ``NAME:SEVERITY``.

        Raises:
            InputError: it is something else.
        """
        name, colon, severity = text.partition(":")
        if not colon:
            raise InputError(f'corruption "{text}" is not NAME:SEVERITY, such as fog:3')
        if name not in LAWS:
            raise unknown("corruption", name, LAWS)
        if severity not in map(str, SEVERITIES):
            raise InputError(f'corruption "{text}": the severity must be 1, 2, 3, 4 or 5')
        return cls(name=name, severity=int(severity), seed=seed)

    def __str__(self) -> str:
        return f"{self.name}:{self.severity}"

    def __call__(
        self, images: NDArray[np.uint8], positions: NDArray[np.integer[Any]] | None = None
    ) -> NDArray[np.uint8]:
        """Corrupt images.

        Args:
            images: [n, h, w, 3], [n, h, w, 1] or [n, h, w] of bytes.
            positions: [n] of these images in the whole they belong to; by default 0, 1, ...

        Returns:
            Images of the same shape and type.

        Raises:
            InputError: these are no such images, or as many positions as images are not there.
        """
        _refuse(images)
        places = np.arange(len(images)) if positions is None else np.asarray(positions)
        if places.shape != (len(images),) or (places < 0).any():
            raise InputError(f"{len(images)} images need as many positions from 0 on, not {places}")
        numbers = parameters(self.name, self.severity, min(images.shape[1:3]))
        law, key = LAWS[self.name], derive(self.seed, "corruption", self.name)
        pixels = images if images.ndim == 4 else images[..., None]
        result = np.empty_like(pixels)
        block = max(_BLOCK // int(np.prod(pixels.shape[1:])), 1)
        for start in range(0, len(pixels), block):
            rows = slice(start, start + block)
            generators = [np.random.default_rng((key, place)) for place in places[rows].tolist()]
            clean = pixels[rows].astype(np.float32) / 255
            result[rows] = to_bytes(law(clean, numbers, generators))
        return result.reshape(images.shape)


def _refuse(images: Any) -> None:
    way = "corruptions take images of bytes [n, h, w, 3] or [n, h, w]"
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        kind = getattr(images, "dtype", type(images).__name__)
        raise InputError(f"images of type {kind}: {way}")
    colour = images.ndim == 4 and images.shape[-1] in _CHANNELS
    # [h, w, 3] is one image in colour, and would pass for h grey ones of three columns.
    grey = images.ndim == 3 and images.shape[-1] not in _CHANNELS
    if not (colour or grey) or 0 in images.shape[1:]:
        raise InputError(f"images of shape {images.shape}: {way}")


def corrupted(part: Part, corruption: Corruption) -> Part:
    """The same examples with corrupted images; labels, groups and names stay.

    Arrays and tensors are corrupted at once, in either order of axes. Image files stay on disk:
    each is corrupted when it is read, the same at every reading.

    Args:
        part: of images.
        corruption: what happens to them.

    Raises:
        InputError: the part holds no images of bytes.
    """
    if isinstance(part.x, ImageFiles):
        files = part.x
        rows = np.arange(len(files))
        x: Any = Items(_CorruptedFiles(files, corruption), _same, rows, files.shape)
    else:
        x = _corrupted_array(part.x, corruption)
    return replace(part, x=x)


@dataclass(frozen=True, slots=True, eq=False)
class _CorruptedFiles:
    """Image files as a dataset of corrupted images [channels, h, w]."""

    files: ImageFiles
    corruption: Corruption

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, position: int) -> Tensor:
        image: Tensor = _corrupted_array(
            self.files[[position]], self.corruption, np.array([position])
        )
        return image[0]


def _same(x: Tensor) -> Tensor:
    return x


def _corrupted_array(
    x: Any, corruption: Corruption, positions: NDArray[np.int64] | None = None
) -> Any:
    """An array or tensor of images, with the channels last or first, to the same."""
    if isinstance(x, Tensor):
        images = _corrupted_array(x.detach().cpu().numpy(), corruption, positions)
        return torch.from_numpy(images)
    first = np.ndim(x) == 4 and x.shape[1] in _CHANNELS and x.shape[-1] not in _CHANNELS
    if not first:
        return corruption(x, positions)
    done = corruption(np.moveaxis(x, 1, -1), positions)
    return np.ascontiguousarray(np.moveaxis(done, -1, 1))
