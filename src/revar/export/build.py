"""A model to a file: trace, check, write."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.export import Dim, ExportedProgram

from revar import __version__, fields
from revar.data.frames import FrameInputs
from revar.errors import InputError
from revar.export import files
from revar.export.frames import describe, precision
from revar.export.graph import DecisionGraph
from revar.export.plan import Plan, plan
from revar.functional import mode
from revar.model import Model
from revar.turns import TURNS

Kind = Literal["onnx", "torch"]
KINDS: dict[Kind, str] = dict(zip(get_args(Kind), (".onnx", ".pt2"), strict=True))
"""The suffix of each kind of file."""
_FORMAT = 1
"""Raised when a reader of the description would have to change."""
_TOLERANCE = 1e-4
"""More than rounding explains; the tests ask for a tenth of it."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A file that was written.

    Attributes:
        path: of the graph.
        description: what is in it, also inside the file and beside it as JSON.
    """

    path: Path
    description: dict[str, Any]


def kind_of(path: Path) -> Kind:
    """What the end of a file's name asks for.

    Raises:
        InputError: neither kind.
    """
    for kind, suffix in KINDS.items():
        if path.suffix == suffix:
            return kind
    raise InputError(f'"{path.name}" ends in neither .onnx nor .pt2: name the file after its kind')


@TURNS.mine()
def export_model(model: Model, path: Path) -> Exported:
    """Write a model as one graph, and ``<path>.json`` that describes it.

    Args:
        model: trained; its threshold goes along.
        path: ``.onnx`` or, for ``torch.export``, ``.pt2``.

    Raises:
        InputError: the file exists, the extra is missing, the threshold is on a score that cannot
            be exported, or the network cannot be traced.
    """
    kind = kind_of(path)
    beside = path.with_name(f"{path.name}.json")
    for place in (path, beside):
        if place.exists():
            raise InputError(f'"{place}" exists: choose another name')
    if not path.parent.is_dir():
        raise InputError(f'no folder "{path.parent}" to write "{path.name}" in')
    if kind == "onnx":
        files.require_onnx()
    chosen = plan(model)
    graph = DecisionGraph(model, chosen)
    example = _example(model)
    with torch.no_grad():
        # On the CPU, as the file will be: a GPU may round convolutions to ten bits.
        here = replace(model, networks=graph.networks, device=torch.device("cpu"))
        expected = _expected(here, chosen, graph.encoder(example))
        program, outputs = _traced(graph, example)
    description = _describe(model, chosen, example, outputs)
    text = json.dumps(description, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    # A torch program remembers the name it was written under, so only the folder is another.
    with TemporaryDirectory(prefix=".export-", dir=path.parent) as folder:
        whole = Path(folder) / path.name
        if kind == "onnx":
            found = files.write_onnx(program, list(outputs), whole, text, example)
        else:
            found = files.write_torch(program, whole, text, example)
        _check(expected, found)
        whole.replace(path)
    beside.write_text(text, encoding="utf-8")
    return Exported(path, description)


def _example(model: Model) -> Tensor:
    """[5, ...] raw values as the model reads them; around the training mean, not all alike."""
    generator = torch.Generator().manual_seed(0)
    inputs = model.inputs
    if isinstance(inputs, FrameInputs):
        columns = [torch.randint(-1, 2, (5,), generator=generator).float() for _ in inputs.columns]
        x = torch.stack(columns, 1)
        numbers = torch.tensor([column.median is not None for column in inputs.columns])
        # Gaps are allowed in numbers alone.
        x[0] = torch.where(numbers, torch.nan, x[0])
        offsets = torch.tensor([column.offset for column in inputs.columns], dtype=torch.float64)
        return (x.double() + offsets).to(precision(inputs))
    normalise = model.networks.normalise
    noise = torch.randn(5, *inputs.shape, generator=generator)
    x = noise * normalise.deviation.cpu() + normalise.mean.cpu()
    return x.round().clamp(0, 255).to(torch.uint8) if inputs.dtype == "uint8" else x


def _expected(model: Model, chosen: Plan, stored: Tensor) -> dict[str, NDArray[Any]]:
    predictions = model.predict_encoded(stored, wanted=model.needs(chosen.score))
    return {
        "logits": predictions.logits,
        "uncertainty": model.uncertainty(predictions, chosen.score),
    }


def _traced(graph: DecisionGraph, example: Tensor) -> tuple[ExportedProgram, dict[str, Tensor]]:
    with mode(graph, dropout=False, statistics=True):
        outputs = graph(example)
        try:
            program = torch.export.export(
                graph, (example,), dynamic_shapes=({0: Dim("n", min=1)},), strict=False
            )
        except Exception as error:
            name = type(graph.networks.classifier).__name__
            reason = str(error).strip().splitlines()[0] if str(error) else type(error).__name__
            msg = f"{name} cannot be traced, its code depends on values or on the batch: {reason}"
            raise InputError(msg) from error
    # An example would be stored as a pickle.
    program.example_inputs = None
    return program, outputs


def _check(expected: dict[str, NDArray[Any]], found: dict[str, NDArray[Any]]) -> None:
    for name, values in expected.items():
        scale = max(1.0, float(np.abs(values).max()))
        error = float(np.abs(values - found[name]).max()) / scale
        # Not "greater": NaN is no agreement either.
        if not error <= _TOLERANCE:
            msg = (
                f"the exported graph differs from the model, {name} by {error:.2g}: "
                "its network draws random numbers or keeps a state; nothing was written"
            )
            raise InputError(msg)


def _describe(
    model: Model, chosen: Plan, example: Tensor, outputs: dict[str, Tensor]
) -> dict[str, Any]:
    recipe, stored = model.recipe.to_json(), model.threshold
    reads: dict[str, Any] = {"name": "x", **_tensor(example)}
    if isinstance(model.inputs, FrameInputs):
        reads["columns"] = describe(model.inputs)
    return {
        "format": _FORMAT,
        "revar": __version__,
        "model": model.digest,
        "method": recipe["method"]["name"],
        "backbone": recipe["backbone"],
        "classes": list(model.classes.values),
        "score": chosen.score,
        "rule": chosen.rule,
        "threshold": chosen.threshold,
        "selection": None if stored is None else fields.to_json(stored),
        "input": reads,
        "outputs": [{"name": name, **_tensor(value)} for name, value in outputs.items()],
        "notes": list(chosen.notes),
    }


def _tensor(value: Tensor) -> dict[str, Any]:
    """Its type, and its shape with the batch left open."""
    dtype = str(value.dtype).removeprefix("torch.")
    return {"dtype": dtype, "shape": ["n", *value.shape[1:]]}
