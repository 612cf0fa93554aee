from __future__ import annotations

from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar.errors import InputError
from revar.functional import mode
from revar.nets.base import Classifier, Dropout, SplitClassifier
from revar.nets.build import Backbone, resolve
from revar.nets.dense import linear, mlp
from revar.nets.residual import Bottleneck, ResidualBlock, resnet18_cifar, resnet20
from revar.registry import BACKBONES
from revar.stochastic import DropoutPasses, placement

OWN = [entry.name for entry in BACKBONES if entry.target]
LARGE = ("resnet18-cifar", "resnet34-cifar", "resnet50-cifar", "wrn-28-10", "vgg16-bn")
"""`test_small_nets` looks at these in small."""
IMAGE = [entry.name for entry in BACKBONES if entry.reads == "image"]


def size(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def on_paper(
    name: str, shape: tuple[int, ...], classes: int, dropout: Dropout = Dropout()
) -> Classifier:
    """The network without memory for its weights."""
    with torch.device("meta"):
        return Backbone(name, dropout).build(shape, classes)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "expected"),
    [
        ("resnet20", (3, 32, 32), 10, 269_722),  # He et al. 2016, table 6, identity shortcuts
        ("resnet32", (3, 32, 32), 10, 464_154),
        ("resnet56", (3, 32, 32), 10, 853_018),
        ("resnet18-cifar", (3, 32, 32), 10, 11_173_962),
        ("resnet34-cifar", (3, 32, 32), 10, 21_282_122),
        ("resnet50-cifar", (3, 32, 32), 10, 23_520_842),
        ("wrn-28-10", (3, 32, 32), 10, 36_479_194),  # 36.5 M in Zagoruyko and Komodakis 2016
        # 13 convolutions with biases, batch norms, 512 to 512 with its own, 512 to 10: the
        # trainable parameters of the network of Geifman and El-Yaniv's experiments.
        ("vgg16-bn", (3, 32, 32), 10, 14_991_946),
        ("vit-cifar", (3, 32, 32), 10, 2_693_578),
        ("resnet20", (3, 32, 32), 100, 269_722 + 90 * 65),
        ("resnet20", (1, 28, 28), 10, 269_722 - 2 * 16 * 9),
        ("linear", (7,), 3, 8 * 3),
        ("linear", (1, 4, 5), 2, 21 * 2),
        ("mlp", (7,), 3, 8 * 128 + 256 + 129 * 128 + 256 + 129 * 3),
        ("mlp-512x4", (7,), 3, 8 * 512 + 3 * 513 * 512 + 4 * 1024 + 513 * 3),
        ("mlp-10x1", (2, 3), 3, 7 * 10 + 20 + 11 * 3),
    ],
)
def test_networks_have_as_many_parameters_as_published(
    name: str, shape: tuple[int, ...], classes: int, expected: int
) -> None:
    assert size(on_paper(name, shape, classes)) == expected


@pytest.mark.parametrize("placed", ["head", "everywhere"])
@pytest.mark.parametrize("name", OWN)
def test_dropout_adds_no_parameters(name: str, placed: Literal["head", "everywhere"]) -> None:
    plain = on_paper(name, (3, 16, 16), 4, Dropout(rate=0.0))
    dropped = on_paper(name, (3, 16, 16), 4, Dropout(rate=0.5, placement=placed))
    assert size(dropped) == size(plain)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("placed", ["head", "everywhere", "none"])
def test_dropout_sits_where_it_was_asked_for(name: str, placed: str) -> None:
    if placed == "none":
        dropout = Dropout(rate=0.0, placement="everywhere")
    else:
        dropout = Dropout(rate=0.4, placement="everywhere" if placed == "everywhere" else "head")
    net = Backbone(name, dropout).build((3, 8, 8), 4)
    # Logistic regression has no block to put dropout after.
    expected = "head" if name == "linear" and placed == "everywhere" else placed
    assert placement(net, torch.randn(1, 3, 8, 8)) == expected


def test_the_rate_is_the_share_of_units_dropped() -> None:
    net = linear((2000,), 2, Dropout(rate=0.3))
    head = net.head[0]
    with mode(net, dropout=True, statistics=True):
        dropped = (head(torch.ones(1, 2000)) == 0).float().mean().item()
    assert dropped == pytest.approx(0.3, abs=4 * (0.21 / 2000) ** 0.5)


@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize(("channels", "classes"), [(1, 1), (3, 2), (3, 100)])
def test_logits_are_the_head_of_the_features(name: str, classes: int, channels: int) -> None:
    net = Backbone(name).build((channels, 12, 14), classes).eval()
    x = torch.randn(3, channels, 12, 14)
    with torch.no_grad():
        features = net.forward_features(x)
        logits = net(x)
        embedded = net.embed(features)
        assert torch.equal(net.forward_head(features), logits)
    assert logits.shape == (3, classes)
    assert embedded.shape == (3, net.n_features)
    assert torch.isfinite(logits).all()
    assert logits.std() > 0


@pytest.mark.parametrize("name", [name for name in OWN if name not in LARGE])
def test_every_parameter_takes_part(name: str) -> None:
    net = Backbone(name, Dropout(rate=0.0)).build((3, 16, 16), 4).train()
    net(torch.randn(8, 3, 16, 16)).square().sum().backward()
    for parameter_name, parameter in net.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


@pytest.mark.parametrize("side", [8, 9, 17, 33])
@pytest.mark.parametrize("name", ["convnet", "resnet20", "vit-cifar", "tabular"])
def test_images_of_any_size_are_read(side: int, name: str) -> None:
    net = Backbone(name).build((1, side, side + 1), 3).eval()
    assert net(torch.randn(2, 1, side, side + 1)).shape == (2, 3)


def test_networks_are_the_same_from_the_same_seed_and_else_not() -> None:
    nets = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        nets.append(Backbone("convnet").build((1, 8, 8), 3).state_dict())
    one, same, other = nets
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not torch.equal(one["head.1.weight"], other["head.1.weight"])


# --- residual blocks


def test_a_shortcut_without_parameters_is_a_strided_copy_between_zero_channels() -> None:
    block = ResidualBlock(4, 8, 2, project=False, rate=0.0).eval()
    last = block.second[1]
    assert isinstance(last, nn.BatchNorm2d)
    nn.init.zeros_(last.weight)  # the residual is then zero
    x = torch.rand(2, 4, 6, 6)
    expected = torch.zeros(2, 8, 3, 3)
    expected[:, 2:6] = x[:, :, ::2, ::2]
    assert torch.equal(block(x), expected)


def test_a_block_that_keeps_its_shape_adds_its_input() -> None:
    for project in (False, True):
        block = ResidualBlock(4, 4, 1, project=project, rate=0.0).eval()
        assert block.projection is None
        x = torch.randn(2, 4, 6, 6)
        inner = block.second(F.relu(block.first(x)))
        assert torch.equal(block(x), F.relu(inner + x))


def test_a_projected_shortcut_is_learned() -> None:
    block = ResidualBlock(4, 8, 2, project=True, rate=0.0).eval()
    assert block.projection is not None
    x = torch.randn(2, 4, 6, 6)
    inner = block.second(F.relu(block.first(x)))
    assert torch.equal(block(x), F.relu(inner + block.projection(x)))


def test_a_bottleneck_narrows_to_a_quarter_and_strides_in_the_middle() -> None:
    block = Bottleneck(8, 16, 2, project=True, rate=0.0).eval()
    shapes = [tuple(m.weight.shape) for m in block.modules() if isinstance(m, nn.Conv2d)]
    assert shapes == [(4, 8, 1, 1), (4, 4, 3, 3), (16, 4, 1, 1), (16, 8, 1, 1)]
    x = torch.randn(2, 8, 6, 6)
    narrow = F.relu(block.first(x))
    assert narrow.shape == (2, 4, 6, 6)
    residual = block.third(F.relu(block.second(narrow)))
    assert block.projection is not None
    assert torch.equal(block(x), F.relu(residual + block.projection(x)))


def test_dropout_after_every_block_drops_whole_channels() -> None:
    block = ResidualBlock(4, 64, 1, project=True, rate=0.5)
    with mode(block, dropout=True, statistics=True), torch.no_grad():
        residual = block.drop(torch.ones(1, 64, 5, 5))
    per_channel = residual.flatten(2)
    assert torch.equal(per_channel.amax(-1), per_channel.amin(-1))
    assert set(residual.unique().tolist()) == {0.0, 2.0}


def strides(net: SplitClassifier, x: Tensor) -> list[int]:
    """The heights of the maps after each block."""
    assert isinstance(net.trunk, nn.Sequential)
    heights = []
    for layer in net.trunk:
        x = layer(x)
        if isinstance(layer, ResidualBlock):
            heights.append(x.shape[2])
    return heights


def test_residual_networks_halve_the_map_at_the_start_of_a_stage() -> None:
    x = torch.randn(1, 3, 32, 32)
    assert strides(resnet20((3, 32, 32), 2, Dropout()).eval(), x) == [32] * 3 + [16] * 3 + [8] * 3
    small = torch.randn(1, 3, 16, 16)
    deep = resnet18_cifar((3, 16, 16), 2, Dropout()).eval()
    assert strides(deep, small) == [16, 16, 8, 8, 4, 4, 2, 2]


# --- dense


def test_the_linear_net_is_logistic_regression() -> None:
    net = linear((2, 3), 4, Dropout()).eval()
    last = net.head[1]
    assert isinstance(last, nn.Linear)
    x = torch.randn(5, 2, 3)
    torch.testing.assert_close(net(x), x.flatten(1) @ last.weight.T + last.bias)


def test_a_perceptron_has_the_depth_and_width_asked_for() -> None:
    net = mlp((6,), 2, Dropout(), width=16, depth=4)
    shapes = [tuple(m.weight.shape) for m in net.modules() if isinstance(m, nn.Linear)]
    assert shapes == [(16, 6), (16, 16), (16, 16), (16, 16), (2, 16)]
    assert net.n_features == 16


# --- choosing


@pytest.mark.parametrize("name", ["mlp-0x2", "mlp-16x0"])
def test_a_perceptron_without_hidden_units_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=f'"{name}" has no hidden layer: give mlp-WIDTHxDEPTH'):
        Backbone(name).build((5,), 2)
    with pytest.raises(InputError, match='unknown backbone "mlp-16"'):
        Backbone("mlp-16").build((5,), 2)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((12,), "mlp"),
        ((1, 8, 8), "convnet"),
        ((3, 23, 100), "convnet"),
        ((3, 24, 24), "resnet20"),
        ((3, 96, 96), "resnet20"),
        ((3, 97, 97), "resnet18"),
        ((3, 224, 224), "resnet18"),
    ],
)
def test_auto_chooses_by_the_shape_of_the_inputs(shape: tuple[int, ...], expected: str) -> None:
    assert resolve("auto", shape) == expected
    assert resolve("linear", shape) == "linear"


@pytest.mark.parametrize("name", IMAGE)
def test_networks_for_images_refuse_rows(name: str) -> None:
    with pytest.raises(InputError, match=f'"{name}" reads images, the data are rows: use "mlp"'):
        Backbone(name).build((5,), 2)


def test_every_classifier_is_one() -> None:
    for name in ("auto", *OWN):
        assert isinstance(on_paper(name, (1, 8, 8), 2), Classifier)
    assert isinstance(Backbone().build((5,), 2), SplitClassifier)


def test_a_network_without_dropout_cannot_be_sampled() -> None:
    net = Backbone("mlp", Dropout(rate=0.0)).build((5,), 2)
    with pytest.raises(InputError, match="no dropout"):
        DropoutPasses.of(net, torch.randn(2, 5))


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5])
def test_rates_out_of_range_are_refused(rate: float) -> None:
    with pytest.raises(InputError, match=r"Dropout: rate is .*must be in \[0, 1\)"):
        Dropout(rate=rate)


def test_an_unknown_placement_is_refused() -> None:
    with pytest.raises(InputError, match="placement is 'trunk', it must be one of head, everywher"):
        Dropout(placement="trunk")  # type: ignore[arg-type]


def test_the_trunk_has_a_rate_only_if_dropout_is_everywhere() -> None:
    assert Dropout(rate=0.4).trunk_rate == 0.0
    assert Dropout(rate=0.4, placement="everywhere").trunk_rate == 0.4
    assert Dropout() == Dropout(rate=0.3, placement="head")
