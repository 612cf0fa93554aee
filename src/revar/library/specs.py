"""What one published data set is, in data: where it lies, how it is read, what to expect of it.

A `DatasetSpec` is light, so that a list of all of them loads no tensors. It names its readers as
``module:function``; they are imported when the data is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from revar.entries import Entry

Sizes = Mapping[str, int]
"""Name of a part to its number of examples; ``train`` and ``test`` are the usual ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One way in which a data set may lie in the folder of data.

    Attributes:
        place: the file or folder that tells that it is there.
        layout: what else belongs there, in words.
        reader: ``module:function`` from a `Found` to a `revar.data.source.Source`.
        parts: part to the file or folder it is read from, for the general readers.
        side: the images are squares of this many pixels, as they are read; 0 for tables.
        sizes: what a complete copy holds.
        counter: ``module:function`` from a `Found` to the `Sizes` of what is there, without
            decoding images; it refuses what is missing or damaged.
    """

    place: str
    layout: str
    reader: str
    parts: Mapping[str, str] = field(default_factory=dict)
    side: int = 224
    sizes: Sizes = field(default_factory=dict)
    counter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSpec(Entry):
    """One published data set.

    Attributes:
        n_classes: number of classes.
        forms: the ways it may lie there, the first that is found is read; none where it comes
            with a package (``target`` then gives its source).
        sizes: of what comes with a package.
        side: pixels of what comes with a package.
        base: another data set whose images it takes.
        options: what its reader needs to know besides.
        obtain: where to get it.
        licence: what its makers allow, in a few words.
        paper: sizes in the dataset table and text of the ReVaR paper, where it has them.
        paper_side: pixels of the images in that table, 0 where it has none.
    """

    n_classes: int
    forms: tuple[Form, ...] = ()
    sizes: Sizes = field(default_factory=dict)
    side: int = 0
    base: str = ""
    options: Mapping[str, str | int] = field(default_factory=dict)
    obtain: str
    licence: str
    paper: Sizes = field(default_factory=dict)
    paper_side: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A data set that is there.

    Attributes:
        spec: what it is.
        form: in which it lies there.
        root: the folder of data.
        image_shape: (channels, height, width) wanted of images that are read from files of their
            own, in place of what the form says.
        part: the only part that is asked for, where a reader can do with less.
        base: sizes of the data set whose images it takes, for counters.
    """

    spec: DatasetSpec
    form: Form
    root: Path
    image_shape: tuple[int, ...] | None = None
    part: str = ""
    base: Sizes = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The place itself."""
        return self.root / self.form.place

    @property
    def shape(self) -> tuple[int, ...]:
        """(channels, height, width) to read image files at."""
        return self.image_shape or (3, self.form.side, self.form.side)
