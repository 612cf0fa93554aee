"""The command line, as a user types it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

from revar.cli import run
from revar.registry import METHODS

Capture = pytest.CaptureFixture[str]


def images(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Colour images whose upper half is bright for class 1."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = generator.integers(0, 110, (n, 12, 12, 3)).astype(np.uint8)
    x[y == 1, :6] += 110
    return x, y


def table(n: int, seed: int = 0) -> str:
    """A CSV with a category, a number with gaps, and quotes."""
    generator = np.random.default_rng(seed)
    lines = ["age,city,note,outcome"]
    for _ in range(n):
        age, city = generator.integers(20, 80), generator.choice(["Ulm", "Bonn", "Kiel"])
        outcome = "ill" if (age > 50) ^ (city == "Bonn") else "well"
        shown = "" if generator.random() < 0.1 else str(age)
        where = "?" if generator.random() < 0.05 else city
        lines.append(f'{shown},{where},"a, ""quoted"" note",{outcome}')
    return "\n".join(lines) + "\n"


def json_of(capture: Capture) -> dict[str, object]:
    data: dict[str, object] = json.loads(capture.readouterr().out)
    return data


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_colour_images_in_an_archive_with_no_further_options(here: Path, capsys: Capture) -> None:
    (x, y), (x_test, y_test) = images(160), images(60, seed=1)
    np.savez("photos.npz", x=x, y=y, x_test=x_test, y_test=y_test)
    assert run(["train", "--data", "photos.npz", "--out", "run", "--epochs", "6"]) == 0
    assert "AUARC" in capsys.readouterr().out
    assert run(["evaluate", "run", "--json"]) == 0
    figures = json_of(capsys)
    assert figures["n"] == 60
    assert figures["accuracy"] > 0.9  # type: ignore[operator]
    np.savez("new.npz", x=images(20, seed=2)[0])
    assert run(["predict", "run", "new.npz", "--coverage", "0.5", "--out", "d.csv"]) == 0
    with Path("d.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["input"] for row in rows] == [str(i) for i in range(20)]
    assert sum(row["accepted"] == "true" for row in rows) == 10
    assert set(rows[0]) == {
        "input", "label", "accepted", "uncertainty", "probability_0", "probability_1",
    }  # fmt: skip


def test_a_table_with_categories_and_gaps_with_no_further_options(
    here: Path, capsys: Capture
) -> None:
    Path("patients.csv").write_text(table(300))
    Path("later.csv").write_text(table(100, seed=1))
    assert run(["train", "--data", "patients.csv", "--target", "outcome", "--out", "run"]) == 0
    capsys.readouterr()
    assert run(["evaluate", "run", "--on", "later.csv", "--json"]) == 0
    figures = json_of(capsys)
    assert figures["accuracy"] > 0.8  # type: ignore[operator]
    assert run(["predict", "run", "later.csv", "--coverage", "0.8"]) == 0
    captured = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    assert len(rows) == 100
    assert {row["label"] for row in rows} == {"ill", "well"}
    assert "most certain of these inputs" in captured.err


def test_class_folders(here: Path, capsys: Capture) -> None:
    for part, n, seed in (("train", 60, 0), ("test", 20, 1)):
        x, y = images(n, seed)
        for i in range(n):
            folder = Path("data") / part / ("bright" if y[i] else "dark")
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(x[i]).save(folder / f"{i:03d}.png")
    assert run(["train", "--data", "data", "--epochs", "6", "--method", "erm"]) == 0
    folder = Path("runs/data-erm-seed0")
    assert str(folder) in capsys.readouterr().out
    assert run(["evaluate", str(folder), "--json"]) == 0
    assert json_of(capsys)["accuracy"] > 0.8  # type: ignore[operator]
    Image.fromarray(images(1, 3)[0][0]).resize((30, 20)).save("one.jpg")
    assert run(["predict", str(folder), "one.jpg"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["input"] for row in rows] == ["one.jpg"]
    assert run(["predict", str(folder), "data/test"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert rows[0]["input"] == "bright/001.png"
    assert len(rows) == 20


def test_the_digits_come_with_the_package(here: Path, capsys: Capture) -> None:
    assert run(["train", "--data", "digits", "--epochs", "3"]) == 0
    capsys.readouterr()
    assert run(["evaluate", "runs/digits-trajectory-seed0"]) == 0
    assert "n 599" in capsys.readouterr().out
    assert run(["evaluate", "runs/digits-trajectory-seed0", "--on", "digits-noisy:shifted"]) == 0


def test_the_demo(here: Path, capsys: Capture) -> None:
    assert run(["demo", "--epochs", "2", "--json"]) == 0
    figures = json_of(capsys)
    assert set(figures) == {"erm", "trajectory"}
    for method in figures.values():
        assert set(method) == {"test", "shifted"}  # type: ignore[call-overload]
        for result in method.values():  # type: ignore[attr-defined]
            assert {"n", "accuracy", "ece", "brier", "default_score", "scores"} <= set(result)
            assert result["n"] == 599
    with Image.open("revar-demo/risk-coverage.png") as picture:
        assert min(picture.size) > 300
        assert len(set(picture.convert("L").resize((64, 32)).tobytes())) > 20, "blank picture"
    weights = Path("revar-demo/trajectory-seed0/weights.safetensors")
    before = weights.stat().st_mtime_ns
    assert run(["demo", "--epochs", "2"]) == 0
    assert "AUARC by score" in capsys.readouterr().out
    assert weights.stat().st_mtime_ns == before


def test_evaluate_json_is_complete(here: Path, capsys: Capture) -> None:
    train = ["train", "--data", "digits", "--epochs", "1", "--method", "erm"]
    assert run([*train, "--set", "tune_fraction=0.1"]) == 0
    capsys.readouterr()
    assert run(["evaluate", "runs/digits-erm-seed0", "--json"]) == 0
    figures = json_of(capsys)
    assert list(figures) == [
        "n", "accuracy", "ece", "ece_equal_mass", "ece_classwise", "ece_top_label", "mce", "brier",
        "nll", "default_score", "own_score", "scores",
    ]  # fmt: skip
    scores: dict[str, dict[str, object]] = figures["scores"]  # type: ignore[assignment]
    assert list(scores) == [
        "softmax", "softmax_entropy", "dropout_entropy", "dropout_variance",
        "mutual_information", "mcd", "fused", "own",
    ]  # fmt: skip
    for name, values in scores.items():
        assert list(values) == [
            "auarc", "aurc", "e_aurc", "augrc", "normalised_auarc", "failure_auroc",
            "failure_aupr", "fpr_at_95_tpr", "accuracy_at_coverage", "coverage_at_risk",
            "selective_ece", *(["auc_at_coverage"] if name in ("softmax", "own") else []),
        ]  # fmt: skip
        assert list(values["accuracy_at_coverage"]) == [  # type: ignore[call-overload]
            "0.5", "0.6", "0.7", "0.8", "0.9", "1.0",
        ]  # fmt: skip


@pytest.mark.parametrize("kind", ["methods", "scores", "calibrators", "backbones", "datasets"])
def test_lists(kind: str, capsys: Capture) -> None:
    assert run(["list", kind, "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert isinstance(entries, list)
    assert all(entry["name"] for entry in entries)
    assert run(["list", kind]) == 0
    shown = capsys.readouterr().out
    assert all(entry["name"] in shown for entry in entries)


def test_methods_are_listed_with_scores_cost_and_citation(capsys: Capture) -> None:
    assert run(["list", "methods", "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["name"] for entry in entries] == [entry.name for entry in METHODS]
    for entry in entries:
        assert entry["scores"]
        assert entry["cost"] in ("plain", "passes", "bilevel")
        assert entry["own"] in entry["scores"]
        assert entry["citation"]


def test_timm_backbones_by_pattern(capsys: Capture) -> None:
    assert run(["list", "backbones", "--timm", "resnet1[08]t", "--json"]) == 0
    assert [e["name"] for e in json.loads(capsys.readouterr().out)] == ["resnet10t"]


def test_fields_can_be_set(here: Path, capsys: Capture) -> None:
    arguments = ["train", "--data", "digits", "--method", "revar", "--epochs", "1", "--out", "run"]
    settings = ["--set", "interval=3", "--set", "scorer=features", "--set", "dropout_rate=0.2"]
    assert run([*arguments, *settings]) == 0
    recipe = json.loads(Path("run/recipe.json").read_text())
    assert recipe["method"]["interval"] == 3
    assert recipe["method"]["scorer"] == "features"
    assert recipe["dropout"]["rate"] == 0.2


def test_meta_and_unlabelled_data_of_their_own(here: Path) -> None:
    for name, n, seed in (("train", 120, 0), ("meta", 40, 1), ("target", 40, 2)):
        x, y = images(n, seed)
        np.savez(f"{name}.npz", x=x, y=y)
    arguments = ["train", "--data", "train.npz", "--out", "run", "--epochs", "3"]
    arguments += ["--method", "revar"]
    extra = ["--meta", "meta.npz", "--unlabelled", "target.npz", "--set", "unlabelled=pooled"]
    assert run([*arguments, *extra, "--set", "interval=1"]) == 0


def test_groups_of_a_table(here: Path) -> None:
    lines = table(200).splitlines()
    grouped = [f"{lines[0]},patient"] + [f"{line},p{i // 4}" for i, line in enumerate(lines[1:])]
    Path("p.csv").write_text("\n".join(grouped))
    arguments = ["train", "--data", "p.csv", "--target", "outcome", "--group", "patient"]
    assert run([*arguments, "--out", "run", "--epochs", "2", "--method", "erm"]) == 0
    model = json.loads(Path("run/model.json").read_text())
    assert [column["name"] for column in model["inputs"]["columns"]] == ["age", "city", "note"]


def test_version_and_help(capsys: Capture) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("revar 0.")
    for arguments in (["--help"], ["train", "--help"], ["predict", "-h"]):
        assert run(arguments) == 0
        assert "Usage" in capsys.readouterr().out


def test_the_help_names_the_folder_that_is_written_by_default(capsys: Capture) -> None:
    assert run(["train", "--help"]) == 0
    assert "runs/DATA-METHOD-seedSEED" in capsys.readouterr().out


def test_a_folder_is_the_same_with_a_slash_at_its_end(here: Path) -> None:
    for k in range(2):
        Path(f"photos/c{k}").mkdir(parents=True)
        for i in range(20):
            Image.new("RGB", (8, 8), (10 * i, 80 * k, 0)).save(f"photos/c{k}/{i}.png")
    arguments = ["--out", "run", "--epochs", "1", "--method", "erm"]
    assert run(["train", "--data", "photos/", *arguments]) == 0
    assert run(["train", "--data", "photos", *arguments, "--resume"]) == 0


def test_real_images_of_two_classes(here: Path, real_data: Path, capsys: Capture) -> None:
    """CIFAR-10 test images of ships and frogs, as a user would bring them: an .npz, no options."""
    with Image.open(real_data / "cifar10" / "test_batch.webp") as picture:
        sheet = np.asarray(picture)
    columns = sheet.shape[1] // 32
    tiles = sheet.reshape(-1, 32, columns, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)[:10000]
    labels = np.load(real_data / "cifar10" / "labels.npz")["test"]
    rows = np.flatnonzero(np.isin(labels, (6, 8)))[:900]
    x, y = tiles[rows], np.where(labels[rows] == 6, "frog", "ship")
    np.savez("cifar.npz", x=x[:600], y=y[:600], x_test=x[600:], y_test=y[600:])
    assert run(["train", "--data", "cifar.npz", "--out", "run", "--epochs", "3"]) == 0
    capsys.readouterr()
    assert run(["evaluate", "run", "--json"]) == 0
    figures = json_of(capsys)
    assert figures["accuracy"] > 0.8  # type: ignore[operator]
    scores: dict[str, dict[str, float]] = figures["scores"]  # type: ignore[assignment]
    assert scores["uscore"]["auarc"] > figures["accuracy"]  # type: ignore[operator]


def test_blocks_are_recomputed_on_request(here: Path, capsys: Capture) -> None:
    arguments = ["train", "--data", "digits", "--epochs", "1", "--method", "erm"]
    for name, more in (("usual", []), ("again", ["--set", "recompute=true"])):
        assert run([*arguments, "--out", name, *more]) == 0
    recipes = [json.loads((here / n / "recipe.json").read_text()) for n in ("usual", "again")]
    assert [recipe["budget"]["recompute"] for recipe in recipes] == [False, True]
    weights = [load_file(here / n / "weights.safetensors") for n in ("usual", "again")]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])
    capsys.readouterr()
    assert run([*arguments, "--out", "odd", "--set", "recompute=often"]) == 2
    assert "recompute" in capsys.readouterr().err
