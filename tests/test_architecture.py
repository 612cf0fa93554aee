"""The shape of the project, executed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import revar
from revar import fields
from revar.calibrators import CALIBRATORS
from revar.recipe import Budget, make_method
from revar.registry import BACKBONES, DATASETS, METHODS, SCORES, MethodEntry, load

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "timm", "torchvision", "pandas", "matplotlib", "sklearn", "scipy")


def test_public_names() -> None:
    assert revar.__all__ == [
        "ERM", "InputError", "ReVaR", "SelectiveClassifier", "calibrators", "metrics", "selection",
    ]  # fmt: skip
    for name in revar.__all__:
        assert getattr(revar, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = revar.nonsense


@pytest.mark.parametrize("entry", METHODS, ids=lambda entry: entry.name)
def test_no_field_of_a_method_hides_one_of_the_budget(entry: MethodEntry) -> None:
    """`--set` looks in the method first, so a shared name could never reach the budget."""
    method = type(make_method(entry.name))
    others = {*fields.hints(Budget), "dropout_rate", "dropout_placement", "meta_fraction"}
    others |= {"tune_fraction", "test_passes", "seed", "backbone"}
    assert not others & set(fields.hints(method))


@pytest.mark.parametrize("entry", METHODS, ids=lambda entry: entry.name)
def test_every_method_has_its_page_and_its_test(entry: MethodEntry) -> None:
    module = entry.target.partition(":")[0].rpartition(".")[2]
    pages = {path.stem for path in (ROOT / "docs" / "methods").glob("*.md")}
    assert {entry.name, module} & pages
    tests = {path.stem for path in (ROOT / "tests" / "methods").glob("test_*.py")}
    assert {f"test_{entry.name}", f"test_{module}"} & tests


@pytest.mark.parametrize(
    "entry", [*METHODS, *SCORES, *BACKBONES, *DATASETS, *CALIBRATORS], ids=lambda entry: entry.name
)
def test_every_registered_target_exists(entry: object) -> None:
    target = getattr(entry, "target")  # noqa: B009
    if target:
        assert callable(load(target))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["train", "--help"], 0),
        (["list", "methods"], 0),
        (["list", "scores", "--json"], 0),
        (["list", "backbones"], 0),
        (["list", "datasets"], 0),
        (["nonsense"], 2),
        (["train", "--data", "digts"], 2),
        (["train", "--data", "digits", "--method", "revr"], 2),
        (["evaluate", "nowhere"], 2),
        (["predict", "nowhere", "x.csv"], 2),
    ],
)
def test_what_needs_no_tensor_loads_none(arguments: list[str], code: int) -> None:
    """Start-up is part of the product: a count of modules, not of seconds."""
    script = (
        "import sys\nfrom revar.cli import run\n"
        f"code = run({arguments!r})\n"
        f"heavy = sorted(set({HEAVY!r}) & set(sys.modules))\n"
        f"assert code == {code}, code\nassert not heavy, heavy\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_import_revar_loads_no_tensors() -> None:
    script = f"import sys, revar\nassert not set({HEAVY!r}) & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_metrics_and_scores_work_without_torch() -> None:
    script = (
        "import sys\nfrom revar import metrics, selection\nimport revar.scores, revar.evaluation\n"
        "assert metrics.auarc([0.1, 0.2], [1, 0]) == 0.75\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_one_place_steps_the_optimisers() -> None:
    stepping = [
        path.name
        for path in (ROOT / "src").rglob("*.py")
        if re.search(r"\.(optimiser|outer)\.step\(\)", path.read_text())
    ]
    assert stepping == ["training.py"]


def test_files_are_of_a_readable_size() -> None:
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in (ROOT / "src").rglob("*.py")
    }
    assert not {name: size for name, size in sizes.items() if size > 400}


def test_constraints_name_packages_and_versions_only() -> None:
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line), line


def test_the_version_is_one() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{revar.__version__}"' in project
    assert f"## {revar.__version__}" in (ROOT / "CHANGELOG.md").read_text()
