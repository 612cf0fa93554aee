"""Blocks that are computed again: the same gradients, alignments and models, less memory."""

from __future__ import annotations

import pickle  # noqa: TID251  (a user may write a net so; it is read at once)
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from revar.again import computed_again
from revar.bilevel import Strategy
from revar.dual_norm import MetaBatchNorm
from revar.errors import InputError
from revar.fitting import fit_model
from revar.functional import Params, call, mode, parameters
from revar.in_parts import in_parts
from revar.nets.base import Classifier, Dropout
from revar.nets.build import Backbone
from revar.nets.residual import resnet
from revar.nets.transformer import vit_cifar
from revar.progress import Silent
from revar.recomputed import recomputed, recomputing
from revar.registry import BACKBONES
from support.hypergradients import aligned
from support.problems import CPU, recipe, source
from support.threads import one_thread

SHAPE = (3, 8, 8)
DROPOUT = Dropout(rate=0.3, placement="everywhere")


def _residual() -> Classifier:
    return resnet(SHAPE, 4, DROPOUT, widths=(4, 8), depths=(2, 2))


def _transformer() -> Classifier:
    return vit_cifar(SHAPE, 4, DROPOUT, width=12, depth=4)


def _timm() -> Classifier:
    pytest.importorskip("timm")
    from timm.layers import DropPath

    # The smallest one with batch norm and squeezed channels.
    net = Backbone("test_efficientnet", Dropout(rate=0.3)).build((3, 32, 32), 4)
    for module in net.modules():
        if hasattr(module, "drop_path"):
            module.drop_path = DropPath(0.3)
    return net


NETS: dict[str, Callable[[], Classifier]] = {
    "residual": _residual,
    "transformer": _transformer,
    "timm": _timm,
}


def _problem(name: str) -> tuple[Classifier, Tensor, Tensor]:
    torch.manual_seed(0)
    net = NETS[name]().double()
    shape = (3, 32, 32) if name == "timm" else SHAPE
    return net, torch.randn(9, *shape, dtype=torch.float64), torch.arange(9) % 4


def _losses(net: nn.Module, x: Tensor, y: Tensor) -> Callable[[Params], Tensor]:
    def losses(params: Params) -> Tensor:
        with mode(net, dropout=True, statistics=False):
            return nn.functional.cross_entropy(call(net, params, x), y, reduction="none")

    return losses


def _gradients(net: nn.Module, x: Tensor, y: Tensor) -> list[Tensor]:
    """At other parameters than the network's own, which are there when blocks run again."""
    torch.manual_seed(1)
    at = {name: (1.1 * p).requires_grad_() for name, p in parameters(net).items()}
    loss = _losses(net, x, y)(at).mean()
    return list(torch.autograd.grad(loss, list(at.values()), materialize_grads=True))


def _same(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(one.equal(other) for one, other in zip(some, others, strict=True))


@pytest.mark.parametrize("name", NETS)
def test_gradients_are_the_same_to_the_bit(name: str) -> None:
    net, x, y = _problem(name)
    plain = _gradients(net, x, y)
    with recomputed(net):
        assert _same(_gradients(net, x, y), plain)
    assert not [module for module in net.modules() if "forward" in vars(module)]
    with recomputed(net, wanted=False):
        assert not [module for module in net.modules() if "forward" in vars(module)]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("strategy", ["forward_mode", "double_backward", "finite_difference"])
def test_the_hypergradient_is_the_same(name: str, strategy: Strategy) -> None:
    net, x, y = _problem(name)
    losses = _losses(net, x, y)
    plain = aligned(net, x, y, losses, strategy, passes=2)
    assert plain.abs().max() > 0
    with recomputed(net):
        again = aligned(net, x, y, losses, strategy, passes=2)
    torch.testing.assert_close(again, plain, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["residual", "timm"])
def test_batch_norm_counts_a_batch_once(name: str) -> None:
    found = []
    for wanted in (False, True):
        net, x, y = _problem(name)
        with recomputed(net, wanted=wanted), mode(net, dropout=True, statistics=False):
            nn.functional.cross_entropy(net(x), y).backward()
        found.append(dict(net.named_buffers()))
        assert {int(b) for k, b in found[-1].items() if "tracked" in k} == {1}
    assert all(found[0][name].equal(found[1][name]) for name in found[0])


def _kept(net: nn.Module, x: Tensor) -> int:
    """Numbers that are saved for the backward pass, those of the parameters aside."""
    own = {p.data_ptr() for p in net.parameters()}
    sizes: dict[int, int] = {}
    alive: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        # Kept, or another would get its place.
        alive.append(tensor)
        if tensor.data_ptr() not in own:
            sizes[tensor.data_ptr()] = tensor.numel()
        return tensor

    with mode(net, dropout=True, statistics=False):
        net(x)  # in which blocks are tried
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            net(x)
    return sum(sizes.values())


@pytest.mark.parametrize("name", NETS)
def test_less_is_kept(name: str) -> None:
    net, x, _ = _problem(name)
    plain = _kept(net, x)
    with recomputed(net):
        assert _kept(net, x) < 0.45 * plain


@pytest.mark.parametrize("name", [entry.name for entry in BACKBONES if entry.target])
def test_our_backbones_have_blocks(name: str) -> None:
    shape = (6,) if name in ("linear", "mlp", "perceptron", "tabular") else (3, 16, 16)
    net = Backbone(name, Dropout()).build(shape, 3)
    blocks = recomputing(net)
    assert len({id(module) for module, _ in blocks}) == len(blocks)
    # One layer, and two of 32: all of the trunk would come back at once.
    assert bool(blocks) == (name not in ("linear", "perceptron"))


def test_layers_in_a_row_are_put_together() -> None:
    torch.manual_seed(0)
    layers = [m for _ in range(8) for m in (nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.2))]
    net = nn.Sequential(*layers).double()
    x, y = torch.randn(7, 6, dtype=torch.float64), torch.arange(7) % 4
    ((module, _),) = recomputing(net)
    assert module is net
    plain, kept = _gradients(net, x, y), _kept(net, x)
    with recomputed(net):
        assert _same(_gradients(net, x, y), plain)
        assert _kept(net, x) < 0.4 * kept


def test_half_precision_is_the_same() -> None:
    net, x, y = _problem("residual")
    net, x = net.float(), x.float()

    def gradients() -> list[Tensor]:
        torch.manual_seed(1)
        net.zero_grad()
        with mode(net, dropout=True, statistics=True), torch.autocast("cpu", torch.bfloat16):
            # Twice in one block: the second finds weights that are rounded already.
            loss = nn.functional.cross_entropy(net(x).float() + net(x.flip(0)).float(), y)
        loss.backward()
        return [p.grad.clone() for p in net.parameters() if p.grad is not None]

    plain = gradients()
    with recomputed(net):
        assert _same(gradients(), plain)


def test_batch_norm_of_the_meta_step_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x, y = _problem("residual")
    for name, buffer in net.named_buffers():
        if "tracked" not in name:
            buffer.uniform_(0.5, 1.5)
    calls: list[int] = []
    usual = MetaBatchNorm.__torch_function__

    def counted(self: MetaBatchNorm, func: Callable[..., Any], *rest: Any) -> Any:
        calls[-1] += func is nn.functional.batch_norm
        return usual(self, func, *rest)

    monkeypatch.setattr(MetaBatchNorm, "__torch_function__", counted)

    def gradients() -> list[Tensor]:
        calls.append(0)
        torch.manual_seed(1)
        with MetaBatchNorm(by_batch=False), mode(net, dropout=True, statistics=True):
            loss = nn.functional.cross_entropy(net(x), y)
        return list(torch.autograd.grad(loss, list(net.parameters())))

    plain = gradients()
    with recomputed(net):
        gradients()  # in which blocks are tried
        assert _same(gradients(), plain)
    norms = sum(isinstance(module, nn.BatchNorm2d) for module in net.modules())
    # Every one again in the backward pass, outside of the block.
    assert (calls[0], calls[2]) == (norms, 2 * norms)


class _Counting(nn.Module):
    """Reads a number, and writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.count: Tensor
        self.register_buffer("count", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        count = self.count.clone()
        self.count += 1.0
        output: Tensor = x + self.second(self.first(x).tanh() * count)
        return output


def test_buffers_are_those_of_the_first_time() -> None:
    torch.manual_seed(0)
    blocks = [_Counting().double() for _ in range(4)]
    net = nn.Sequential(*blocks)
    x, y = torch.randn(7, 4, dtype=torch.float64), torch.arange(7) % 4

    def gradients() -> list[Tensor]:
        for block in blocks:
            block.count.fill_(2)
        net.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        net(x)
        loss.backward(retain_graph=True)
        # And again, as it was the first time.
        loss.backward()
        moved = [p.grad for p in net.parameters() if p.grad is not None]
        return [value.clone() for value in (*moved, *net.buffers())]

    plain = gradients()
    assert plain[-1] == 4
    with recomputed(net):
        gradients()
        assert _same(gradients(), plain)


class _Overwriting(nn.Module):
    """Begins in the place of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = x.relu_()
        output: Tensor = x + self.inner(x)
        return output


class _Lengthening(nn.Module):
    """Hands its blocks a list that grows afterwards, as dense networks do."""

    def __init__(self) -> None:
        super().__init__()
        # Enough of them to be taken apart.
        self.blocks = nn.ModuleList(_Summing() for _ in range(7))

    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        for block in self.blocks:
            found.append(block(found, scale=0.5))
        return found[-1]


class _Summing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, found: list[Tensor], *, scale: float) -> Tensor:
        summed = torch.stack(found).sum(0)
        output: Tensor = scale * self.second(self.first(summed).tanh())
        return output


@pytest.mark.parametrize("made", [_Overwriting, _Lengthening])
def test_odd_blocks_of_somebody(made: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), *(made() for _ in range(3))).double()
    x, y = torch.randn(7, 4, dtype=torch.float64), torch.arange(7) % 4
    assert {type(module) for module, _ in recomputing(net)} <= {_Overwriting, _Summing}
    assert recomputing(net)
    plain = _gradients(net, x, y)
    with recomputed(net):
        assert _same(_gradients(net, x, y), plain)


def _in_place(*, in_a_row: bool) -> nn.Sequential:
    """Blocks that begin with dropout in place, and end in something new."""
    torch.manual_seed(0)
    blocks = [
        [nn.Dropout(0.3, inplace=True), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)]
        for _ in range(3)
    ]
    # Layers in front: data is not overwritten.
    layers = [nn.Linear(4, 4), nn.Linear(4, 4)]
    if in_a_row:
        return nn.Sequential(*layers, *(m for block in blocks for m in block)).double()
    return nn.Sequential(*layers, *(nn.Sequential(*block) for block in blocks)).double()


@pytest.mark.parametrize("in_a_row", [False, True])
@pytest.mark.parametrize("modes", [(False, True), (True, False)])
def test_dropout_in_place_is_found_in_every_mode(in_a_row: bool, modes: tuple[bool, ...]) -> None:
    net = _in_place(in_a_row=in_a_row)
    x = torch.randn(7, 4, dtype=torch.float64)
    assert recomputing(net)

    def gradients(dropout: bool) -> list[Tensor]:
        torch.manual_seed(1)
        with mode(net, dropout=dropout, statistics=True):
            loss = net(x).square().mean()
        return list(torch.autograd.grad(loss, list(net.parameters())))

    plain = [gradients(dropout) for dropout in modes]
    with recomputed(net):
        for dropout, wanted in zip(modes, plain, strict=True):
            assert _same(gradients(dropout), wanted)


def _copied(net: nn.Module) -> nn.Module:
    return deepcopy(net)


def _written(net: nn.Module) -> nn.Module:
    read: nn.Module = pickle.loads(pickle.dumps(net))  # noqa: S301
    return read


@pytest.mark.parametrize("again", [_copied, _written])
@pytest.mark.parametrize("in_a_row", [False, True])
def test_a_copy_has_layers_of_its_own(
    in_a_row: bool, again: Callable[[nn.Module], nn.Module]
) -> None:
    net = _in_place(in_a_row=in_a_row).eval()
    x, y = torch.randn(7, 4, dtype=torch.float64), torch.arange(7) % 4
    plain, before = net(x), _gradients(net, x, y)
    kinds = {type(forward).__name__ for _, forward in recomputing(net)}
    assert kinds == ({"_OneByOne"} if in_a_row else {"_OneByOne", "_Block"})
    with recomputed(net):
        copy = again(net)
        copied = copy(x)
        with torch.no_grad():
            for parameter in copy.parameters():
                parameter.zero_()
        assert not copy(x).any()
        assert net(x).equal(plain)
    assert copied.equal(plain)
    assert not copy(x).any()
    # It can be recomputed itself.
    copy = again(net)
    assert len(recomputing(copy)) == len(recomputing(net))
    with recomputed(net):
        copy = again(net)
    assert len(recomputing(copy)) == len(recomputing(net))
    with recomputed(copy):
        assert _same(_gradients(copy, x, y), before)


class _Branches(nn.Module):
    """Of convolutions with their norms, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(_pair() for _ in range(6))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = torch.stack([branch(x) for branch in self.branches]).mean(0)
        return output


def _pair() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4), nn.ReLU())


def test_what_holds_pairs_only_stays_whole() -> None:
    net = nn.Sequential(*(_Branches() for _ in range(6))).double()
    # 72 layers: twelve of them are more than eight, and fewer than sixteen.
    assert [type(module) for module, _ in recomputing(net)] == [_Branches] * 6
    x = torch.randn(5, 4, 6, 6, dtype=torch.float64)
    plain = _kept(net, x)
    with recomputed(net):
        assert _kept(net, x) < 0.1 * plain


def test_parts_of_a_batch_by_blocks() -> None:
    net, x, y = _problem("residual")
    with in_parts(net, 4):
        parted, kept = _gradients(net, x, y), _kept(net, x)
        with recomputed(net):
            assert _same(_gradients(net, x, y), parted)
            # Parts keep nothing that blocks could leave out.
            assert _kept(net, x) == kept


@pytest.mark.parametrize("method", ["erm", "revar", "revar-paper", "trajectory", "sat"])
def test_training_gives_the_same_model(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    again: list[int] = []

    def counted(*given: Any) -> Any:
        again[-1] += 1
        return computed_again(*given)

    monkeypatch.setattr("revar.recomputed.computed_again", counted)
    found = []
    for wanted in ("false", "true"):
        again.append(0)
        chosen = recipe(method, epochs=10, recompute=wanted, dropout_placement="everywhere")
        chosen = replace(chosen, backbone="tabular")
        with one_thread():
            model = fit_model(chosen, source(120), device=CPU, observer=Silent())
        weights = model.networks.classifier.state_dict()
        found.append([*weights.values(), torch.from_numpy(model.predictions["test"].logits)])
    assert _same(*found)
    assert again[0] == 0 < again[1]


class _Checkpointed(nn.Module):
    """A net of somebody else that computes its layers again by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.grad_checkpointing = True
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.2), nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.layers(x)
        return logits


@pytest.mark.parametrize("method", ["revar", "revar-paper", "mwn", "l2r", "fsr"])
def test_a_net_that_checkpoints_itself_is_refused_where_parameters_are_placed(method: str) -> None:
    chosen = replace(recipe(method, epochs=1), backbone="custom")
    with pytest.raises(InputError, match=r"checkpoints its layers itself.*recompute=true"):
        fit_model(chosen, source(), device=CPU, observer=Silent(), module=_Checkpointed())


def test_elsewhere_it_may() -> None:
    chosen = replace(recipe("erm", epochs=1), backbone="custom")
    fit_model(chosen, source(), device=CPU, observer=Silent(), module=_Checkpointed())
