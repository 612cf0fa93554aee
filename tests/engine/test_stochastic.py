from __future__ import annotations

import pytest
import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar.errors import InputError
from revar.functional import mode
from revar.randomness import RandomState, derive
from revar.stochastic import DropoutPasses, FixedMasks, placement, statistics, variance
from support.networks import make

CPU = torch.device("cpu")


class Split(nn.Module):
    """A trunk and a head in timm's manner."""

    def __init__(self, trunk: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.trunk, self.head = trunk, head

    def forward_features(self, x: Tensor) -> Tensor:
        features: Tensor = self.trunk(x)
        return features

    def forward_head(self, features: Tensor) -> Tensor:
        logits: Tensor = self.head(features)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def split(*, trunk_rate: float = 0.0, head_rate: float = 0.5) -> Split:
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(trunk_rate))
    return Split(trunk, nn.Sequential(nn.Dropout(head_rate), nn.Linear(16, 3))).double()


def test_variance_of_a_linear_model_is_the_closed_form() -> None:
    """Inverted dropout at rate p on the inputs of w'x has variance p/(1-p) sum_d w_d^2 x_d^2."""
    torch.manual_seed(0)
    rate, passes = 0.3, 40_000
    x, w = torch.randn(4, 6).double(), torch.randn(6).double()
    dropped = F.dropout(x.expand(passes, 4, 6), rate, training=True)
    got = variance((dropped @ w).unsqueeze(-1), "logits")
    expected = rate / (1 - rate) * (w.square() * x.square()).sum(-1) * (passes - 1) / passes
    # The variance of a sample variance: a relative standard error of about sqrt(2 / passes).
    torch.testing.assert_close(got, expected, rtol=6 * (2 / passes) ** 0.5, atol=0)


def test_variance_by_hand() -> None:
    """Two passes at logits 0 and log 3: p = (1/2, 1/2) and (3/4, 1/4), mean (5/8, 3/8)."""
    samples = torch.tensor([[[0.0, 0.0]], [[3.0, 1.0]]]).double()
    samples[1] = samples[1].log()
    assert variance(samples).item() == pytest.approx(2 * (1 / 8) ** 2)
    assert variance(samples, "logits").item() == pytest.approx((samples[1, 0, 0] / 2) ** 2)


def test_the_variance_is_shrunk_by_a_finite_number_of_passes() -> None:
    """E of the 1/T estimator is (T-1)/T of the variance: checked at T = 2 over many batches."""
    torch.manual_seed(0)
    x, w, rate = torch.ones(1, 1), torch.ones(1), 0.5
    draws = F.dropout(x.expand(2, 50_000, 1), rate, training=True) @ w
    got = variance(draws.unsqueeze(-1), "logits").mean()
    assert got.item() == pytest.approx(0.5 * rate / (1 - rate), rel=0.03)


@pytest.mark.parametrize(
    ("net", "expected"),
    [
        (split(), "head"),
        (split(trunk_rate=0.2), "everywhere"),
        (split(head_rate=0.0), "none"),
        (split(trunk_rate=0.2, head_rate=0.0), "everywhere"),
    ],
)
def test_placement(net: nn.Module, expected: str) -> None:
    assert placement(net, torch.randn(2, 5).double()) == expected


@pytest.mark.parametrize("name", ["resnet10t", "efficientnet_lite0", "vgg11_bn"])
def test_placement_sees_functional_dropout_of_timm(name: str) -> None:
    x = torch.randn(2, 3, 64, 64)
    with_dropout = timm.create_model(name, num_classes=3, drop_rate=0.2)
    assert placement(with_dropout, x) == "head"
    assert placement(timm.create_model(name, num_classes=3), x) == "none"


def test_a_net_without_dropout_is_an_error_that_says_how_to_add_it() -> None:
    with pytest.raises(InputError, match=r"Split has no dropout.*drop_rate=0\.3.*nn\.Dropout"):
        DropoutPasses.of(split(head_rate=0.0), torch.randn(2, 5).double())


@pytest.mark.parametrize("trunk_rate", [0.0, 0.3], ids=["shared trunk", "full passes"])
def test_gradient_of_the_variance_is_that_of_plain_passes(trunk_rate: float) -> None:
    """Sharing the trunk and recomputing passes change the cost, not the gradient."""
    net, x = split(trunk_rate=trunk_rate), torch.randn(7, 5).double()
    sampler = DropoutPasses.of(net, x)
    assert sampler.shared_trunk == (trunk_rate == 0.0)
    params = list(net.parameters())

    torch.manual_seed(3)
    logits, samples = sampler.run(x, 4)
    got = torch.autograd.grad(variance(samples).sum(), params)

    torch.manual_seed(3)
    with mode(net, dropout=True, statistics=True):
        plain = torch.stack([net(x) for _ in range(4)])
    expected = torch.autograd.grad(variance(plain).sum(), params)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(logits, net.eval()(x))


def test_full_passes_keep_the_memory_of_one() -> None:
    """Activations kept for the backward pass do not grow with T when passes are recomputed."""

    def saved_bytes(passes: int) -> int:
        net, x = split(trunk_rate=0.3), torch.randn(64, 5).double()
        kept = 0

        def pack(tensor: Tensor) -> Tensor:
            nonlocal kept
            kept += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            DropoutPasses.of(net, x).run(x, passes)
        return kept

    one_pass = 64 * (5 + 16 * 4)
    assert saved_bytes(8) - saved_bytes(2) < 2 * one_pass


def test_statistics_equal_the_passes_they_summarise() -> None:
    net, x = split(trunk_rate=0.3), torch.randn(9, 5).double()
    got = statistics(DropoutPasses.of(net, x), x, passes=6, seed=4)
    samples = []
    with mode(net, dropout=True, statistics=True), torch.no_grad():
        for k in range(6):
            with FixedMasks(derive(4, "dropout pass", k)):
                samples.append(net(x))
    stacked = torch.stack(samples)
    p = stacked.softmax(-1)
    torch.testing.assert_close(got.mean, p.mean(0))
    torch.testing.assert_close(got.variance, variance(stacked))
    torch.testing.assert_close(got.expected_entropy, -(p * p.log()).sum(-1).mean(0))
    mean = p.mean(0)
    torch.testing.assert_close(got.entropy, -(mean * mean.log()).sum(-1))


@pytest.mark.parametrize("name", ["mlp", "convolution", "timm_resnet"])
def test_scores_of_a_row_do_not_depend_on_its_neighbours(name: str) -> None:
    net, x = make(name)
    sampler = DropoutPasses.of(net, x)
    whole = statistics(sampler, x, passes=5, seed=0).variance
    alone = torch.cat([statistics(sampler, row[None], passes=5, seed=0).variance for row in x])
    order = torch.randperm(len(x))
    shuffled = statistics(sampler, x[order], passes=5, seed=0).variance
    assert (whole > 0).all()
    torch.testing.assert_close(alone, whole, rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(shuffled, whole[order], rtol=1e-9, atol=1e-15)


def test_statistics_leave_the_generators_and_flags_alone() -> None:
    net, x = make("convolution")
    net.train()
    flags = [m.training for m in net.modules()]
    buffers = [b.clone() for b in net.buffers()]
    before = RandomState.capture(CPU)
    statistics(DropoutPasses.of(net, x), x, passes=3, seed=0)
    assert before.equals(RandomState.capture(CPU))
    assert flags == [m.training for m in net.modules()]
    assert all(torch.equal(a, b) for a, b in zip(buffers, net.buffers(), strict=True))


def test_fixed_masks_keep_the_expectation_and_the_rate() -> None:
    x = torch.ones(3, 20_000)
    with FixedMasks(0):
        dropped = F.dropout(x, 0.25, training=True)
        channels = F.dropout2d(torch.ones(2, 4000, 3, 3), 0.25, training=True)
    assert torch.equal(dropped[0], dropped[1])
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.02)
    assert (dropped == 0).float().mean().item() == pytest.approx(0.25, abs=0.02)
    per_channel = channels.flatten(2)
    assert torch.equal(per_channel.amin(-1), per_channel.amax(-1))
    assert channels.mean().item() == pytest.approx(1.0, abs=0.05)
