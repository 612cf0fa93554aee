"""What one process of several finds out about split rows; it prints its findings as JSON."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress

import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from torch import Tensor, nn

from revar.errors import InputError
from revar.fitting import fit_model
from revar.parallel import LostProcess, World, joined
from revar.progress import Silent
from revar.sharded import own, repeated, sharing, whole
from support.problems import fit, recipe, source

CPU = torch.device("cpu")


def apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def gathering() -> float:
    """Uneven parts, fewer rows than processes, stacked copies, halves: back as they were."""
    errors = []
    for sizes in ((5,), (7, 4), (1,), (2, 1)):
        x = torch.randn(sum(sizes), 3)
        for dtype in (torch.float64, torch.bfloat16, torch.int64):
            with sharing(*sizes):
                errors.append(apart(whole(own(x.to(dtype))), x.to(dtype)))
        stacked = torch.randn(4, sum(sizes), 2)
        with sharing(*sizes), repeated(4):
            mine = torch.stack([own(copy) for copy in stacked]).flatten(0, 1)
            errors.append(apart(whole(mine), stacked.flatten(0, 1)))
    return max(errors)


def norms() -> dict[str, float]:
    """Batch norm of a split batch against torch's own of the whole one."""
    found = {"value": 0.0, "gradient": 0.0, "tangent": 0.0, "statistics": 0.0}
    for shape in ((7, 3), (5, 3, 2, 2)):
        x, dx, target = (torch.randn(shape) for _ in range(3))
        weight, dweight, bias, dbias = (torch.randn(3) for _ in range(4))
        outcomes = []
        for split in (False, True):
            inputs = [t.clone().requires_grad_() for t in (x, weight, bias)]
            mean, variance = torch.zeros(3), torch.ones(3)
            with sharing(len(x)) if split else torch.enable_grad():
                rows = own(inputs[0]) if split else inputs[0]
                y = whole(F.batch_norm(rows, mean, variance, inputs[1], inputs[2], True, 0.3, 1e-3))
                gradients = torch.autograd.grad((y * target).sum(), inputs)
                with torch.no_grad(), forward_ad.dual_level():
                    duals = (
                        forward_ad.make_dual(own(x) if split else x, own(dx) if split else dx),
                        forward_ad.make_dual(weight, dweight),
                        forward_ad.make_dual(bias, dbias),
                    )
                    moved = F.batch_norm(
                        duals[0],
                        mean.clone(),
                        variance.clone(),
                        duals[1],
                        duals[2],
                        True,
                        0.3,
                        1e-3,
                    )
                    tangent = forward_ad.unpack_dual(whole(moved)).tangent
            outcomes.append((y.detach(), gradients, tangent, mean, variance))
        (y1, g1, t1, m1, v1), (y2, g2, t2, m2, v2) = outcomes
        found["value"] = max(found["value"], apart(y1, y2))
        found["tangent"] = max(found["tangent"], apart(t1, t2))
        found["statistics"] = max(found["statistics"], apart(m1, m2), apart(v1, v2))
        # Every process has the gradient of its own rows, times their number: means are equal.
        means = WORLD.average(g2)
        errors = [apart(a, b) for a, b in zip(g1, means, strict=True)]
        found["gradient"] = max(found["gradient"], *errors)
    return found


def masks() -> float:
    """Dropout of a split batch against that of the whole one, drawn from the same state."""
    errors = []
    for drop, shape in (
        (F.dropout, (7, 5)),
        (F.dropout, (7, 5, 2)),
        (F.dropout2d, (7, 3, 2, 2)),
        (F.dropout1d, (7, 3, 4)),
    ):
        x = torch.randn(shape)
        torch.manual_seed(5)
        expected = drop(x, 0.4, True)
        after = torch.get_rng_state()
        torch.manual_seed(5)
        with sharing(7):
            errors.append(apart(whole(drop(own(x), 0.4, True)), expected))
        errors.append(0.0 if torch.equal(after, torch.get_rng_state()) else 1.0)
        torch.manual_seed(5)
        with sharing(7):
            errors.append(apart(whole(drop(own(x).clone(), 0.4, True, True)), expected))
    return max(errors)


class Depth(nn.Module):
    """A network that leaves a layer out for some examples, by numbers it draws itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            kept = (torch.rand(len(x), 1) > 0.5) if self.training else 1.0
            x = x + kept * layer(x)
        output: Tensor = self.last(x)
        return output


def refusal() -> str:
    try:
        fit_model(recipe("erm"), source(), device=CPU, observer=Silent(), module=Depth())
    except InputError as error:
        return str(error)
    return ""


def waited() -> float:
    """Seconds until a process that waits for a silent one gives up."""
    began = time.monotonic()
    if WORLD.rank == WORLD.size - 1:
        time.sleep(8)
        return 0.0
    try:
        WORLD.any(False)
    except LostProcess:
        return time.monotonic() - began
    return -1.0


def half_precision() -> list[float]:
    torch.set_default_dtype(torch.float32)
    model = fit("revar", epochs=1, precision="bfloat16", test_passes=2)
    torch.set_default_dtype(torch.float64)
    return [float(p.detach().double().norm()) for p in model.networks.parameters()]


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    WORLD: World
    with suppress(LostProcess), joined(CPU, timeout=5) as WORLD:
        torch.manual_seed(0)
        answers = {
            "gathering": gathering(), "norms": norms(), "masks": masks(), "refusal": refusal(),
            "half": half_precision(), "waited": waited(),
        }  # fmt: skip
        print(json.dumps(answers), flush=True)
        raise LostProcess
    # As a run ends then: threads of gloo still wait for the silent one.
    os._exit(0)
