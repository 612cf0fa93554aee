"""Run the notebooks and write what they print and draw: ``python docs/tools/notebooks.py``."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def execute(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook after all of its cells were run in a folder, in order."""
    notebook: nbformat.NotebookNode = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        coalesce_streams=True,  # where a stream is cut is a matter of time
        resources={"metadata": {"path": str(folder)}},
    ).execute()
    return notebook


def tidy(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Without times, paths of a machine and versions of a kernel."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
        cell.metadata.pop("execution", None)
    return notebook


if __name__ == "__main__":
    chosen = [Path(name) for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.ipynb"))
    for path in chosen:
        nbformat.write(tidy(execute(path, path.parent)), path)
        print(path.name)
