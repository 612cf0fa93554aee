"""The scale of the paper: its networks can be built, and its data are read as it has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from revar.data.datasets import dataset_spec
from revar.data.source import Source
from revar.errors import DataWarning, InputError
from revar.methods.revar import ReVaR
from revar.nets.build import Backbone
from revar.tables.build import cell_at
from revar.tables.catalogue import TABLES, find_table
from revar.tables.cell import Cell
from revar.tables.images import draw_images
from revar.tables.places import scale_of
from revar.tables.questions import wanted
from revar.tables.sources import set_name, source_of
from revar.tables.ways import WAYS
from support.layouts import class_tree, table

PAPER = scale_of("paper")
CELLS = wanted([grid for table in TABLES for grid in table.grids(PAPER)], 1)
NETS = sorted({(cell.data.name, cell.backbone) for cell in CELLS})


def parameters(net: str, data: str, n_outputs: int) -> int:
    """Of a net for the images of a data set, which it must be able to read; nothing is computed."""
    spec = dataset_spec(data)
    side = spec.forms[-1].side
    with torch.device("meta"):
        built = Backbone(name=net).build((3, side, side), n_outputs)
        assert built(torch.zeros(2, 3, side, side)).shape == (2, n_outputs)
    return sum(p.numel() for p in built.parameters())


@pytest.mark.parametrize(("data", "net"), NETS)
def test_every_net_reads_the_images_it_is_given(data: str, net: str) -> None:
    assert parameters(net, data, dataset_spec(data).n_classes) > 10e6


def test_the_u_score_of_the_papers_text_is_a_smaller_net() -> None:
    literal = [cell for cell in CELLS if cell.method in ("revar-paper", "ibr")]
    assert {cell.data.name for cell in literal} >= {"eyepacs", "cifar100", "imagenet-1k"}
    for cell in literal:
        method = cell.recipe().method
        assert isinstance(method, ReVaR)
        assert method.scorer_backbone in ("resnet18", "resnet18-cifar")
        assert method.scorer_backbone == "resnet18" or cell.data.name.startswith("cifar")
        f = parameters(cell.backbone, cell.data.name, 2)
        assert parameters(method.scorer_backbone, cell.data.name, 1) < f
    others = wanted(find_table("main").grids(PAPER), 1)
    named = {cell.method for cell in others if "scorer_backbone" in dict(cell.settings)}
    assert named == {"revar-paper"}


def test_baselines_of_parameter_control_have_more_parameters() -> None:
    (grid,) = find_table("parameter-control").grids(PAPER)
    sizes = {}
    for (row, column), question in grid.questions.items():
        (cell,) = question.cells.values()
        method = cell.recipe().method
        scorer = method.scorer_backbone if isinstance(method, ReVaR) else None
        sizes[row, column] = parameters(cell.backbone, cell.data.name, 2)
        if scorer is not None:
            sizes[row, column] += parameters(scorer, cell.data.name, 1)
        expected = {"revar": ("resnet50", None), "revar-paper": ("resnet50", "resnet18")}
        assert (cell.backbone, scorer) == expected.get(row, ("resnet101", None))
    for column in grid.columns:
        assert sizes["revar-paper", column] > sizes["revar", column]
        assert sizes["mcd", column] > sizes["revar-paper", column]


def test_the_wide_net_is_the_papers_and_computes_few_images_at_a_time() -> None:
    cells = wanted(find_table("wrn").grids(PAPER), 1)
    assert {cell.backbone for cell in cells} == {"wrn-28-10"}
    assert {cell.recipe().budget.micro_batch for cell in cells} == {8}


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    return tmp_path


def read(cell: Cell) -> Source:
    with pytest.warns(DataWarning, match="is not complete"):
        return source_of(cell, cell.recipe())


def test_wilds_is_validated_on_its_shifted_validation_domain(data: Path) -> None:
    header = ",patient,node,x_coord,y_coord,tumor,slide,center,split"
    rows = [(i, f"00{i}", 4, 32 * i, 64, i % 2, 0, c, s) for i, (c, s) in enumerate(
        ((0, 0), (0, 0), (0, 1), (1, 0), (1, 0), (2, 0), (2, 1))
    )]  # fmt: skip
    table(data / "camelyon17_v1.0" / "metadata.csv", header, rows)
    columns = "split,filename,y,sequence_remapped"
    parts = ("train", "train", "id_val", "id_test", "val", "val", "test")
    photos = [(part, f"{i}.jpg", i % 2, i) for i, part in enumerate(parts)]
    table(data / "iwildcam_v2.0" / "metadata.csv", columns, photos)
    for name, of_patient in (("camelyon17", ("003", "004")), ("iwildcam", ("4", "5"))):
        source = read(cell_at(WAYS["revar"], PAPER.places[name]))
        assert source.meta is not None
        assert np.asarray(source.meta.groups).tolist() == list(of_patient)
        assert len(source.train) == 2
        assert set(source.tests) == {"test"}


def test_models_of_imagenet_are_tested_on_its_shifted_versions(data: Path) -> None:
    for part in ("train", "val"):
        class_tree(data / "imagenet" / part, {"n01": 2, "n02": 2, "n03": 2})
    class_tree(data / "imagenet-a", {"n01": 1})
    class_tree(data / "imagenet-r", {"n02": 3})
    places = {name: PAPER.places[f"imagenet-{name}"] for name in "acr"}
    assert len(places["c"].tests) == 15 * 5
    for test in places["c"].tests:
        corruption, _, severity = test.removeprefix("imagenet-c:").rpartition("-")
        folder = data / "imagenet-c" / corruption / severity
        class_tree(folder, {"n03": 2} if (corruption, severity) == ("fog", "5") else {"n01": 1})
    source = read(cell_at(WAYS["revar"], places["a"]))
    assert len(source.tests) == 3 + 75
    for letter, place in places.items():
        assert place.setting == PAPER.places["imagenet-1k"].setting
        assert {set_name(test) for test in place.tests} <= set(source.tests), letter
    found = {name: np.asarray(part.y).tolist() for name, part in source.tests.items()}
    assert found["imagenet-a"] == ["n01"]
    assert found["imagenet-r"] == ["n02"] * 3
    assert found["imagenet-c-fog-5"] == ["n03"] * 2
    assert found["imagenet-c-fog-4"] == ["n01"]


def test_a_test_set_of_another_size_is_refused(data: Path) -> None:
    for part in ("train", "val"):
        class_tree(data / "imagenet" / part, {"n01": 2, "n02": 2})
    cell = cell_at(WAYS["sr"], PAPER.places["imagenet-1k"])
    rows = [(0, "004", 4, 32, 64, 1, 0, 0, 0), (1, "005", 4, 32, 64, 1, 0, 0, 1)]
    rows += [(2, "006", 4, 32, 64, 1, 0, 1, 0), (3, "007", 4, 32, 64, 1, 0, 2, 0)]
    header = ",patient,node,x_coord,y_coord,tumor,slide,center,split"
    table(data / "camelyon17_v1.0" / "metadata.csv", header, rows)
    other = replace(cell, data=replace(cell.data, tests=("test", "camelyon17")))
    with (
        pytest.warns(DataWarning, match="is not complete"),
        pytest.raises(InputError, match=r'"camelyon17" has images \(3, 96, 96\), "imagenet-1k"'),
    ):
        source_of(other, other.recipe())


def test_pictures_need_a_scale_with_all_countries(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='"paper" has no deepdrid to show: use small'):
        draw_images(PAPER, tmp_path, tmp_path, seed=0, coverage=0.8)
