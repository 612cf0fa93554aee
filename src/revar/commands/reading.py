"""How further data for a trained run are to be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from revar.data.cells import holds_numbers
from revar.data.frames import FrameInputs
from revar.data.inputs import Inputs, is_frame
from revar.data.labels import Classes
from revar.data.source import Reading, Source
from revar.errors import InputError
from revar.model import Model
from revar.run import RunFolder

CELLS = "stripped"
"""What ``recipe.json`` says of the cells of a table; runs of older versions say nothing."""


def reading_for(
    folder: RunFolder, model: Model, *, target: str | None = None, skip_unreadable: bool = False
) -> Reading:
    """As the training data were, into images of the model's shape.

    Args:
        folder: the run.
        model: it holds.
        target: another column of labels than that of training.
        skip_unreadable: go on without images that cannot be read.
    """
    reading = reading_of(folder.recipe()["data"], model.inputs, model.classes, target=target)
    columns = model.inputs.columns if isinstance(model.inputs, FrameInputs) else ()
    needed = tuple(column.name for column in columns)
    return replace(reading, needed=needed, skip_unreadable=skip_unreadable)


def reading_of(
    data: Mapping[str, Any], inputs: Inputs, classes: Classes, *, target: str | None = None
) -> Reading:
    """The same for data that may be that of another run.

    Args:
        data: what the run says of its own.
        inputs: what one of its examples looks like.
        classes: of the run; their labels are text where these are.
        target: another column of labels than that of training.
    """
    columns = inputs.columns if isinstance(inputs, FrameInputs) else ()
    text = [column.name for column in columns if column.median is None]
    named = target or data.get("target")
    in_words = isinstance(classes.values[0], str)
    return Reading(
        target=named,
        image=data.get("image"),
        image_shape=inputs.image_shape,
        text=(*text, *([named] if named is not None and in_words else [])),
        numeric_labels=not in_words,
        strip=data.get("cells") == CELLS,
    )


def reading_again(reading: Reading, folder: RunFolder) -> Reading:
    """How to read the training data of a run that goes on: as when it was begun.

    Args:
        reading: what is asked for now.
        folder: of the run, which may not be there yet.

    Raises:
        InputError: other columns are asked for than those it was begun with.
    """
    if not (folder.path / "recipe.json").exists():
        return reading
    there: dict[str, Any] = folder.store.read_json("recipe.json")["data"]
    for name in ("target", "group", "image", "leave_out"):
        option = f"--{name.replace('_', '-')}"
        now = getattr(reading, name)
        then = tuple(there.get(name) or ()) if name == "leave_out" else there.get(name, now)
        if then != now:
            words = [then] if isinstance(then, str) else then or ()
            given = " ".join(f'{option} "{word}"' for word in words)
            way = f"with {given}: give that again" if given else f"without {option}: leave it out"
            raise InputError(f'"{folder.path}" was begun {way}, or choose another --out')
    if there.get("cells") == CELLS:
        return reading
    return replace(reading, strip=False, numeric_labels=True)


def reading_beside(reading: Reading, source: Source) -> Reading:
    """How to read a meta set or unlabelled inputs that come with training data.

    Args:
        reading: of the training data.
        source: the training data.
    """
    train = source.train
    shape = tuple(getattr(train.x, "shape", ()))
    settled = shape[1:] if len(shape) == 4 else None
    plain = replace(reading, group=None, leave_out=(), image_shape=settled)
    if not reading.strip:
        # A run that was begun when such files were read alone goes on so.
        return plain
    text: list[str] = []
    needed: tuple[str, ...] = ()
    if is_frame(train.x):
        needed = tuple(str(name) for name in train.x.columns)
        text = [name for name in needed if not holds_numbers(train.x[name])]
    in_words = train.y is not None and train.y.dtype.kind not in "biuf"
    if in_words and reading.target is not None:
        text.append(reading.target)
    return replace(plain, text=tuple(text), needed=needed, numeric_labels=not in_words)
