from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

from revar.errors import InputError
from revar.functional import mode
from revar.nets.base import Classifier, Dropout, SplitClassifier
from revar.nets.build import Backbone
from revar.nets.external import (
    OpaqueClassifier,
    TimmClassifier,
    from_module,
    from_timm,
    timm_names,
)
from revar.stochastic import placement

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
DROPOUT = Dropout(rate=0.4)


def perceptron(*after: nn.Module, classes: int = 3) -> nn.Sequential:
    """A classifier of rows of five, with batch norm, and possibly something after its logits."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes), *after
    )


def outputs(net: nn.Module, x: Tensor) -> Tensor:
    with mode(net, dropout=False, statistics=True), torch.no_grad():
        result: Tensor = net(x)
    return result


def rates(net: nn.Module) -> list[float]:
    """The rates of all dropout layers that do something."""
    return [m.p for m in net.modules() if isinstance(m, nn.Dropout) and m.p > 0]


class Functional(nn.Module):
    """Defines its layers out of order and drops with a function."""

    def __init__(self, *, rate: float = 0.0, soft: bool = False) -> None:
        super().__init__()
        self.rate, self.soft = rate, soft
        self.last = nn.Linear(8, 3)
        self.first = nn.Linear(5, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.dropout(self.first(x).relu(), self.rate, self.training)
        logits: Tensor = self.last(hidden)
        return logits.log_softmax(-1) if self.soft else logits


class Returns(nn.Module):
    """Returns whatever a function makes of its input."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


# --- taking a classifier apart


def test_a_classifier_is_split_at_its_last_linear_layer() -> None:
    module = perceptron()
    net = from_module(module, X, 3, DROPOUT)
    assert isinstance(net, SplitClassifier)
    assert net.n_features == 8
    assert torch.equal(outputs(net, X), outputs(module, X))
    head, last = net.head[1], module[3]
    assert isinstance(head, nn.Linear)
    assert isinstance(last, nn.Linear)
    assert torch.equal(head.weight, last.weight)
    assert torch.equal(head.bias, last.bias)
    with mode(net, dropout=False, statistics=True), torch.no_grad():
        embedded = net.embed(net.forward_features(X))
    assert torch.equal(embedded, outputs(module[:3], X))
    assert placement(net, X) == "head"
    assert rates(net) == [0.4]


def test_a_split_classifier_has_the_parameters_of_the_module_and_no_more() -> None:
    module = perceptron()
    net = from_module(module, X, 3, DROPOUT)
    count = sum(p.numel() for p in module.parameters())
    assert sum(p.numel() for p in net.parameters()) == count


def test_a_linear_layer_alone_is_all_head() -> None:
    module = nn.Linear(5, 3)
    net = from_module(module, X, 3, DROPOUT)
    assert isinstance(net, SplitClassifier)
    assert isinstance(net.trunk, nn.Identity)
    assert torch.equal(outputs(net, X), outputs(module, X))
    assert placement(net, X) == "head"


def test_a_nested_last_layer_is_found() -> None:
    module = nn.Sequential(
        nn.Sequential(nn.Linear(5, 8), nn.Tanh()), nn.Sequential(nn.Linear(8, 3))
    )
    net = from_module(module, X, 3, DROPOUT)
    assert isinstance(net, SplitClassifier)
    assert net.n_features == 8
    assert torch.equal(outputs(net, X), outputs(module, X))


def test_lazy_layers_are_settled_by_the_example() -> None:
    module = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(3))
    net = from_module(module, X, 3, DROPOUT)
    assert net.n_features == 8
    assert outputs(net, X).shape == (4, 3)


def test_a_module_of_another_width_is_a_trunk_and_gets_a_head() -> None:
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
    net = from_module(module, X, 3, DROPOUT)
    assert isinstance(net, SplitClassifier)
    assert net.n_features == 8
    assert outputs(net, X).shape == (4, 3)
    with torch.no_grad():
        assert torch.equal(net.forward_features(X), module(X))
    assert placement(net, X) == "head"
    assert rates(net) == [0.4]


@pytest.mark.parametrize(
    "module",
    [
        perceptron(nn.LogSoftmax(-1)),
        perceptron(nn.Softmax(-1)),
        perceptron(nn.BatchNorm1d(3)),
        Functional(),
        Functional(soft=True),
        Returns(lambda x: x[:, :3] * 2),
    ],
    ids=["log-softmax", "softmax", "batch norm", "out of order", "function", "no layers"],
)
def test_a_module_that_cannot_be_taken_apart_still_works(module: nn.Module) -> None:
    net = from_module(module, X, 3, DROPOUT)
    assert isinstance(net, OpaqueClassifier)
    assert net.n_features == 3
    assert torch.equal(outputs(net, X), outputs(module, X))
    features = net.forward_features(X)
    assert torch.equal(net.forward_head(features), features)
    assert net.embed(features).shape == (4, 3)


def test_an_opaque_module_is_trained_whole() -> None:
    net = from_module(perceptron(nn.LogSoftmax(-1)), X, 3, DROPOUT)
    (net(X) * torch.arange(3)).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_a_last_layer_that_is_used_twice_is_not_taken_off() -> None:
    layer = nn.Linear(3, 3)
    module = nn.Sequential(nn.Linear(5, 3), layer, nn.ReLU(), layer)
    net = from_module(module, X, 3, DROPOUT)
    assert isinstance(net, OpaqueClassifier)
    assert torch.equal(outputs(net, X), outputs(module, X))


# --- dropout of the module's own


@pytest.mark.parametrize("where", [1, 3])
def test_a_module_with_dropout_keeps_it_and_gets_none_added(where: int) -> None:
    layers = list(perceptron())
    layers.insert(where, nn.Dropout(0.7))
    module = nn.Sequential(*layers)
    net = from_module(module, X, 3, DROPOUT)
    assert rates(net) == [0.7]
    assert placement(net, X) == "everywhere"
    assert torch.equal(outputs(net, X), outputs(module, X))


def test_a_trunk_with_dropout_gets_a_head_without() -> None:
    net = from_module(nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.7)), X, 3, DROPOUT)
    assert rates(net) == [0.7]
    assert net.n_features == 8


def test_dropout_by_a_function_is_seen() -> None:
    net = from_module(Functional(rate=0.5), X, 3, DROPOUT)
    assert rates(net) == []
    assert placement(net, X) == "everywhere"


def test_a_module_with_halves_and_dropout_keeps_its_halves() -> None:
    module = timm.create_model("resnet10t", num_classes=3, drop_rate=0.25)
    x = torch.randn(2, 3, 32, 32)
    net = from_module(module, x, 3, DROPOUT)
    assert isinstance(net, TimmClassifier)
    assert net.n_features == 512
    assert placement(net, x) == "head"
    assert torch.equal(outputs(net, x), outputs(module, x))


def test_a_timm_module_without_dropout_is_split_and_gets_some() -> None:
    module = timm.create_model("resnet10t", num_classes=3)
    x = torch.randn(2, 3, 32, 32)
    net = from_module(module, x, 3, DROPOUT)
    assert isinstance(net, SplitClassifier)
    assert net.n_features == 512
    assert placement(net, x) == "head"
    assert torch.equal(outputs(net, x), outputs(module, x))


def test_a_torchvision_network_is_split_at_its_last_layer() -> None:
    module = torchvision.models.resnet18(weights=None, num_classes=7)
    x = torch.randn(2, 3, 32, 32)
    net = from_module(module, x, 7, DROPOUT)
    assert isinstance(net, SplitClassifier)
    assert net.n_features == 512
    assert torch.equal(outputs(net, x), outputs(module, x))
    assert placement(net, x) == "head"


# --- the user's module


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("classes", [3, 6])
def test_the_users_module_is_left_alone(training: bool, classes: int) -> None:
    module = perceptron().train(training)
    before = copy.deepcopy(module.state_dict())
    net = Backbone("custom", DROPOUT, module).build((5,), classes)
    net.train()
    optimiser = torch.optim.SGD(net.parameters(), lr=1.0)
    net(X).square().sum().backward()
    optimiser.step()
    assert all(torch.equal(value, before[key]) for key, value in module.state_dict().items())
    assert all(child.training == training for child in module.modules())
    assert all(p.grad is None for p in module.parameters())
    assert not {p.data_ptr() for p in module.parameters()} & {
        p.data_ptr() for p in net.parameters()
    }


def test_building_does_not_move_batch_norm_statistics() -> None:
    module = perceptron()
    net = from_module(module, X, 3, DROPOUT)
    for key, value in net.state_dict().items():
        if "running_mean" in key:
            assert (value == 0).all()
        if "num_batches_tracked" in key:
            assert value == 0


def test_each_build_is_a_copy_of_its_own() -> None:
    backbone = Backbone("custom", DROPOUT, perceptron())
    one, two = backbone.build((5,), 3), backbone.build((5,), 3)
    with torch.no_grad():
        for p in one.parameters():
            p.zero_()
    assert outputs(two, X).abs().sum() > 0


def test_frozen_parameters_stay_frozen() -> None:
    module = perceptron()
    for p in module[0].parameters():
        p.requires_grad_(False)
    net = from_module(module, X, 3, DROPOUT)
    frozen = [name for name, p in net.named_parameters() if not p.requires_grad]
    assert frozen == ["trunk.0.weight", "trunk.0.bias"]


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x[:, 0], r"\(4,\)"),
        (lambda x: x.view(4, 5, 1), r"\(4, 5, 1\)"),
        (lambda x: (x, x), "tuple"),
        (lambda x: {"logits": x}, "dict"),
        (lambda x: x[:2], r"\(2, 5\)"),
        (lambda x: None, "NoneType"),
    ],
)
def test_outputs_of_another_form_are_refused(function: Any, shape: str) -> None:
    with pytest.raises(InputError, match=rf"Returns returns {shape}: it must return \[n, width\]"):
        from_module(Returns(function), X, 3, DROPOUT)


def test_a_module_that_fails_on_the_inputs_says_how_in_one_line() -> None:
    with pytest.raises(InputError, match=r"Linear fails on inputs of shape \(2, 5\): .") as caught:
        Backbone("custom", DROPOUT, nn.Linear(6, 3)).build((5,), 3)
    assert "\n" not in str(caught.value)

    def silent(x: Tensor) -> Tensor:
        raise RuntimeError

    with pytest.raises(InputError, match=r"fails on inputs of shape .*: RuntimeError"):
        from_module(Returns(silent), X, 3, DROPOUT)


# --- timm by name


@pytest.mark.parametrize(
    ("name", "width", "channels"),
    [("resnet10t", 512, 3), ("vit_tiny_patch16_224", 192, 3), ("efficientnet_lite0", 1280, 1)],
)
def test_a_timm_network_is_built_by_name(name: str, width: int, channels: int) -> None:
    net = Backbone(name, DROPOUT).build((channels, 32, 32), 6)
    assert isinstance(net, TimmClassifier)
    x = torch.randn(2, channels, 32, 32)
    assert net.n_features == width
    assert placement(net, x) == "head"
    with mode(net, dropout=False, statistics=True), torch.no_grad():
        features = net.forward_features(x)
        logits = net(x)
        assert torch.equal(net.forward_head(features), logits)
    assert logits.shape == (2, 6)
    # The embedding is what the last layer reads, also while dropout is on.
    with mode(net, dropout=True, statistics=True), torch.no_grad():
        flags = [module.training for module in net.modules()]
        embedded = net.embed(features)
        assert [module.training for module in net.modules()] == flags
    assert embedded.shape == (2, width)
    last = net.net.get_classifier()
    torch.testing.assert_close(last(embedded), logits)


def test_dropout_everywhere_is_placed_where_timm_can() -> None:
    everywhere = Dropout(rate=0.2, placement="everywhere")
    net = from_timm("vit_tiny_patch16_224", (3, 32, 32), 2, everywhere)
    assert placement(net, torch.randn(1, 3, 32, 32)) == "everywhere"
    with pytest.raises(InputError, match=r"dropout before its last layer only.*placement=head"):
        from_timm("resnet10t", (3, 32, 32), 2, everywhere)
    without = Dropout(rate=0.0, placement="everywhere")
    net = from_timm("resnet10t", (3, 32, 32), 2, without)
    assert placement(net, torch.randn(1, 3, 32, 32)) == "none"


@pytest.mark.parametrize(
    ("name", "near"), [("resnt20", "resnet20"), ("convnt", "convnet"), ("ml", "mlp")]
)
def test_an_unknown_name_gets_the_nearest(name: str, near: str) -> None:
    with pytest.raises(InputError, match=f'unknown backbone "{name}": did you mean "{near}"'):
        Backbone(name).build((3, 32, 32), 2)


def test_a_timm_network_refuses_rows() -> None:
    with pytest.raises(InputError, match=r'"resnet10t" reads images.*use "mlp"'):
        Backbone("resnet10t").build((5,), 2)


def test_a_timm_network_that_needs_another_size_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"swin_tiny.* cannot read images \(3, 32, 32\): .") as no:
        Backbone("swin_tiny_patch4_window7_224").build((3, 32, 32), 2)
    assert "\n" not in str(no.value)


def test_names_are_found_by_pattern() -> None:
    assert "resnet10t" in timm_names("resnet1*")
    assert timm_names("no such thing*") == []


def test_without_timm_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InputError, match=r'extra "vision": pip install "revar\[vision\]"'):
        Backbone("resnet10t").build((3, 32, 32), 2)
    assert isinstance(Backbone("convnet").build((3, 32, 32), 2), Classifier)
