"""docs/adding-a-method.md, followed word by word on a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "adding-a-method.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```python (\S+)\n(.*?)```", PAGE, flags=re.DOTALL))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package and its tests with the method of the page added."""
    root = tmp_path_factory.mktemp("project")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", root)
    for where, text in BLOCKS.items():
        kind, _, path = where.partition("=")
        if kind == "file":
            (root / path).write_text(text, encoding="utf-8")
    registry = root / "src" / "revar" / "registry.py"
    text = registry.read_text(encoding="utf-8")
    opening = "METHODS: tuple[MethodEntry, ...] = (\n"
    assert text.count(opening) == 1
    registry.write_text(text.replace(opening, opening + BLOCKS["entry=METHODS"]), encoding="utf-8")
    return root


def in_copy(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(copy / "src"), str(copy / "tests")])
    environment = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        capture_output=True, text=True, check=False, env=environment, cwd=copy,
    )  # fmt: skip


def test_the_page_has_a_file_an_entry_and_a_test() -> None:
    assert list(BLOCKS) == [
        "file=src/revar/methods/smoothing.py",
        "entry=METHODS",
        "file=tests/methods/test_smoothing.py",
    ]


def test_its_own_test_and_the_common_checks_pass(copy: Path) -> None:
    done = in_copy(
        copy, "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist", "tests/methods",
        "-k", "test_smoothing or (test_every and smoothing)",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found = re.search(r"(\d+) passed", done.stdout)
    assert found is not None, done.stdout
    assert int(found.group(1)) > 10


def test_it_is_listed_trained_and_evaluated(copy: Path) -> None:
    assert "smoothing" in in_copy(copy, "revar", "list", "methods").stdout
    command = ["revar", "train", "--data", "digits", "--method", "smoothing", "--epochs", "2"]
    done = in_copy(copy, *command, "--set", "smoothing=0.2", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "AUARC" in in_copy(copy, "revar", "evaluate", "run").stdout
    refused = in_copy(copy, *command, "--set", "smoothing=2", "--out", "other")
    assert refused.returncode == 2
    assert "smoothing" in refused.stderr
