"""``revar export``"""

from __future__ import annotations

from pathlib import Path

from revar.devices import choose
from revar.export import Exported, export_model
from revar.run import RunFolder


def export(run: str | Path, out: str | Path) -> Exported:
    """Write the model of a run as one graph.

    Args:
        run: the run folder.
        out: file to write, ``.onnx`` or ``.pt2``.

    Raises:
        InputError: no finished run, or one that cannot be exported.
    """
    model = RunFolder(Path(run)).load(device=choose("cpu"))
    return export_model(model, Path(out))
