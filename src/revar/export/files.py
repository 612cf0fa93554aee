"""The two kinds of file: written, read back and run once."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.export import ExportedProgram

from revar.errors import InputError

DESCRIPTION = "revar.json"
"""The name of the description among the extra files of a torch program."""
PROPERTY = "revar"
"""Its name among the metadata of an ONNX model."""


def require_onnx() -> None:
    """Refuse to begin where ONNX files can be neither written nor run.

    Raises:
        InputError: naming the extra.
    """
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        msg = f'ONNX needs the extra "onnx" ({error.name}): pip install "revar[onnx]"'
        raise InputError(msg) from error


def write_onnx(
    program: ExportedProgram, outputs: list[str], path: Path, text: str, example: Tensor
) -> dict[str, NDArray[Any]]:
    """Write an ONNX model; what ONNX Runtime makes of an example.

    Args:
        program: traced.
        outputs: names, in their order.
        path: to write.
        text: the description.
        example: [n, ...] raw values.
    """
    import onnxruntime

    with warnings.catch_warnings():
        # The converter warns of its own innards.
        warnings.simplefilter("ignore")
        model = torch.onnx.export(
            program, (), input_names=["x"], output_names=outputs,
            dynamic_shapes={"x": {0: "n"}}, dynamo=True, verbose=False,
        )  # fmt: skip
    assert model is not None
    model.model.metadata_props[PROPERTY] = text
    model.save(str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip(outputs, session.run(outputs, {"x": example.numpy()}), strict=True))


def write_torch(
    program: ExportedProgram, path: Path, text: str, example: Tensor
) -> dict[str, NDArray[Any]]:
    """Write a torch program; what it makes of an example after it is read back."""
    torch.export.save(program, str(path), extra_files={DESCRIPTION: text})
    with torch.no_grad():
        found = torch.export.load(str(path)).module()(example)
    return {name: value.numpy() for name, value in found.items()}
