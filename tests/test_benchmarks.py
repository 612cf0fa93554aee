"""Benchmarks run, at the smallest size; their figures are for people, not for tests."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from support.scripts import scripts

ROOT = Path(__file__).parents[1]


def test_the_meta_step_benchmark_measures_every_engine(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    arguments = ["--classifier", "convnet", "--scorer", "convnet", "--size", "8", "--batch", "4"]
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "benchmarks" / "meta_step.py"), *arguments,
            "--passes", "2", "--repeats", "1", "--warmup", "1", "--json", str(out),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert {"command", "commit", "date", "peers", "processor"} <= found["setting"].keys()
    engines = found["engines"]
    peers = {"double backward": "torch", "higher": "higher", "TorchOpt": "torchopt"}
    peers = {f"{name}, T full passes": peers[name] for name in peers}
    assert {"forward mode, shared trunk", "betty, T full passes", *peers} <= engines.keys()
    for name, figures in engines.items():
        assert name in done.stdout
        module = "betty" if name.startswith("betty") else peers.get(name, "torch")
        if importlib.util.find_spec(module) is None:
            assert "is not installed" in figures["missing"]
            continue
        if "replayed" in name and not torch.cuda.is_available():
            assert figures == {"missing": "needs a GPU"}
            continue
        assert not {"error", "gradient_error"} & figures.keys(), f"{name}: {figures}"
        assert figures["ms"] > 0
        assert figures["time_ratio"] > 0
        assert figures["time_ratio_full_passes"] > 0
        if not any(word in name for word in ("plain", "replayed")):
            assert figures["cosine_float64"] > 0.9, name
        if name in peers:
            assert figures["relative_error_float64"] < 1e-10, name
            assert figures["relative_error_float32"] < 1e-3, name


def test_the_metrics_benchmark_measures_ours_and_names_absent_peers(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    sizes = ["--sizes", "500", "--tied-size", "300", "--bootstrap-size", "100"]
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "benchmarks" / "metrics.py"), *sizes,
            "--resamples", "10", "--repeats", "1", "--json", str(out),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert {"command", "commit", "date", "processor"} <= found["setting"].keys()
    libraries = {"torch-uncertainty": "torch_uncertainty", "MAPIE": "mapie"}
    for name, figures in found["500"].items():
        module = libraries.get(name.split(":")[0])
        if "own code" in name:
            assert "checkout" in figures["skipped"]
        elif module is not None and importlib.util.find_spec(module) is None:
            assert figures == {"skipped": "not installed"}
        else:
            assert figures["seconds"] > 0, f"{name}: {figures}"
        assert name in done.stdout
    exact = found["exact_tied_aurc"]
    for name in ("revar: all eight figures", "revar: AURC alone", "revar: risk-coverage curve"):
        assert list(found["500"][name]["tied_values"].values()) == pytest.approx([exact, exact])
    assert found["compare"]["2 methods"]["seconds"] > 0


def test_the_table_of_peers_shows_where_they_differ(tmp_path: Path) -> None:
    out = tmp_path / "peers.csv"
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "peers.py"), "--csv", str(out)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    said = {(row["figure"], row["data"], row["library"]): row["answer"] for row in rows}
    first = said["AURC", "200 tied scores, errors first", "revar"]
    assert first == said["AURC", "200 tied scores, errors last", "revar"]
    ece = ("ECE, 10 bins", "p = [0.95, 1.0], y = [1, 0]")
    assert said[*ece, "revar"] == "0.4750"
    assert said[*ece, "torchmetrics"] == "0.5250"
    assert said["AUC of the kept half", "the two kept are of class 1", "revar"] == "nan, warns"
    assert said["AURC", "all scores NaN", "revar"] == "ValueError"
    assert all(f"| {row['answer']} |" in done.stdout for row in rows)
    for library, module in (("torch-uncertainty", "torch_uncertainty"), ("MAPIE", "mapie")):
        absent = importlib.util.find_spec(module) is None
        assert (library in done.stdout.partition("left out:")[2]) == absent


def test_the_comparison_of_methods_goes_on_where_it_stopped(tmp_path: Path) -> None:
    command = [sys.executable, "benchmarks/methods.py", "--data", "digits", "--train", "300"]
    command += ["--backbone", "mlp", "--epochs", "2", "--seeds", "1", "--workers", "1"]
    command += ["--noise", "0.4", "--out", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for methods in (["erm"], ["erm", "sat"]):
        done = subprocess.run(
            [*command, "--methods", *methods], capture_output=True, text=True, check=False,
            cwd=ROOT, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert "1/1 sat" in done.stdout, "erm was trained again"
    assert "| sat | abstention |" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "auarc.png").stat().st_size > 5_000
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 3


def test_the_rates_of_the_controlled_study_are_chosen_by_a_grid(tmp_path: Path) -> None:
    out = tmp_path / "rates.csv"
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "benchmarks" / "controlled_rates.py"), "--scale", "smoke",
            "--methods", "ibr", "--workers", "1", "--out", str(out),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(list(csv.DictReader(out.read_text().splitlines()))) == 6
    assert done.stdout.startswith("ibr: inner")


def test_floors_are_counted_from_shapes() -> None:
    """A ResNet-18 at 32 px has 0.56 G multiply-adds; its first layer differentiates no images."""
    with scripts("floors", floors="floors") as found:
        count = found.floors.counted
        flops, moved = count("resnet18-cifar", 32, 8)
        assert flops == pytest.approx(8 * 6 * 0.556e9, rel=0.01)
        twice, more = count("resnet18-cifar", 32, 16)
        assert twice == 2 * flops
        # Weights, and what the optimiser does to them, do not grow with the batch.
        assert 1 < sum(more.values()) / sum(moved.values()) < 2
        assert set(moved) == {*found.floors.KINDS, "rest"}
        # Each normalised value is read and written once forward, two are read and one written back.
        kept = count("resnet20", 8, 4)[1]["batch norm"], count("resnet20", 8, 2)[1]["batch norm"]
        values = 2 * (64 * 16 * 7 + 16 * 32 * 6 + 4 * 64 * 6)
        assert kept[0] - kept[1] == 2 * 5 * values


def test_memory_is_measured_in_every_way(tmp_path: Path) -> None:
    out = tmp_path / "memory.json"
    arguments = ["--backbone", "resnet20", "--size", "16", "--batch", "16", "--rows", "4"]
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "benchmarks" / "memory.py"), *arguments,
            "--repeats", "1", "--json", str(out),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "against as usual" in done.stdout
    found = json.loads(out.read_text())
    assert {"command", "commit", "date", "processor", "gpu", "settings"} <= found.keys()
    for method in ("erm", "revar-paper", "shared gradient"):
        usual, parts, blocks = (
            found["settings"][method + way] for way in ("", ", micro_batch=4", ", recompute")
        )
        assert usual["ratio"] == 1
        assert usual["kept_mib"] > 2 * blocks["kept_mib"] > 2 * parts["kept_mib"] > 0
        assert usual["made_mib"] > max(blocks["made_mib"], usual["kept_mib"])
    # The graph of the training step stays until it was followed.
    made = [found["settings"][name]["made_mib"] for name in ("revar-paper", "shared gradient")]
    assert made[1] > 1.5 * made[0]


def test_tensors_are_counted_while_they_live() -> None:
    with scripts("memory", memory="memory") as found, found.memory.Alive() as alive:
        there = torch.ones(1000)
        first = there + 1
        view = first[:10]
        del first
        assert alive.now == 8000
        del view
        assert alive.now == 4000
        there.add_(1)
        del there
        assert (alive.now, alive.most) == (0, 8000)


def test_a_profile_says_where_the_time_goes(tmp_path: Path) -> None:
    out = tmp_path / "kernels.json"
    done = subprocess.run(
        [
            sys.executable, str(ROOT / "benchmarks" / "kernels.py"), "--backbone", "mlp",
            "--size", "0", "--batch", "16", "--intervals", "1", "--json", str(out),
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())["settings"]
    assert found.keys() == {"erm", "features", "trajectory"}
    for one in found.values():
        assert sum(one["kinds"].values()) == pytest.approx(one["busy"])
        assert 0 < one["busy"] < one["profiled"]
        assert one["kinds"]["convolutions and products"] > 0
        assert len(one["slowest"]) == 10
    assert found["features"]["kernels"] > found["erm"]["kernels"] > 20


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ([], 0),
        ([(0, 3), (3, 5)], 5),
        ([(0, 10), (2, 4), (3, 12), (20, 21)], 13),
        ([(20, 21), (0, 1)], 2),
    ],
)
def test_time_in_which_kernels_run_counts_once(
    times: list[tuple[float, float]], wanted: float
) -> None:
    with scripts("kernels", kernels="kernels") as found:
        assert found.kernels.busy([found.kernels.Kernel("", *pair) for pair in times]) == wanted


def test_figures_say_what_made_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks/some.py", "--json", "/somewhere/some.json"])
    monkeypatch.setenv("REVAR_COMMIT", "abc1234")
    with scripts("where", where="where") as found:
        made = found.where.here()
        found.where.keep(tmp_path / "new" / "some.json", {**made, "figure": 1})
        found.where.keep(None, {})
        assert made["command"] == "python benchmarks/some.py --json some.json"
        assert (made["commit"], made["gpu"]) == ("abc1234", None)
        monkeypatch.delenv("REVAR_COMMIT")
        assert found.where.commit() != "abc1234"
    assert json.loads((tmp_path / "new" / "some.json").read_text()) == {**made, "figure": 1}
    assert [file.name for file in tmp_path.iterdir()] == ["new"]


def test_times_of_one_device_are_what_the_estimate_reads(tmp_path: Path) -> None:
    out = tmp_path / "one.json"
    small = ["--backbone", "convnet", "--scorer", "convnet", "--size", "8", "--batch", "8"]
    subprocess.run(
        [
            sys.executable, str(ROOT / "benchmarks" / "one_gpu.py"), *small, "--classes", "3",
            "--steps", "2", "--device", "cpu", "--json", str(out),
        ],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    found = json.loads(out.read_text())
    for times in (found, found["replayed"]):
        assert times["plain_step_ms"] > 0
        assert times["weighted_step_ms"] > 0
        # A difference of two times, of either sign where a machine is busy.
        assert math.isfinite(times["meta_step_ms"])
    assert found["batch_per_gpu"] == 8
    assert "not replayed" in found["source"]


def test_what_a_meta_step_adds_is_over_a_weighted_one() -> None:
    with scripts("one_gpu", one_gpu="one_gpu") as found:
        times = found.one_gpu.for_the_estimate({"plain": 3.0, "weighted": 4.0, "both": 9.0})
    assert times == {"plain_step_ms": 3.0, "weighted_step_ms": 4.0, "meta_step_ms": 5.0}


def test_a_shared_gradient_is_compared_with_a_look_ahead_of_its_own(tmp_path: Path) -> None:
    out = tmp_path / "clusters.json"
    subprocess.run(
        [
            sys.executable, str(ROOT / "benchmarks" / "shared_gradient.py"), "--seeds", "1",
            "--json", str(out),
        ],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    found = json.loads(out.read_text())["relative_weights"]
    assert found["perceptron"]["its own"][0] < 0.8
    assert list(found) == ["mlp", "perceptron"]
    for ways in found.values():
        assert list(ways) == ["its own", "the training step"]
