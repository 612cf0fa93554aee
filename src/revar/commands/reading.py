"""How further data for a trained run are to be read."""

from __future__ import annotations

from revar.data.frames import FrameInputs
from revar.data.source import Reading
from revar.model import Model
from revar.run import RunFolder


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
    data, inputs = folder.recipe()["data"], model.inputs
    columns = inputs.columns if isinstance(inputs, FrameInputs) else ()
    return Reading(
        target=target or data.get("target"),
        image=data.get("image"),
        image_shape=inputs.image_shape,
        text=tuple(column.name for column in columns if column.median is None),
        skip_unreadable=skip_unreadable,
    )
