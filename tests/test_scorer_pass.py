"""The benchmark of ways to make g cheaper: they compute what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from revar import bilevel
from revar.nets.base import Dropout
from revar.nets.build import Backbone
from revar.streams import Branch
from support.scripts import scripts

with scripts("scorer", scorer_pass="scorer_pass") as _found:
    scorer_pass: Any = _found.scorer_pass


def _way(name: str) -> Any:
    (found,) = [way for way in scorer_pass.WAYS if way.name == name]
    return found


def test_a_folded_pass_gives_what_g_gives() -> None:
    torch.manual_seed(0)
    net = Backbone("resnet20", Dropout(rate=0.0)).build((3, 16, 16), 1).double()
    x = torch.randn(8, 3, 16, 16, dtype=torch.float64)
    for _ in range(3):
        net.train()(x)
    quick = scorer_pass.quick_pass(net, _way("folded"), None)
    assert not any(isinstance(part, torch.nn.BatchNorm2d) for part in quick.modules())
    torch.testing.assert_close(quick(x), net.eval()(x), rtol=1e-10, atol=1e-12)


def test_the_running_mean_of_meta_gradients() -> None:
    weight = {"w": torch.tensor([1.0])}

    def problem(slope: float) -> bilevel.OneStep:
        return bilevel.OneStep(
            losses=lambda at: at["w"], weights=None, lr=0.1,
            meta_loss=lambda at: (slope * at["w"]).sum(),
        )  # fmt: skip

    plain = bilevel._meta_gradient
    with scorer_pass.changed(_way("half the meta batch, running mean")):
        found = [bilevel._meta_gradient(problem(s), weight)[1]["w"].item() for s in (4.0, 8.0)]
    # The first is itself, then halves: 4, (4 + 8) / 2.
    assert found == [4.0, 6.0]
    assert bilevel._meta_gradient is plain


def test_in_line_nothing_branches() -> None:
    method_file = scorer_pass.method_file
    with scorer_pass.changed(_way("in line")):
        used = vars(method_file)["Branch"]
        assert used is not Branch
        assert used(torch.device("cpu"))._begun is None
    assert vars(method_file)["Branch"] is Branch


def test_it_prints_and_writes_every_way(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    ways = ["as it is", "in line", "folded", "half the size", "half the meta batch, running mean"]
    scorer_pass.main([
        "--backbone", "convnet", "--scorer", "convnet", "--size", "8", "--batch", "4",
        "--intervals", "1", "--repeats", "1", "--ways", *ways, "--json", str(out),
    ])  # fmt: skip
    found = json.loads(out.read_text())
    assert list(found["ways"]) == ["erm", *ways]
    assert {"command", "commit", "date", "processor"} <= found.keys()
    for name, figures in found["ways"].items():
        assert figures["ratio"] > 0, f"{name}: {figures}"
        assert (figures["g_alone_ms"] is None) == (name == "erm")
