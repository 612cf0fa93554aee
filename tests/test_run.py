from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from revar.commands.evaluate import evaluate
from revar.commands.predict import predict
from revar.commands.select import select
from revar.commands.train import train
from revar.errors import InputError
from revar.metrics import auarc
from revar.run import RunFolder
from support.problems import CPU, blobs

FAST = {"batch_size": "32", "test_passes": "4"}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "blobs.npz"
    (x, y), (x_test, y_test) = blobs(), blobs(120, seed=1)
    np.savez(path, x=x, y=y, x_test=x_test, y_test=y_test)
    return path


@pytest.fixture(scope="module")
def run(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Of a method that has all a run can have: a meta set, weights and a U-Score."""
    out = tmp_path_factory.mktemp("runs") / "run"
    return train(str(archive), out, method="revar", epochs=4, settings=FAST)


def test_a_run_is_a_folder(run: RunFolder) -> None:
    names = {str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file()}
    assert names == {
        "recipe.json", "model.json", "scores.json", "state.json", "provenance.json",
        "weights.safetensors", "optimiser.safetensors", "fingerprints.safetensors",
        "metrics.csv", "log.jsonl", "manifest.json", ".lock",
        *(f"predictions/{split}.safetensors" for split in ("train", "meta", "tune", "test")),
    }  # fmt: skip


def test_nothing_in_it_is_pickled(run: RunFolder) -> None:
    """Every file is JSON, CSV or safetensors, which starts with the length of a JSON header."""
    for path in run.path.rglob("*"):
        if path.suffix == ".safetensors":
            start = path.read_bytes()
            length = int.from_bytes(start[:8], "little")
            json.loads(start[8 : 8 + length])
        elif path.suffix == ".json":
            json.loads(path.read_text())
        elif path.is_file():
            path.read_text()


def test_the_log_has_a_line_an_epoch(run: RunFolder) -> None:
    lines = [json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert lines[-1]["meta_loss"] > 0
    assert lines[-1]["weight_mean"] == pytest.approx(1.0, abs=1e-3)
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_training_points_carry_uscore_weight_and_where_they_come_from(
    run: RunFolder, archive: Path
) -> None:
    stored = load_file(run.path / "predictions" / "train.safetensors")
    _, y = blobs()
    assert {"column.uscore", "column.weight", "index", "labels"} <= stored.keys()
    # The index finds the rows of the user's own file again.
    assert np.array_equal(y[stored["index"]], stored["labels"])
    assert len(np.unique(stored["index"])) == len(stored["index"]) == 192


def test_metrics_csv_has_every_figure_of_every_split(run: RunFolder) -> None:
    with (run.path / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["split"] for row in rows} == {"train", "meta", "tune", "test"}
    cell = next(
        row
        for row in rows
        if (row["split"], row["score"], row["metric"]) == ("test", "softmax", "auarc")
    )
    assert float(cell["value"]) == evaluate(run.path).figures["scores"]["softmax"]["auarc"]


def test_evaluate_reads_the_stored_predictions(run: RunFolder) -> None:
    result = evaluate(run.path)
    assert result.figures["n"] == 120
    assert result.figures["accuracy"] > 0.9
    assert result.figures["default_score"] == "fused"


def test_evaluate_on_other_data_equals_the_model_on_it(archive: Path, tmp_path: Path) -> None:
    folder = train(str(archive), tmp_path / "run", epochs=2, settings=FAST, method="erm")
    x, y = blobs(90, seed=7)
    np.savez(tmp_path / "other.npz", x=x, y=y)
    result = evaluate(folder.path, on=str(tmp_path / "other.npz"))
    model = folder.load(device=CPU)
    predictions = model.predict(x, y)
    expected = auarc(model.uncertainty(predictions, "softmax"), predictions.correct())
    assert result.figures["scores"]["softmax"]["auarc"] == expected
    assert "on-other" in folder.prediction_names()
    with (folder.path / "metrics.csv").open() as file:
        assert {"test", "on-other"} <= {row["split"] for row in csv.DictReader(file)}


def test_evaluating_on_training_data_is_refused(run: RunFolder, tmp_path: Path) -> None:
    x, y = blobs()
    np.savez(tmp_path / "again.npz", x=x, y=y)
    with pytest.raises(InputError, match=r"100% of these rows are in the train, .* splits and"):
        evaluate(run.path, on=str(tmp_path / "again.npz"))


def test_a_run_without_a_test_split_says_so(tmp_path: Path) -> None:
    x, y = blobs()
    np.savez(tmp_path / "d.npz", x=x, y=y)
    folder = train(str(tmp_path / "d.npz"), tmp_path / "r", epochs=1, method="erm", settings=FAST)
    with pytest.raises(InputError, match="without a test split: give one with --on"):
        evaluate(folder.path)


def test_an_existing_folder_is_not_overwritten(run: RunFolder, archive: Path) -> None:
    before = (run.path / "weights.safetensors").read_bytes()
    with pytest.raises(InputError, match="holds a run already: use --resume"):
        train(str(archive), run.path, method="revar", epochs=4, settings=FAST)
    assert (run.path / "weights.safetensors").read_bytes() == before


def test_resuming_a_finished_run_changes_nothing(run: RunFolder, archive: Path) -> None:
    def state() -> dict[Path, tuple[int, bytes]]:
        files = [path for path in run.path.rglob("*") if path.is_file()]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}

    before = state()
    train(str(archive), run.path, method="revar", epochs=4, settings=FAST, resume=True)
    assert state() == before


def test_resuming_a_finished_run_removes_what_a_kill_left(
    run: RunFolder, archive: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(run.path, out)
    half = out / ".checkpoint-000000007-000001.new"
    half.mkdir()
    for path in (half / "weights.safetensors", half / ".state.json.new", out / ".metrics.csv.new"):
        path.write_bytes(b"half")
    train(str(archive), out, method="revar", epochs=4, settings=FAST, resume=True)
    left = {path.relative_to(out) for path in out.rglob("*")}
    assert left == {path.relative_to(run.path) for path in run.path.rglob("*")}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epochs": 5}, "its budget.epochs is 4, not 5"),
        ({"seed": 1}, "holds another run"),
        ({"method": "erm", "settings": {**FAST, "meta_fraction": "0.1"}}, "its method.name is"),
        ({"settings": {**FAST, "interval": "7"}}, "its method.interval is 10, not 7"),
    ],
)
def test_resuming_another_recipe_is_refused_and_the_field_named(
    run: RunFolder, archive: Path, change: dict[str, object], words: str
) -> None:
    arguments = {"method": "revar", "epochs": 4, "settings": FAST, **change}
    with pytest.raises(InputError, match=words):
        train(str(archive), run.path, resume=True, **arguments)  # type: ignore[arg-type]


def test_a_run_that_is_older_than_a_field_goes_on(
    run: RunFolder, archive: Path, tmp_path: Path
) -> None:
    """What it lacks is what it would have now, if not told otherwise."""
    out = tmp_path / "older"
    shutil.copytree(run.path, out)
    recipe = json.loads((out / "recipe.json").read_text())
    del recipe["budget"]["recompute"], recipe["method"]["scorer_reduction"]
    del recipe["data"]["labels"], recipe["data"]["classes"], recipe["data"]["unlabelled_rows"]
    folder = RunFolder(out)
    folder.store.write_json("recipe.json", recipe)
    train(str(archive), out, method="revar", epochs=4, settings=FAST, resume=True)
    with pytest.raises(InputError, match=r"its budget.recompute is False, not True"):
        train(
            str(archive), out, method="revar", epochs=4, resume=True,
            settings={**FAST, "recompute": "true"},
        )  # fmt: skip


@pytest.mark.parametrize("part", ["y", "y_test"])
def test_resuming_with_other_labels_of_the_same_sum_is_refused(
    part: str, run: RunFolder, archive: Path, tmp_path: Path
) -> None:
    out, other = tmp_path / "run", tmp_path / "blobs.npz"
    shutil.copytree(run.path, out)
    arrays = dict(np.load(archive))
    arrays[part] = np.random.default_rng(0).permutation(arrays[part])
    np.savez(other, **arrays)
    recipe = json.loads((out / "recipe.json").read_text())
    recipe["data"]["spec"] = str(other)
    RunFolder(out).store.write_json("recipe.json", recipe)
    with pytest.raises(InputError, match=r"holds another run: its data\."):
        train(str(other), out, method="revar", epochs=4, settings=FAST, resume=True)


def test_resuming_on_other_data_is_refused(run: RunFolder, tmp_path: Path) -> None:
    x, y = blobs(seed=3)
    np.savez(tmp_path / "blobs.npz", x=x, y=y)
    with pytest.raises(InputError, match="holds another run"):
        train(
            str(tmp_path / "blobs.npz"), run.path, method="revar", epochs=4, settings=FAST,
            resume=True,
        )  # fmt: skip


def test_a_run_that_cannot_start_leaves_nothing(archive: Path, tmp_path: Path) -> None:
    out = tmp_path / "a" / "run"
    settings = {**FAST, "interval": "1000", "warmup": "0.5"}
    with pytest.raises(InputError, match="never be updated"):
        train(str(archive), out, method="revar", epochs=1, settings=settings)
    assert not out.parent.exists()


def test_predictions_have_the_documented_columns(run: RunFolder, tmp_path: Path) -> None:
    x, _ = blobs(30, seed=8)
    np.savez(tmp_path / "new.npz", x=x)
    table = predict(run.path, str(tmp_path / "new.npz"), coverage=0.8)
    assert table.header == [
        "input", "label", "accepted", "uncertainty",
        "probability_0", "probability_1", "probability_2",
    ]  # fmt: skip
    assert len(table.rows) == 30
    assert table.accepted == sum(row[2] == "true" for row in table.rows) == 24
    accepted = [float(row[3]) for row in table.rows if row[2] == "true"]
    rejected = [float(row[3]) for row in table.rows if row[2] == "false"]
    assert max(accepted) <= min(rejected)
    for row in table.rows:
        assert sum(map(float, row[4:])) == pytest.approx(1.0, abs=1e-5)
    assert "no threshold is stored" in table.note


def test_without_a_threshold_everything_is_accepted_and_it_says_so(
    run: RunFolder, tmp_path: Path
) -> None:
    np.savez(tmp_path / "new.npz", x=blobs(10, seed=8)[0])
    table = predict(run.path, str(tmp_path / "new.npz"))
    assert table.accepted == 10
    assert "everything is accepted" in table.note


def test_predictions_by_another_score(run: RunFolder, tmp_path: Path) -> None:
    copy, new = tmp_path / "copy", tmp_path / "new.npz"
    shutil.copytree(run.path, copy)
    x, _ = blobs(30, seed=8)
    np.savez(new, x=x)
    table = predict(copy, str(new), coverage=0.5, score="uscore")
    model = RunFolder(copy).load(device=CPU)
    wanted = model.uncertainty(model.predict(x), "uscore")
    np.testing.assert_allclose([float(row[3]) for row in table.rows], wanted, rtol=1e-5)
    assert table.accepted == 15
    with pytest.raises(InputError, match='unknown score "nope"'):
        predict(copy, str(new), score="nope")
    held, truth = blobs(90, seed=9)
    np.savez(tmp_path / "held.npz", x=held, y=truth)
    select(copy, on=str(tmp_path / "held.npz"), coverage=0.7, score="softmax")
    assert "coverage" in predict(copy, str(new)).note
    said = "is one of softmax, not of uscore: give --coverage or --max-risk, or revar select RUN"
    with pytest.raises(InputError, match=said):
        predict(copy, str(new), score="uscore")
    with pytest.raises(InputError, match="is one of softmax, not of uscore"):
        predict(copy, str(new), score="own")
    table = predict(copy, str(new), coverage=0.9, score="uscore")
    assert "from the calibration data" in table.note
    select(copy, on=str(tmp_path / "held.npz"), coverage=0.7, score="own")
    assert predict(copy, str(new), score="uscore").rows == predict(copy, str(new)).rows
    np.testing.assert_allclose([float(row[3]) for row in table.rows], wanted, rtol=1e-5)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"is no run: it has no recipe\.json"):
        evaluate(tmp_path)


def test_weights_of_another_network_are_refused(run: RunFolder, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run.path, copy)
    store = RunFolder(copy).store
    store.write_json("recipe.json", {**store.read_json("recipe.json"), "backbone": "linear"})
    with pytest.raises(InputError, match="do not fit"):
        RunFolder(copy).load(device=CPU)
