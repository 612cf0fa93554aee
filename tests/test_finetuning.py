"""Starting from trained weights, with any method."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
import timm
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file, save_file
from sklearn.base import clone
from torch import Tensor, nn

from revar.cli import run
from revar.commands.train import train
from revar.data.source import Part, Source
from revar.errors import InputError
from revar.estimator import SelectiveClassifier
from revar.fitting import build_networks, fit_model
from revar.methods.erm import ERM
from revar.model import Model
from revar.nets.base import Classifier, Dropout
from revar.nets.build import Backbone
from revar.nets.external import from_timm
from revar.nets.finetuning import input_statistics, layer_rates
from revar.optimisers import make_optimiser
from revar.progress import Silent
from revar.recipe import Budget, Recipe, Start, make_method, with_settings
from revar.registry import METHODS
from revar.run import RunFolder
from revar.training import InterruptedRun
from revar.types import Task
from support.problems import CPU, blobs, fit, recipe, source

IMAGES = (3, 32, 32)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The weights of a run of ours on three clusters."""
    path = tmp_path_factory.mktemp("trained") / "weights.safetensors"
    save_file(fit("erm").networks.trained_state(), path)
    return path


def weights(model: Model) -> dict[str, Tensor]:
    return model.networks.trained_state()


def of_trunk(state: dict[str, Tensor]) -> dict[str, Tensor]:
    kept = ("classifier.trunk.", "normalise.")
    return {k: v for k, v in state.items() if k.startswith(kept) and "num_batches" not in k}


def same(one: dict[str, Tensor], two: dict[str, Tensor]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)


def read(path: Path) -> dict[str, Tensor]:
    return load_file(path)


# --- what is chosen


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layer_decay": 0.0}, "layer_decay is 0.0, it must be in"),
        ({"layer_decay": 1.5}, "layer_decay is 1.5, it must be in"),
        ({"frozen": True, "layer_decay": 0.5}, "it must be 1 with a frozen trunk"),
        ({"frozen": True, "keep_statistics": False}, "it must be true with a frozen trunk"),
        ({"pretrained": 3}, "pretrained is 3, it must be text or none"),
    ],
)
def test_a_start_that_makes_no_sense_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Start(**values)


def test_a_random_trunk_is_not_frozen() -> None:
    with pytest.raises(InputError, match="the trunk would stay random"):
        Recipe(method=ERM(), start=Start(frozen=True))
    Recipe(method=ERM(), start=Start(frozen=True), backbone="custom")


def test_a_recipe_keeps_its_start_and_reads_those_from_before_there_was_one() -> None:
    started = Recipe(method=ERM(), start=Start(pretrained="w.pth", frozen=True, sha256="ab"))
    text = json.dumps(started.to_json())
    assert Recipe.from_json(json.loads(text)) == started
    plain = Recipe(method=ERM())
    assert "start" not in plain.to_json()
    assert Recipe.from_json(plain.to_json()) == plain


def test_settings_reach_the_start() -> None:
    chosen = with_settings(
        Recipe(method=ERM()),
        {"frozen": "true", "pretrained": "timm", "layer_decay": "1", "keep_statistics": "true"},
    )
    assert chosen.start == Start(pretrained="timm", frozen=True)


def test_a_file_is_known_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    path.write_bytes(b"abc")
    start = Start(pretrained=str(path)).resolved()
    assert start.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert start.resolved() == start
    path.write_bytes(b"abd")
    with pytest.raises(InputError, match=r"w\.pth. has SHA-256 .* made with ba7816bf"):
        start.resolved()
    path.unlink()
    with pytest.raises(InputError, match="no weights file at"):
        Start(pretrained=str(path)).resolved()
    assert Start(pretrained="timm").resolved().sha256 is None


def test_weights_may_lie_in_the_folder_of_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "a.pth").write_bytes(b"weights")
    start = Start(pretrained="REVAR_DATA/w/a.pth")
    monkeypatch.delenv("REVAR_DATA", raising=False)
    with pytest.raises(InputError, match="no weights file"):
        start.resolved()
    monkeypatch.setenv("REVAR_DATA", str(tmp_path))
    # The folder is not part of the recipe: it is another one on another machine.
    assert start.resolved().pretrained == "REVAR_DATA/w/a.pth"
    assert start.file == tmp_path / "w" / "a.pth"


@pytest.mark.parametrize(
    ("optimiser", "start", "rate"),
    [
        ("sgd", Start(), 0.1),
        ("sgd", Start(pretrained="FILE", frozen=True), 0.1),
        ("sgd", Start(pretrained="FILE"), 0.01),
        ("adamw", Start(pretrained="FILE"), 0.0002),
    ],
)
def test_a_pretrained_trunk_is_trained_gently(
    optimiser: str, start: Start, rate: float, trained: Path
) -> None:
    if start.pretrained:
        start = replace(start, pretrained=str(trained))
    chosen = replace(recipe("erm", epochs=1, optimiser=optimiser), start=start)
    model = fit_model(chosen, source(40), device=CPU, observer=Silent())
    assert model.recipe.budget.learning_rate == pytest.approx(rate)


# --- frozen


@pytest.mark.parametrize("name", [entry.name for entry in METHODS])
def test_every_method_trains_the_head_of_a_frozen_trunk(name: str, trained: Path) -> None:
    """Not one bit of the trunk changes, batch norm and the statistics of the inputs included."""
    model = fit(name, source(test=False), epochs=6, pretrained=trained, frozen=True)
    before, after = read(trained), weights(model)
    assert same(of_trunk(after), of_trunk(before))
    key = "classifier.head.1.weight"
    assert not torch.equal(after[key], before[key])
    assert model.predictions["train"].correct().mean() > 0.7


@pytest.mark.parametrize("keep", [True, False])
def test_a_trunk_is_trained_on_with_its_statistics_or_those_of_batches(
    keep: bool, trained: Path
) -> None:
    model = fit("revar", pretrained=trained, keep_statistics=keep)
    before, after = read(trained), weights(model)
    assert not torch.equal(after["classifier.trunk.1.weight"], before["classifier.trunk.1.weight"])
    key = "classifier.trunk.2.running_mean"
    assert torch.equal(after[key], before[key]) == keep


def test_a_new_head_starts_at_zero_and_an_old_one_is_kept(trained: Path) -> None:
    for classes in (3, 4):
        chosen = replace(recipe("erm"), start=Start(pretrained=str(trained)))
        task, example = Task(n_classes=classes, input_shape=(4,)), torch.zeros(2, 4)
        networks = build_networks(chosen, task, example, None, CPU, pretrained=True)
        head = networks.state_dict()["classifier.head.1.weight"]
        old = read(trained)["classifier.head.1.weight"]
        assert torch.equal(head, old if classes == 3 else torch.zeros(4, 128))


def test_a_file_without_part_of_the_trunk_is_refused(trained: Path, tmp_path: Path) -> None:
    state = read(trained)
    del state["classifier.trunk.5.bias"]
    path = tmp_path / "w.safetensors"
    save_file(state, path)
    with pytest.raises(InputError, match=r'has no "trunk.5.bias" of shape \(128,\)'):
        fit("erm", pretrained=path)


def test_a_module_of_ones_own_is_frozen_where_it_has_a_last_layer() -> None:
    trunk = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
    x, y = blobs()
    module = nn.Sequential(*trunk, nn.Dropout(0.2), nn.Linear(8, 3))
    clf = SelectiveClassifier("erm", module, frozen=True, epochs=3, random_state=0).fit(x, y)
    state = clf.model_.networks.classifier.state_dict()
    given = module.state_dict()
    assert torch.equal(state["trunk.0.weight"], given["0.weight"])
    assert torch.equal(state["trunk.1.running_mean"], given["1.running_mean"])
    assert not torch.equal(state["head.1.weight"], given["4.weight"])
    opaque = nn.Sequential(*module, nn.Softplus())
    with pytest.raises(InputError, match="has no last layer of its own"):
        SelectiveClassifier("erm", opaque, frozen=True, epochs=3).fit(x, y)


# --- layers


def rates_of(net: Classifier, decay: float = 0.5) -> dict[str, float]:
    found = layer_rates(net, decay)
    return {name: found[parameter] for name, parameter in net.named_parameters()}


def test_the_rate_falls_from_layer_to_layer() -> None:
    rates = rates_of(Backbone("mlp").build((4,), 3))
    assert rates == {
        "trunk.1.weight": 0.25, "trunk.1.bias": 0.25, "trunk.2.weight": 0.25, "trunk.2.bias": 0.25,
        "trunk.4.weight": 0.5, "trunk.4.bias": 0.5, "trunk.5.weight": 0.5, "trunk.5.bias": 0.5,
        "head.1.weight": 1.0, "head.1.bias": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "depth", "lowest", "highest"),
    [
        # A stem, three times three blocks, the head.
        ("resnet20", 10, "trunk.0.0.weight", "trunk.10.second.0.weight"),
        # Patches and positions, six layers with the norm after them, the head.
        ("vit-cifar", 7, "trunk.positions", "trunk.norm.bias"),
        # timm's own count: a stem, sixteen blocks with the last convolution in between.
        ("tf_efficientnet_lite0", 17, "net.conv_stem.weight", "net.conv_head.weight"),
    ],
)
def test_how_deep_networks_are(name: str, depth: int, lowest: str, highest: str) -> None:
    rates = rates_of(Backbone(name).build(IMAGES, 3))
    assert rates[lowest] == min(rates.values()) == 0.5**depth
    assert rates[highest] == 0.5
    assert sorted(set(rates.values())) == [0.5**power for power in range(depth, -1, -1)]
    assert len([name for name, rate in rates.items() if rate == 1]) == 2


def test_without_decay_the_optimiser_is_what_it_was() -> None:
    layers = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    optimiser = make_optimiser(Budget(learning_rate=0.1), list(layers.parameters()))
    assert [group["scale"] for group in optimiser.param_groups] == [1.0, 1.0]
    assert [len(group["params"]) for group in optimiser.param_groups] == [2, 2]


@pytest.mark.parametrize("method", ["erm", "sat"])
def test_a_step_is_as_long_as_its_layers_rate(method: str, trained: Path) -> None:
    """One plain step of gradient descent: the rate is all that differs."""
    before = read(trained)

    def step(decay: float) -> dict[str, Tensor]:
        after = weights(
            fit(
                method, source(40, test=False), epochs=1, batch_size=64, momentum=0, lr_warmup=0,
                weight_decay=0, gradient_clip="none", learning_rate=1, pretrained=trained,
                layer_decay=decay,
            )
        )  # fmt: skip
        return {key: after[key] - before[key] for key in before if "weight" in key}

    full, decayed = step(1.0), step(0.1)
    for key, rate in (("trunk.1", 0.01), ("trunk.4", 0.1), ("head.1", 1.0)):
        name = f"classifier.{key}.weight"
        assert full[name].abs().max() > 1e-3
        # The weights are of size one: their differences are known to about 1e-7.
        torch.testing.assert_close(decayed[name], rate * full[name], rtol=1e-3, atol=2e-7)


# --- inputs


def test_inputs_are_normalised_as_the_network_expects() -> None:
    net = from_timm("test_efficientnet", IMAGES, 2, Dropout())
    net.net.pretrained_cfg = {"mean": (0.5, 0.4, 0.6), "std": (0.1, 0.2, 0.3)}
    whole = torch.randint(0, 256, (4, *IMAGES), dtype=torch.uint8)
    for x, factor in ((whole, 255.0), (whole / 255, 1.0)):
        found = input_statistics(net, None, x)
        mean = torch.tensor([0.5, 0.4, 0.6]) * factor
        torch.testing.assert_close(found["mean"].flatten(), mean)
        assert found["deviation"].shape == (3, 1, 1)
        assert found["deviation"].flatten()[1].item() == pytest.approx(0.2 * factor)
    grey = input_statistics(net, None, whole[:, :1])
    assert grey["mean"].flatten().tolist() == pytest.approx([127.5])
    # Standardised already, of five channels, or of a network nobody knows the inputs of.
    assert input_statistics(net, None, whole / 64 - 2) == {}
    assert input_statistics(net, None, torch.zeros(2, 5, 8, 8)) == {}
    own = Backbone("resnet20").build(IMAGES, 2)
    assert input_statistics(own, None, whole) == {}


# --- timm's own weights


def pictures(n: int = 48) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Dark and bright noise."""
    generator = np.random.default_rng(0)
    y = np.arange(n) % 2
    x = generator.integers(0, 128, (n, 32, 32, 3)) + 127 * y[:, None, None, None]
    return x.astype(np.uint8), y


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    """timm's downloads, from a file: everything of timm runs but the network."""
    torch.manual_seed(5)
    weights_: dict[str, Tensor] = timm.create_model("test_efficientnet").state_dict()
    path = tmp_path / "hub.pth"
    torch.save(weights_, path)  # noqa: TID251
    create: Callable[..., nn.Module] = timm.create_model

    def from_file(name: str, **options: Any) -> nn.Module:
        return create(name, pretrained_cfg_overlay={"file": str(path)}, **options)

    monkeypatch.setattr(timm, "create_model", from_file)
    return weights_


@pytest.mark.parametrize("method", ["erm", "revar"])
def test_timm_gives_its_own_weights(
    method: str, hub: dict[str, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = pictures()
    clf = SelectiveClassifier(
        method, "test_efficientnet", pretrained="timm", frozen=True, epochs=6, random_state=0
    ).fit(x, y)
    state = clf.model_.networks.classifier.state_dict()
    for name, value in hub.items():
        if not name.startswith("classifier."):
            assert torch.equal(state[f"net.{name}"], value), name
    config = timm.create_model("test_efficientnet").pretrained_cfg
    expected = torch.tensor(config["mean"]) * 255
    torch.testing.assert_close(clf.model_.networks.normalise.mean.flatten(), expected)
    assert state["net.classifier.weight"].abs().max() > 0
    clf.save(tmp_path / "run")
    # A trained model needs neither the hub nor its weights.
    monkeypatch.undo()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    again = SelectiveClassifier.load(tmp_path / "run")
    assert again.get_params()["pretrained"] == "timm"
    assert np.array_equal(again.predict_proba(x), clf.predict_proba(x))


def test_an_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    x, y = pictures()
    clf = SelectiveClassifier("erm", "test_efficientnet", pretrained="timm", epochs=1)
    with pytest.raises(InputError, match=r'^timm\'s weights of "test_efficientnet" cannot be had'):
        clf.fit(x, y)


def test_timm_has_no_weights_for_our_networks() -> None:
    for backbone in ("mlp", nn.Linear(4, 3)):
        clf = SelectiveClassifier("erm", backbone, pretrained="timm", epochs=1)
        with pytest.raises(InputError, match="pretrained=timm needs a timm backbone"):
            clf.fit(*blobs())


# --- runs


def test_the_estimator_is_cloned_saved_and_loaded_with_its_start(
    trained: Path, tmp_path: Path
) -> None:
    x, y = blobs()
    path = tmp_path / "w.safetensors"
    path.write_bytes(trained.read_bytes())
    clf = SelectiveClassifier(
        "revar", "mlp", pretrained=path, layer_decay=0.5, epochs=3, random_state=0
    )
    assert clone(clf).get_params() == clf.get_params()
    clf.fit(x, y).save(tmp_path / "run")
    path.unlink()
    again = SelectiveClassifier.load(tmp_path / "run")
    assert again.get_params()["pretrained"] == str(path)
    assert (again.frozen, again.layer_decay) == (False, 0.5)
    assert np.array_equal(again.predict_proba(x), clf.predict_proba(x))
    with pytest.raises(InputError, match="no weights file at"):
        again.fit(x, y)


def test_the_command_line_starts_from_a_file_and_goes_on_with_no_other(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = blobs(120)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    path = tmp_path / "w.safetensors"
    path.write_bytes(trained.read_bytes())
    command = [
        "train", "--data", str(tmp_path / "data.npz"), "--out", str(tmp_path / "run"),
        "--backbone", "mlp", "--epochs", "2", "--pretrained", str(path), "--freeze",
        "--method", "erm",
    ]  # fmt: skip
    assert run(command) == 0
    capsys.readouterr()
    model = RunFolder(tmp_path / "run").load(device=CPU)
    assert same(of_trunk(weights(model)), of_trunk(read(trained)))
    assert run([*command, "--resume"]) == 0
    capsys.readouterr()
    other = read(trained)
    other["classifier.head.1.bias"] += 1
    save_file(other, path)
    assert run([*command, "--resume"]) == 2
    error = capsys.readouterr().err
    assert "holds another run: its start.sha256 is" in " ".join(error.split())
    assert run([*command, "--layer-decay", "0.5", "--out", str(tmp_path / "other")]) == 2
    assert not (tmp_path / "other").exists()
    assert "layer_decay" in capsys.readouterr().err


def test_a_run_with_layer_rates_goes_on_to_the_same_bits(trained: Path, tmp_path: Path) -> None:
    x, y = blobs(120)
    np.savez(tmp_path / "data.npz", x=x, y=y)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked == 9

    def go(out: str, **options: Any) -> dict[str, Tensor]:
        folder = train(
            str(tmp_path / "data.npz"), tmp_path / out, backbone="mlp", epochs=3,
            pretrained=str(trained), layer_decay=0.5, device="cpu", **options,
        )  # fmt: skip
        return weights(folder.load(device=CPU))

    whole = go("whole")
    with pytest.raises(InterruptedRun):
        go("stopped", stop=stop)
    assert same(go("stopped", resume=True), whole)


# --- a published network on photographs


@pytest.fixture(scope="module")
def photographs(real_data: Path) -> Source:
    """PACS photographs of seven kinds at 64 px: 160 to train on, 200 others."""
    folder = real_data / "pacs"
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        y = np.array([r["class"] for r in csv.DictReader(file) if r["file"] == "photo.jpg"])
    with Image.open(folder / "photo.jpg") as image:
        tiles = np.asarray(image)
    columns = tiles.shape[1] // 64
    x = tiles.reshape(-1, 64, columns, 64, 3).swapaxes(1, 2).reshape(-1, 64, 64, 3)
    rows = np.random.default_rng(0).permutation(len(y))[:360]
    train, test = rows[:160], rows[160:]
    return Source(Part(x[train], y[train]), tests={"test": Part(x[test], y[test])})


def accuracy(method: str, start: Start, data: Source) -> float:
    chosen = Recipe(
        method=make_method(method),
        backbone="tf_efficientnet_lite0",
        start=start,
        budget=Budget(epochs=2),
        test_passes=5,
    )
    model = fit_model(chosen, data, device=CPU, observer=Silent())
    return float(model.predictions["test"].correct().mean())


@pytest.mark.parametrize(
    ("method", "frozen", "decay"),
    [("erm", True, 1.0), ("erm", False, 0.75), ("revar", True, 1.0), ("revar", False, 0.75)],
)
def test_published_weights_are_worth_their_while_on_photographs(
    method: str, frozen: bool, decay: float, photographs: Source, real_data: Path
) -> None:
    """Two epochs on 128 photographs: 0.7 and more, where chance is a quarter at best."""
    path = real_data / "weights_efficientnet_lite0" / "efficientnet-lite0-57934424.pth"
    start = Start(pretrained=str(path), frozen=frozen, layer_decay=decay)
    assert accuracy(method, start, photographs) > 0.65


def test_the_same_network_learns_next_to_nothing_from_scratch(photographs: Source) -> None:
    assert accuracy("erm", Start(), photographs) < 0.4
