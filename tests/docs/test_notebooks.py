"""The notebooks run, and print what they show."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import nbformat
import pytest

from support.pages import missing

DOCS = Path(__file__).parents[2] / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("notebooks", DOCS / "tools" / "notebooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(cell: Any) -> str:
    texts = [
        "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
        for output in cell.get("outputs", [])
    ]
    return re.sub(r"<Figure .*>", "", "\n".join(texts))


def test_there_are_two() -> None:
    assert len(NOTEBOOKS) >= 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    shown = nbformat.read(path, as_version=4)
    fresh = tool().execute(path, tmp_path)
    for before, after in zip(shown.cells, fresh.cells, strict=True):
        assert missing(printed(before), printed(after)) == [], printed(after)
        kinds = [[o.output_type for o in cell.get("outputs", [])] for cell in (before, after)]
        assert kinds[0] == kinds[1], before.source
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_was_run_in_order_and_names_no_machine(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert not re.search(r"(?<![\w.:/])/(home|tmp|root|work|Users|usr)/", path.read_text())
