"""What lies in the files, what is refused, and how it is said."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import revar
from revar import SelectiveClassifier
from revar.cli import run
from revar.errors import DataWarning, InputError
from revar.export import export_model
from revar.run import RunFolder
from support.exported import onnx_runner, runners, same_as_model, torch_runner, train
from support.problems import CPU, blobs
from support.serving import save_frame

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def trained() -> SelectiveClassifier:
    """Shared: tests that set a threshold set their own."""
    x, y = blobs(120)
    labels = np.array(["red", "grün", "blue"])[y]
    clf = SelectiveClassifier("revar", epochs=1, batch_size=32, device="cpu", random_state=0)
    return clf.fit(x, labels)


def test_the_command_writes_what_predict_says(
    trained: SelectiveClassifier, tmp_path: Path, capsys: Capture
) -> None:
    x_cal, y_cal = blobs(80, seed=1)
    trained.set_threshold(x_cal, np.array(["red", "grün", "blue"])[y_cal], coverage=0.6)
    trained.save(tmp_path / "run")
    x = blobs(40, seed=2)[0].astype(np.float32)
    np.savez(tmp_path / "new.npz", x=x)
    out = tmp_path / "model.onnx"
    assert run(["export", str(tmp_path / "run"), "--to", "onnx", "--out", str(out)]) == 0
    captured = capsys.readouterr()
    assert "model.onnx.json" in captured.out
    assert captured.err == ""
    table = tmp_path / "table.csv"
    arguments = ["predict", str(tmp_path / "run"), str(tmp_path / "new.npz")]
    assert run([*arguments, "--out", str(table)]) == 0
    found = onnx_runner(out)(x)
    classes = json.loads((tmp_path / "model.onnx.json").read_text(encoding="utf-8"))["classes"]
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [classes[k] for k in found["predicted"]]
    assert [row["accepted"] == "true" for row in rows] == found["accepted"].tolist()
    said = [float(row["uncertainty"]) for row in rows]
    np.testing.assert_allclose(found["uncertainty"], said, rtol=1e-5, atol=1e-6)


def test_the_description_is_beside_the_file_and_in_it(
    trained: SelectiveClassifier, tmp_path: Path
) -> None:
    said = trained.export(tmp_path / "m.onnx")
    assert trained.export(tmp_path / "m.pt2") == said
    beside = (tmp_path / "m.onnx.json").read_text(encoding="utf-8")
    assert json.loads(beside) == said == json.loads((tmp_path / "m.pt2.json").read_text("utf-8"))
    inside = {p.key: p.value for p in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert inside["revar"] == beside
    extra = {"revar.json": ""}
    torch.export.load(str(tmp_path / "m.pt2"), extra_files=extra)
    assert extra["revar.json"] == beside
    assert said["classes"] == ["blue", "grün", "red"]
    assert said["revar"] == revar.__version__
    assert said["model"] == trained.model_.digest
    assert said["score"] == trained.model_.fitted.default_score
    assert said["input"] == {"name": "x", "dtype": "float32", "shape": ["n", 4]}
    names = [output["name"] for output in said["outputs"]]
    assert {"logits", "predicted", "score_uscore", "uncertainty", "accepted"} <= set(names)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "m.onnx", "m.onnx.json", "m.pt2", "m.pt2.json",
    ]  # fmt: skip


def test_a_torch_program_holds_no_pickle(trained: SelectiveClassifier, tmp_path: Path) -> None:
    trained.export(tmp_path / "m.pt2")
    with zipfile.ZipFile(tmp_path / "m.pt2") as archive:
        for name in archive.namelist():
            data = archive.read(name)
            # A pickle of protocol 2 or later, bare or in a zip of torch.save.
            assert data[:1] != b"\x80" or "weights/" in name, name
            assert b"data.pkl" not in data, name


def test_a_file_runs_where_revar_is_not(trained: SelectiveClassifier, tmp_path: Path) -> None:
    trained.export(tmp_path / "m.onnx")
    script = (
        "import sys, numpy as np, onnxruntime\n"
        f"s = onnxruntime.InferenceSession({str(tmp_path / 'm.onnx')!r})\n"
        "out = s.run(['predicted', 'accepted'], {'x': np.zeros((4, 4), np.float32)})\n"
        "assert len(out[0]) == len(out[1]) == 4\n"
        "assert not {'revar', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_a_threshold_that_will_do_everything_is_rejected(tmp_path: Path) -> None:
    clf = SelectiveClassifier("erm", epochs=1, batch_size=32, device="cpu", random_state=0)
    clf.fit(*blobs(90))
    x = blobs(30, seed=2)[0].astype(np.float32)
    said = clf.export(tmp_path / "open.pt2")
    assert said["rule"] == "answer everything"
    assert said["threshold"] is None
    assert "everything is accepted" in said["notes"][0]
    assert torch_runner(tmp_path / "open.pt2")(x)["accepted"].all()
    with pytest.warns(DataWarning, match="everything is rejected"):
        clf.set_threshold(*blobs(60, seed=1), max_risk=1e-6)
    said = clf.export(tmp_path / "shut.pt2")
    assert said["rule"] == "abstain always"
    assert not torch_runner(tmp_path / "shut.pt2")(x)["accepted"].any()


def test_a_table_with_named_columns_brings_its_encoder(tmp_path: Path) -> None:
    """Filled by the description alone, as somebody without this package would."""
    served = save_frame(tmp_path / "run")
    model = RunFolder(tmp_path / "run").load(device=CPU)
    unseen: pd.DataFrame = served.unseen.copy()
    unseen.loc[unseen.index[:3], "eyes"] = "neither"
    for run_graph in runners(model, tmp_path).values():
        same_as_model(run_graph(_filled(tmp_path, unseen)), model, unseen)


def test_a_table_with_numbers_far_from_zero_takes_doubles(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"seconds": 1.7e9 + generator.integers(0, 900, 300), "size": 1.0})
    frame["size"] += generator.normal(size=300)
    y = (frame.seconds - 1.7e9 > 450).astype(int)
    clf = SelectiveClassifier("erm", epochs=20, device="cpu", random_state=0).fit(frame, y)
    assert clf.score(frame, y) > 0.9
    clf.save(tmp_path / "run")
    model = RunFolder(tmp_path / "run").load(device=CPU)
    ran = runners(model, tmp_path)
    assert json.loads((tmp_path / "model.onnx.json").read_text())["input"]["dtype"] == "float64"
    for run_graph in ran.values():
        same_as_model(run_graph(_filled(tmp_path, frame)), model, frame)


def _filled(folder: Path, frame: pd.DataFrame) -> Any:
    reads = json.loads((folder / "model.onnx.json").read_text())["input"]
    columns, dtype = reads["columns"], np.dtype(reads["dtype"])
    x = np.empty((len(frame), len(columns)), dtype=dtype)
    for j, column in enumerate(columns):
        values = frame[column["name"]]
        if column["type"] == "number":
            x[:, j] = values.to_numpy(dtype=dtype)
        else:
            place = {category: k for k, category in enumerate(column["categories"])}
            x[:, j] = [place.get(value, -1) for value in values]
    return x


def test_dropout_in_the_trunk_is_said_not_exported(tmp_path: Path) -> None:
    model = train("erm", "mlp", *blobs(90), dropout_placement="everywhere")
    model.fitted = replace(model.fitted, default_score="mcd")
    said = export_model(model, tmp_path / "m.pt2").description
    assert said["score"] == "softmax"
    assert "softmax is used instead" in said["notes"][0]
    model.select(*blobs(60, seed=1), coverage=0.5, score="mcd")
    with pytest.raises(InputError, match=r"exported: revar select RUN .*softmax") as told:
        export_model(model, tmp_path / "n.pt2")
    assert "\n" not in str(told.value)
    assert not (tmp_path / "n.pt2").exists()


class Restless(nn.Module):
    """Says something else every time, once it is awake: at first it would be refused."""

    awake = False

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.layer(x)
        return hidden + 3 * torch.randn_like(hidden) if self.awake else hidden


def test_a_network_that_is_not_a_function_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clf = SelectiveClassifier(
        "erm", Restless(), epochs=1, batch_size=32, test_passes=0, device="cpu", random_state=0
    ).fit(*blobs(90))
    monkeypatch.setattr(Restless, "awake", True)
    with pytest.raises(InputError, match="differs from the model"):
        clf.export(tmp_path / "m.pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--to", "tflite", "--out", "m.onnx"], "onnx or torch is needed"),
        (["--to", "torch", "--out", "m.onnx"], "writes a .pt2 file"),
        (["--to", "onnx", "--out", "there.onnx"], "exists"),
        (["--to", "onnx", "--out", "nowhere/m.onnx"], "no folder"),
    ],
)
def test_refusals_are_one_line(
    trained: SelectiveClassifier, tmp_path: Path, arguments: list[str], said: str, capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    trained.save("run")
    Path("there.onnx").touch()
    assert run(["export", "run", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_the_end_of_the_name_says_the_kind(trained: SelectiveClassifier, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"neither \.onnx nor \.pt2"):
        trained.export(tmp_path / "model.bin")


def test_the_digest_is_that_of_the_saved_run(trained: SelectiveClassifier, tmp_path: Path) -> None:
    trained.save(tmp_path / "run")
    loaded = RunFolder(tmp_path / "run").load(device=CPU)
    assert loaded.digest == trained.model_.digest
    weight = next(loaded.networks.classifier.parameters())
    with torch.no_grad():
        weight.view(-1)[0] += 1e-3
    assert loaded.digest != trained.model_.digest
