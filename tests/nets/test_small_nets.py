"""Every family of networks in small: the engine on it, its parts, and oracles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from revar import SelectiveClassifier
from revar.bilevel import OneStep, alignments
from revar.functional import Params, call, mode, parameters
from revar.nets.base import Dropout, SplitClassifier
from revar.nets.dense import mlp
from revar.nets.residual import Bottleneck, resnet
from revar.nets.tabular import NumberEmbedding, tabular
from revar.nets.transformer import vit_cifar
from revar.nets.vgg import vgg16_bn
from revar.nets.wide import WideBlock, wide_resnet
from revar.stochastic import DropoutPasses, placement, variance

IMAGE, ROW = (3, 8, 8), (5,)
Build = Callable[[tuple[int, ...], int, Dropout], SplitClassifier]
SMALL: dict[str, tuple[Build, tuple[int, ...]]] = {
    "thin": (partial(resnet, widths=(4, 8), depths=(1, 1), project=False), IMAGE),
    "projected": (partial(resnet, widths=(4, 8), depths=(1, 1)), IMAGE),
    "bottleneck": (partial(resnet, widths=(4, 8), depths=(1, 1), block=Bottleneck), IMAGE),
    "wide": (partial(wide_resnet, depth=10, widen=1), IMAGE),
    "vgg": (partial(vgg16_bn, stages=((4, 1), (8, 2)), width=8), IMAGE),
    "transformer": (partial(vit_cifar, width=12, depth=2), IMAGE),
    "tabular": (partial(tabular, embedding=3, width=8, depth=2), ROW),
    "perceptron": (partial(mlp, width=8), ROW),
}


def make(name: str, dropout: Dropout) -> tuple[SplitClassifier, Tensor]:
    """The network and a batch, in float64."""
    build, shape = SMALL[name]
    return build(shape, 3, dropout).double(), torch.randn(6, *shape, dtype=torch.float64)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("where", ["head", "everywhere"])
def test_forward_mode_aligns_as_double_backward_does(name: str, where: str) -> None:
    net, x = make(name, Dropout(rate=0.3, placement="head" if where == "head" else "everywhere"))
    x_meta, y, y_meta = torch.randn_like(x), torch.arange(6) % 3, torch.arange(6) % 2
    assert placement(net, x) == where

    def losses(params: Params) -> Tensor:
        with mode(net, dropout=True, statistics=False):
            return F.cross_entropy(call(net, params, x), y, reduction="none")

    def meta_loss(params: Params) -> Tensor:
        logits, samples = DropoutPasses(net, shared_trunk=where == "head").run(x_meta, 2, params)
        return F.cross_entropy(logits, y_meta) + variance(samples).mean()

    weights = torch.rand(6, dtype=torch.float64) + 0.5
    problem = OneStep(losses=losses, weights=weights, lr=0.1, meta_loss=meta_loss)
    forward = alignments(problem, parameters(net), "forward_mode").values
    expected = alignments(problem, parameters(net), "double_backward").values
    assert expected.abs().min() > 0
    torch.testing.assert_close(forward, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SMALL)
def test_every_parameter_takes_part(name: str) -> None:
    net, x = make(name, Dropout(rate=0.0))
    net.train()(x).square().sum().backward()
    for parameter_name, parameter in net.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


# --- wide


def test_a_wide_block_normalises_first_and_shortcuts_the_activated_input() -> None:
    block = WideBlock(4, 8, 2, 0.0).eval()
    x = torch.randn(2, 4, 6, 6)
    active = F.relu(block.first_norm(x))
    assert block.projection is not None
    residual = block.second(F.relu(block.second_norm(block.first(active))))
    assert torch.equal(block(x), residual + block.projection(active))
    same = WideBlock(4, 4, 1, 0.0).eval()
    assert same.projection is None
    nn.init.zeros_(same.second.weight)
    assert torch.equal(same(x), x)


@pytest.mark.parametrize(("depth", "widen", "expected"), [(16, 8, 10_961_370), (40, 4, 8_949_210)])
def test_other_wide_networks_of_the_paper_have_their_sizes(
    depth: int, widen: int, expected: int
) -> None:
    """Table 4: WRN-16-8 11.0 M, WRN-40-4 8.9 M."""
    with torch.device("meta"):
        net = wide_resnet((3, 32, 32), 10, Dropout(), depth=depth, widen=widen)
    assert sum(p.numel() for p in net.parameters()) == expected


# --- VGG


def test_vgg_pools_five_times_and_ends_in_a_hidden_layer() -> None:
    with torch.device("meta"):
        net = vgg16_bn((3, 32, 32), 10, Dropout())
        x = torch.empty(1, 3, 32, 32)
        assert isinstance(net.trunk, nn.Sequential)
        sides = []
        for layer in net.trunk.eval():
            x = layer(x)
            if isinstance(layer, nn.MaxPool2d):
                sides.append(x.shape[2])
    assert sides == [16, 8, 4, 2, 1]
    assert isinstance(net.trunk[-3], nn.Linear)
    assert (net.trunk[-3].in_features, net.n_features) == (512, 512)
    assert len([m for m in net.modules() if isinstance(m, nn.Conv2d)]) == 13


def test_vgg_drops_after_each_convolution_that_no_pooling_follows_and_after_the_last() -> None:
    net = vgg16_bn((3, 32, 32), 10, Dropout(rate=0.4, placement="everywhere"))
    assert isinstance(net.trunk, nn.Sequential)
    layers = list(net.trunk)
    drops = [i for i, layer in enumerate(layers) if isinstance(layer, nn.Dropout2d | nn.Dropout)]
    assert len(drops) == 1 + 1 + 2 + 2 + 2 + 1
    assert all(isinstance(layers[i + 1], nn.Conv2d) for i in drops[:-1])
    assert isinstance(layers[drops[-1] + 1], nn.Linear)


# --- vision transformer


def test_the_transformer_computes_what_timms_does() -> None:
    """With the same weights."""
    torch.manual_seed(0)
    ours = vit_cifar((3, 16, 12), 5, Dropout(), width=24, depth=2).eval()
    theirs = VisionTransformer(
        img_size=(16, 12), patch_size=4, num_classes=5, embed_dim=24, depth=2, num_heads=3
    ).eval()
    weights = ours.state_dict()
    renamed = {
        "cls_token": weights["trunk.first"],
        "pos_embed": weights["trunk.positions"],
        "patch_embed.proj.weight": weights["trunk.patches.weight"],
        "patch_embed.proj.bias": weights["trunk.patches.bias"],
        "norm.weight": weights["trunk.norm.weight"],
        "norm.bias": weights["trunk.norm.bias"],
        "head.weight": weights["head.1.weight"],
        "head.bias": weights["head.1.bias"],
    }
    parts = {
        "norm1": "first_norm",
        "attn.qkv": "attention.read",
        "attn.proj": "attention.write",
        "norm2": "second_norm",
        "mlp.fc1": "perceptron.0",
        "mlp.fc2": "perceptron.2",
    }
    for layer in range(2):
        for their_part, our_part in parts.items():
            for kind in ("weight", "bias"):
                value = weights[f"trunk.layers.{layer}.{our_part}.{kind}"]
                renamed[f"blocks.{layer}.{their_part}.{kind}"] = value
    theirs.load_state_dict(renamed)
    x = torch.randn(3, 3, 16, 12)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-6)


def test_images_are_filled_up_to_whole_patches_with_zeros() -> None:
    torch.manual_seed(0)
    net = vit_cifar((1, 6, 7), 2, Dropout(), width=12, depth=1).eval()
    torch.manual_seed(0)
    whole = vit_cifar((1, 8, 8), 2, Dropout(), width=12, depth=1).eval()
    x = torch.randn(2, 1, 6, 7)
    assert torch.equal(net(x), whole(F.pad(x, (0, 1, 0, 2))))


def test_tokens_know_where_they_are() -> None:
    net = vit_cifar((1, 8, 8), 2, Dropout(), width=12, depth=1).eval()
    x = torch.randn(1, 1, 8, 8)
    swapped = torch.cat([x[:, :, 4:], x[:, :, :4]], 2)
    assert not torch.allclose(net(x), net(swapped))
    assert isinstance(net.trunk.positions, nn.Parameter)
    nn.init.zeros_(net.trunk.positions)
    torch.testing.assert_close(net(x), net(swapped))


# --- tables


def test_embeddings_are_the_formula() -> None:
    torch.manual_seed(0)
    layer = NumberEmbedding(3, width=2, waves=2, spread=0.3).double()
    x = torch.randn(4, 3).double()
    got = layer(x).unflatten(1, (3, 2))
    for n in range(4):
        for j in range(3):
            v, c = x[n, j], layer.frequencies[j]
            angle = 2 * torch.pi * 0.3 * c * v
            features = torch.cat([v.reshape(1), torch.sin(angle), torch.cos(angle)])
            expected = F.relu(features @ layer.weight[j] + layer.bias[j])
            torch.testing.assert_close(got[n, j], expected)


def test_inputs_are_embedded_one_by_one_and_a_category_has_a_vector_of_its_own() -> None:
    layer = NumberEmbedding(2, width=3)
    x = torch.tensor([[1.0, 0.0], [1.0, 5.0], [-1.0, 0.0]])
    with torch.no_grad():
        first, second = layer(x).unflatten(1, (2, 3)).unbind(1)
    assert torch.equal(first[0], first[1])
    assert not torch.equal(first[0], first[2])
    assert torch.equal(second[0], second[2])


@pytest.mark.parametrize("seed", [0, 1])
def test_a_frame_with_categories_is_learned(seed: int) -> None:
    """The label depends on a wave of a number and on the category together."""
    generator = np.random.default_rng(seed)
    n = 900
    number, city = generator.uniform(-3, 3, n), generator.choice(["a", "b", "c"], n)
    frame = pd.DataFrame({"number": number, "city": city})
    y = (np.sin(3 * number) > 0) ^ (city == "b")
    net = SelectiveClassifier("erm", "tabular", epochs=15, test_passes=0, random_state=seed)
    assert net.fit(frame[:600], y[:600]).score(frame[600:], y[600:]) > 0.9
