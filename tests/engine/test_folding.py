"""Passes in one kernel for each convolution: what they compute is what the layers compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.checkpoint import checkpoint

from revar import folding as module_under_test
from revar.folding import folded, folding
from revar.functional import call, mode, parameters
from revar.in_parts import in_parts
from revar.known_blocks import known
from revar.nets.base import Dropout
from revar.nets.build import Backbone
from revar.nets.convolutional import normed
from revar.nets.residual import ResidualBlock
from revar.nets.scorer import Evidence, NetworkScorer
from revar.randomness import preserved
from revar.recomputed import recomputed
from revar.stochastic import DropoutPasses
from support.gpu import GPU, needs_gpu
from support.operations import Operations

SIZE = 32
OURS = ("convnet", "resnet20", "resnet18-cifar", "resnet50-cifar")
OTHERS = (
    "timm resnet18",
    "timm resnet50",
    "timm resnet50d",
    "resnet18",
    "resnet50",
    "resnext50_32x4d",
)
Make = Callable[[], nn.Module]


def ours(name: str, placement: Any = "head") -> nn.Module:
    return Backbone(name, Dropout(rate=0.3, placement=placement)).build((3, SIZE, SIZE), 5)


def theirs(name: str) -> nn.Module:
    if name.startswith("timm "):
        import timm

        net: nn.Module = timm.create_model(name.removeprefix("timm "), num_classes=5)
        return net
    import torchvision

    module = torchvision.models.get_model(name, num_classes=5)
    return Backbone("custom", Dropout(rate=0.3), module).build((3, SIZE, SIZE), 5)


def settled(net: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    """With statistics and weights of batch norm that are neither 0 nor 1."""
    torch.manual_seed(3)
    for layer in net.modules():
        if isinstance(layer, nn.BatchNorm2d):
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.normal_(0, 0.3)
            layer.running_var.uniform_(0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 1)
            nn.init.normal_(layer.bias, 0, 0.3)
    return net.to(dtype).eval()


def images(dtype: torch.dtype = torch.float64) -> Tensor:
    torch.manual_seed(4)
    return torch.randn(4, 3, SIZE, SIZE, dtype=dtype)


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold on the CPU, too: in layers, but by the same formulas."""
    monkeypatch.setattr(module_under_test, "on_gpu", lambda _: True)


def value_and_gradients(run: Callable[[Tensor], Tensor], net: nn.Module) -> list[Tensor]:
    """Of some function of the output, by the input and by all parameters."""
    x = images().requires_grad_()
    output = run(x)
    torch.manual_seed(5)
    loss = (output * torch.randn_like(output)).sum()
    asked = [x, *net.parameters()]
    return [output, *torch.autograd.grad(loss, asked, materialize_grads=True)]


def assert_same(mine: list[Tensor], theirs: list[Tensor]) -> None:
    largest = max(float(one.detach().abs().max()) for one in theirs[1:])
    for one, other in zip(mine, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11 * max(largest, 1))


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("make", [
    *(pytest.param(partial(ours, name), id=name) for name in OURS),
    *(pytest.param(partial(theirs, name), id=name) for name in OTHERS),
])  # fmt: skip
def test_values_and_gradients_are_those_of_the_layers(make: Make) -> None:
    net = settled(make())
    assert_same(value_and_gradients(folded(net), net), value_and_gradients(net, net))


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(partial(ours, name), id=name) for name in OURS),
        *(pytest.param(partial(theirs, name), id=name) for name in OTHERS[:2]),
        pytest.param(partial(theirs, "resnet50"), id="torchvision resnet50"),
    ],
)
def test_no_batch_norm_is_left(make: Make) -> None:
    net = settled(make(), torch.float32)
    with torch.no_grad(), Operations() as done:
        folded(net)(images(torch.float32))
    assert not [name for name in done.counts if "batch_norm" in name]


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("placement", ["head", "everywhere"])
@pytest.mark.parametrize("name", ["resnet20", "resnet18-cifar"])
def test_dropout_passes_are_the_same(
    name: str, placement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their values and gradients at other parameters, whole passes computed again included."""
    net = settled(ours(name, placement))
    sampler = DropoutPasses.of(net, images())
    assert sampler.shared_trunk is (placement == "head")
    at = {n: (1.1 * p).requires_grad_() for n, p in parameters(net).items()}

    def run() -> list[Tensor]:
        with preserved(torch.device("cpu")):
            logits, samples = sampler.run(images(), 3, at)
            loss = logits.square().sum() + samples.var(0).sum()
            return [logits, samples, *torch.autograd.grad(loss, list(at.values()))]

    quick = run()
    monkeypatch.setattr(module_under_test, "on_gpu", lambda _: False)
    assert_same(quick, run())


@pytest.mark.usefixtures("anywhere")
def test_only_what_is_trained_is_differentiated() -> None:
    net = settled(ours("resnet20"))
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name.startswith(("head", "trunk.10")))
    with Operations() as done:
        folded(net)(images()).sum().backward()
    assert done.counts["aten::convolution_backward"] == 2


@pytest.mark.usefixtures("anywhere")
def test_a_scorer_of_its_own_runs_so() -> None:
    scorer = NetworkScorer(settled(ours("resnet20")), reduction=2)  # type: ignore[arg-type]
    evidence = Evidence(images(), torch.empty(0), torch.empty(0))
    expected = scorer(evidence).logit
    with folding(scorer), Operations() as done:
        torch.testing.assert_close(scorer(evidence).logit, expected)
    assert not [name for name in done.counts if "batch_norm" in name]


@pytest.mark.usefixtures("anywhere")
def test_a_block_somebody_watches_runs_its_layers() -> None:
    net = settled(ours("resnet20"))
    seen: list[nn.Module] = []
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d)]
    layers[3].register_forward_hook(lambda layer, *_: seen.append(layer))
    expected = net(images())
    torch.testing.assert_close(folded(net)(images()), expected)
    assert seen == [layers[3]] * 2


def stages() -> nn.Module:
    """Rows that are blocks of their own, and a residual block in the last of them."""
    torch.manual_seed(0)

    def row(n_in: int, *more: nn.Module) -> nn.Sequential:
        return nn.Sequential(normed(n_in, 8), nn.ReLU(), normed(8, 8), nn.ReLU(), *more)

    net = ResidualBlock(8, 8, 1, project=False, rate=0.0)
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)]
    return nn.Sequential(row(3), row(8), row(8), row(8), row(8, net), *head)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("make", [
    *(pytest.param(partial(ours, name), id=name) for name in OURS),
    *(pytest.param(partial(theirs, name), id=name) for name in OTHERS[:2]),
    pytest.param(stages, id="stages"),
])  # fmt: skip
def test_blocks_computed_again_give_the_same_bits(make: Make) -> None:
    """They keep no more than without folding."""
    net = settled(make())
    expected = value_and_gradients(folded(net), net)
    x = images()

    def kept(run: Callable[[Tensor], Tensor]) -> int:
        sizes: list[int] = []

        def count(value: Tensor) -> Tensor:
            sizes.append(value.numel())
            return value

        with saved_tensors_hooks(count, lambda value: value):
            run(x)
        return sum(sizes)

    with recomputed(net):
        found = value_and_gradients(folded(net), net)
        usual, quick = kept(net), kept(folded(net))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert quick <= usual


@pytest.mark.usefixtures("anywhere")
def test_a_trunk_in_parts_stays() -> None:
    net = settled(ours("resnet18-cifar"))
    with in_parts(net, 2):
        assert folded(net) is net
        assert folded(net, "forward_features") == net.forward_features
    assert folded(net) is not net


@pytest.mark.usefixtures("anywhere")
def test_what_lies_inside_of_what_is_computed_again_stays() -> None:
    """Stages of this net are blocks: in the backward pass nothing would stand in their layers."""
    net = settled(theirs("timm resnet10t"))
    expected = value_and_gradients(net, net)
    with recomputed(net):
        assert any(known(module) for module in net.modules())
        assert_same(value_and_gradients(folded(net), net), expected)


class Their(nn.Module):
    """Somebody's own, who does something to a part that is known."""

    def __init__(self, do: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.part, self.do = theirs("timm resnet18"), do

    def forward(self, x: Tensor) -> Tensor:
        """As they like."""
        return self.do(self.part, x)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("do", [
    lambda net, x: checkpoint(net, x, use_reentrant=False),
    lambda net, x: checkpoint(net.forward_features, x, use_reentrant=False),
], ids=["whole", "part"])  # fmt: skip
def test_what_others_compute_again_stays(do: Callable[[nn.Module, Tensor], Tensor]) -> None:
    net = settled(Their(do))
    assert folded(net) is net
    folded(net)(images()).sum().backward()
    checkpointing: Any = settled(theirs("timm resnet18"))
    checkpointing.set_grad_checkpointing()
    assert folded(checkpointing) is checkpointing


def add_one(own: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *inputs: own(*inputs) + 1


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    ("make", "path", "part"),
    [
        (partial(theirs, "timm resnet18"), "", "forward_features"),
        (partial(theirs, "timm resnet18"), "layer2.0", "forward"),
        (partial(theirs, "resnet18"), "trunk", "_forward_impl"),
        (partial(ours, "resnet20"), "trunk.4", "_residual"),
        (partial(ours, "resnet20"), "trunk.4", "_shortcut"),
        (partial(ours, "resnet20"), "trunk.4.first", "forward"),
        (partial(ours, "resnet20"), "trunk", "forward"),
    ],
)
def test_what_somebody_changed_runs_as_changed(make: Make, path: str, part: str) -> None:
    net = settled(make())
    module = net.get_submodule(path)
    before = net(images())
    setattr(module, part, add_one(getattr(module, part)))
    expected = net(images())
    assert not torch.allclose(before, expected)
    torch.testing.assert_close(folded(net)(images()), expected)


@pytest.mark.usefixtures("anywhere")
def test_layers_that_are_put_in_another_place_run() -> None:
    net: Any = settled(ours("resnet20"))
    net.trunk[4].drop = nn.Conv2d(16, 16, 3, padding=1).double().eval()
    net.trunk[5].first[1].register_parameter("bias", None)
    torch.testing.assert_close(folded(net)(images()), net(images()))


@pytest.mark.usefixtures("anywhere")
def test_a_hook_on_all_modules_sees_all() -> None:
    net, seen = settled(ours("resnet20")), list[nn.Module]()
    hook = register_module_forward_hook(lambda module, *_: seen.append(module))
    try:
        folded(net)(images())
    finally:
        hook.remove()
    assert sum(isinstance(module, nn.BatchNorm2d) for module in seen) == 19


@pytest.mark.usefixtures("anywhere")
def test_what_is_compiled_stays() -> None:
    whole, part = settled(ours("resnet20")), settled(ours("resnet20"))
    compiled: Any = torch.compile(whole, backend="eager")
    assert folded(compiled) is compiled
    part.get_submodule("trunk").compile(backend="eager")
    assert folded(part) is part


@pytest.mark.usefixtures("anywhere")
def test_batch_norm_by_the_batch_stays() -> None:
    net = settled(ours("resnet20"))
    with mode(net, dropout=False, statistics=False):
        assert folded(net) is net
    next(m for m in net.modules() if isinstance(m, nn.BatchNorm2d)).train()
    before = {name: value.clone() for name, value in net.named_buffers()}
    with preserved(torch.device("cpu")):
        expected = net(images())
    after = {name: value.clone() for name, value in net.named_buffers()}
    net.load_state_dict(before, strict=False)
    torch.testing.assert_close(folded(net)(images()), expected)
    torch.testing.assert_close(dict(net.named_buffers()), after)


@pytest.mark.usefixtures("anywhere")
def test_a_layer_called_by_itself_is_itself() -> None:
    """A ReLU belongs to a layer only where the row calls both."""
    relu = nn.ReLU()
    row = settled(nn.Sequential(normed(3, 4), relu, nn.Conv2d(4, 4, 3), relu))
    expected = row[0](images()), row(images())  # type: ignore[index]
    assert known(row) is not None
    with folding(row):
        torch.testing.assert_close(row[0](images()), expected[0], rtol=0, atol=0)  # type: ignore[index]
        torch.testing.assert_close(row(images()), expected[1])


@pytest.mark.usefixtures("anywhere")
def test_everything_comes_back() -> None:
    net = settled(ours("resnet20"))
    before = [dict(vars(module)) for module in net.modules()]
    with pytest.raises(RuntimeError):
        folded(net)(torch.zeros(2, 7, SIZE, SIZE).double())
    assert [dict(vars(module)) for module in net.modules()] == before


@pytest.mark.usefixtures("anywhere")
def test_parameters_are_read_when_it_is_made() -> None:
    """And batch norm of different eps is not put together."""
    net = settled(ours("resnet20"))
    other = {name: 1.2 * p for name, p in parameters(net).items()}
    expected = call(net, other, images())
    quick = folded(net)
    for parameter in net.parameters():
        parameter.data.mul_(1.2)
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    norms[5].eps = 0.1
    torch.testing.assert_close(folded(net)(images()), net(images()))
    norms[5].eps = norms[0].eps
    torch.testing.assert_close(folded(net)(images()), expected)
    assert not torch.allclose(quick(images()), expected)


def test_on_a_cpu_layers_run_as_they_are() -> None:
    net = settled(ours("resnet20"))
    assert folded(net) is net


HALF = partial(torch.autocast, "cuda", torch.bfloat16)


def on_the_gpu(make: Make) -> nn.Module:
    net = settled(make(), torch.float32).to(GPU)
    return net.to(memory_format=torch.channels_last)


@needs_gpu
@pytest.mark.parametrize("name", OURS)
def test_half_precision_on_a_gpu_errs_little_more_than_layer_by_layer(name: str) -> None:
    """Against double precision, in logits and gradients.

    Shifts are rounded, which is the same error at every position; what layers round varies and
    averages out.
    """
    net = on_the_gpu(partial(ours, name))
    x = images(torch.float32).to(GPU, memory_format=torch.channels_last)
    y = torch.tensor([0, 1, 2, 3], device=GPU)

    def found(run: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        logits = run(x)
        gradients = torch.autograd.grad(F.cross_entropy(logits.float(), y), list(net.parameters()))
        return logits.detach().double(), torch.cat([g.flatten() for g in gradients]).double()

    with HALF():
        quick = found(folded(net))
    with HALF():
        usual = found(net)
    net.double()
    x = x.double()
    exact = found(net)

    def errors(mine: tuple[Tensor, Tensor]) -> list[float]:
        return [float((a - b).norm() / b.norm()) for a, b in zip(mine, exact, strict=True)]

    for mine, theirs in zip(errors(quick), errors(usual), strict=True):
        assert mine < 2 * theirs + 1e-3


@needs_gpu
def test_one_kernel_does_it_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    net = on_the_gpu(partial(ours, "resnet18-cifar"))
    x = images(torch.float32).to(GPU, memory_format=torch.channels_last)
    fallen: list[int] = []
    monkeypatch.setattr(module_under_test, "_CONVOLVE", lambda *_: fallen.append(1))
    with torch.no_grad(), HALF():
        folded(net)(x)
    assert not fallen


@needs_gpu
def test_without_such_a_kernel_layers_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    net = on_the_gpu(partial(ours, "resnet18-cifar"))
    x = images(torch.float32).to(GPU, memory_format=torch.channels_last)

    def refuse(*_: object) -> Tensor:
        raise RuntimeError("no engine")

    with torch.no_grad(), HALF():
        expected = folded(net)(x).float()
        for name in ("_RELU", "_ADD_RELU"):
            monkeypatch.setattr(module_under_test, name, refuse)
        found = folded(net)(x).float()
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
