"""A trained model as one graph that runs without this package: ONNX, or a torch program."""

from __future__ import annotations

from revar.export.build import KINDS, Exported, Kind, export_model, kind_of

__all__ = ["KINDS", "Exported", "Kind", "export_model", "kind_of"]
