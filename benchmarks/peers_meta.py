"""One meta step as peers take it, and the problem on which all of them take it.

Peers are double backward as usually written, ``higher`` (Grefenstette et al. 2019), TorchOpt (Ren
et al. 2023) and betty (Choe et al. 2023). The first three differentiate through the look-ahead and
must agree with ours. betty's default, a central difference at the weights after the step (Liu et
al. 2019), is an approximation, and leaves the learning rate of the look-ahead out. Both passes of
the difference draw dropout masks of their own, whose noise the quotient magnifies. Its step moves
the classifier as well, so that a training step is in what it costs.

The libraries are no dependencies of the project:
``pip install --no-deps higher==0.2.1 torchopt==0.7.3 optree graphviz`` and, with
``--ignore-requires-python``, betty-ml==0.2.1, which asks for Python below 3.11 but runs above.
"""

from __future__ import annotations

import copy
import importlib
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from revar.functional import Params, at_least_single, call, mode
from revar.nets.base import Classifier, Dropout
from revar.nets.build import Backbone
from revar.registry import BACKBONES
from revar.stochastic import variance

N_CLASSES = 10
LR = 0.01
Forward = Callable[[Tensor], Tensor]
"""[n, ...] inputs to [n, C] logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What is measured, and on what.

    Attributes:
        classifier: one of ours by name, or torchvision's.
        scorer: the U-Score network, the same.
        size: pixels.
        batch: rows of the training and of the meta batch.
        passes: T.
        device: where.
        precision: bfloat16 is autocast over float32 weights.
        masks: of dropout. ``own`` are those a step draws by itself; ``sequential`` are comparable
            between engines that start from the same seed; ``same`` are also the same in every
            pass over a batch, however often an engine passes over it.
    """

    classifier: str
    scorer: str
    size: int
    batch: int
    passes: int
    device: str = "cpu"
    precision: Literal["float32", "float64", "bfloat16"] = "float32"
    masks: Literal["own", "sequential", "same"] = "own"


class SequentialDropout(nn.Dropout):
    """Dropout whose masks come number by number from the CPU's default generator.

    T passes over n rows then draw what one pass over T times n rows draws.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002  (named as in the base class)
        """Zero some and scale the rest."""
        if not self.training:
            return input
        return input * (torch.rand(input.shape) >= self.p) / (1.0 - self.p)


def draw_in_sequence(net: nn.Module) -> None:
    """Give a network the dropout above in place of its own."""
    for module in list(net.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Dropout):
                setattr(module, name, SequentialDropout(child.p))


def build(name: str, size: int, n_outputs: int, rate: float) -> Classifier:
    """A network of ours by name, or torchvision's with dropout added before its last layer."""
    shape = (3, size, size)
    if any(entry.name == name for entry in BACKBONES):
        return Backbone(name, Dropout(rate=rate)).build(shape, n_outputs)
    import torchvision

    module = torchvision.models.get_model(name, num_classes=n_outputs)
    return Backbone("custom", Dropout(rate=rate), module).build(shape, n_outputs)


class Problem:
    """Networks, batches and the parts that every engine puts together.

    Attributes:
        kept: what an engine sets up once and uses in every step.
    """

    def __init__(self, setting: Setting) -> None:
        torch.manual_seed(0)
        self.setting = setting
        self.device = torch.device(setting.device)
        dtype = torch.float64 if setting.precision == "float64" else torch.float32
        size, batch = setting.size, setting.batch
        self.classifier = build(setting.classifier, size, N_CLASSES, 0.3).to(self.device, dtype)
        self.scorer = build(setting.scorer, size, 1, 0.0).to(self.device, dtype)
        shape = (batch, 3, size, size)
        self.x, self.x_meta = (torch.randn(shape).to(self.device, dtype) for _ in range(2))
        self.y, self.y_meta = (torch.randint(N_CLASSES, (batch,)).to(self.device) for _ in range(2))
        if self.device.type == "cuda":
            for net in (self.classifier, self.scorer):
                net.to(memory_format=torch.channels_last)
            self.x = self.x.contiguous(memory_format=torch.channels_last)
            self.x_meta = self.x_meta.contiguous(memory_format=torch.channels_last)
        if setting.masks != "own":
            draw_in_sequence(self.classifier)
        for net in (self.classifier, self.scorer):
            self._settle(net)
        nets = (self.classifier, self.scorer)
        self._start = [copy.deepcopy(net.state_dict()) for net in nets]
        self.reset()

    def _settle(self, net: nn.Module) -> None:
        """Batch norm with the statistics of the batch, which no step changes afterwards.

        A peer that runs the network itself, not a copy, would otherwise take its meta-loss at
        other statistics than one that does not.
        """
        norms = [module for module in net.modules() if isinstance(module, _NormBase)]
        for norm in norms:
            norm.momentum = 1.0
        with torch.no_grad(), mode(net, dropout=False, statistics=False):
            net(self.x)
        for norm in norms:
            norm.momentum = 0.0

    def reset(self) -> None:
        """Both networks as they were built, and a new optimiser."""
        for net, state in zip((self.classifier, self.scorer), self._start, strict=True):
            net.load_state_dict(state)
            net.zero_grad()
        self.outer = torch.optim.Adam(self.scorer.parameters(), lr=1e-4)
        self.kept: dict[str, Any] = {}

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision of the step."""
        low = self.setting.precision == "bfloat16"
        return torch.autocast(self.device.type, torch.bfloat16, enabled=low)

    def seed(self, number: int) -> None:
        """Begin the masks of a batch anew, where every pass over it is to meet the same."""
        if self.setting.masks == "same":
            torch.manual_seed(number)

    def weights(self) -> Tensor:
        """[n] differentiable weights of the training batch."""
        with mode(self.scorer, dropout=False, statistics=False):
            logits: Tensor = self.scorer(self.x)
        return at_least_single(logits.squeeze(-1)).sigmoid()

    def losses(self, net: nn.Module, forward: Forward) -> Tensor:
        """[n] training losses, in training mode."""
        self.seed(1)
        with mode(net, dropout=True, statistics=False):
            return F.cross_entropy(forward(self.x), self.y, reduction="none")

    def meta_loss(self, logits: Tensor, samples: Tensor) -> Tensor:
        """Equation 4."""
        return F.cross_entropy(logits, self.y_meta) + variance(samples).mean()

    def full_meta_loss(self, net: nn.Module, forward: Forward) -> Tensor:
        """Equation 4 by T whole passes, a graph of each kept."""
        self.seed(2)
        with mode(net, dropout=False, statistics=True):
            logits = forward(self.x_meta)
        with mode(net, dropout=True, statistics=True):
            samples = [forward(self.x_meta) for _ in range(self.setting.passes)]
        return self.meta_loss(logits, torch.stack(samples))

    def update(self, loss: Tensor) -> None:
        """One step of the scorer's optimiser; the gradient stays in ``.grad``."""
        gradients = torch.autograd.grad(loss, list(self.scorer.parameters()), allow_unused=True)
        for p, gradient in zip(self.scorer.parameters(), gradients, strict=True):
            p.grad = gradient
        self.outer.step()


def double_backward_step(problem: Problem) -> None:
    """Double backward as usually written, over a dictionary of parameters."""
    net = problem.classifier
    params = {name: p.detach().requires_grad_() for name, p in net.named_parameters()}
    with problem.autocast():
        inner = (problem.weights() * problem.losses(net, partial(call, net, params))).mean()
        gradients = torch.autograd.grad(inner, list(params.values()), create_graph=True)
        named = zip(params.items(), gradients, strict=True)
        ahead: Params = {name: p - LR * gradient for (name, p), gradient in named}
        loss = problem.full_meta_loss(net, partial(call, net, ahead))
    problem.update(loss)


def higher_step(problem: Problem) -> None:
    """The same through ``higher``: a patched copy of the network and of its optimiser."""
    higher = importlib.import_module("higher")
    inner = torch.optim.SGD(problem.classifier.parameters(), lr=LR)
    patched = higher.innerloop_ctx(problem.classifier, inner, copy_initial_weights=True)
    with problem.autocast(), patched as (ahead, stepper):
        stepper.step((problem.weights() * problem.losses(ahead, ahead)).mean())
        loss = problem.full_meta_loss(ahead, ahead)
        problem.update(loss)


def torchopt_step(problem: Problem) -> None:
    """The same through TorchOpt: the network's parameters become functions of the scorer's."""
    torchopt = importlib.import_module("torchopt")
    net = problem.classifier
    state = torchopt.extract_state_dict(net, by="reference", detach_buffers=True)
    try:
        with problem.autocast():
            inner = (problem.weights() * problem.losses(net, net)).mean()
            torchopt.MetaSGD(net, lr=LR).step(inner)
            loss = problem.full_meta_loss(net, net)
        problem.update(loss)
    finally:
        torchopt.recover_state_dict(net, state)


def betty_engine(problem: Problem) -> Any:
    """Betty's engine with the classifier below and the scorer above, its defaults elsewhere."""
    logging.disable(logging.INFO)
    problems = importlib.import_module("betty.problems")
    configs = importlib.import_module("betty.configs")
    scorer = list(problem.scorer.parameters())

    def train(_: object) -> Tensor:
        with problem.autocast():
            losses = problem.losses(problem.classifier, problem.classifier)
            return (problem.weights() * losses).mean()

    def generalise(_: object) -> Tensor:
        with problem.autocast():
            return problem.full_meta_loss(problem.classifier, problem.classifier)

    def keep_gradient() -> None:
        # It drops the gradient after its step.
        problem.kept["gradient"] = [p.grad for p in scorer]

    lower_optimiser = torch.optim.SGD(problem.classifier.parameters(), lr=LR)
    upper, lower = (
        problems.ImplicitProblem(name, configs.Config(), module=net, optimizer=optimiser)
        for name, net, optimiser in (
            ("upper", problem.scorer, problem.outer),
            ("lower", problem.classifier, lower_optimiser),
        )
    )
    upper.training_step, lower.training_step = generalise, train
    # The batches lie on the device already.
    upper.get_batch = lower.get_batch = tuple
    upper.grad_callback = keep_gradient
    return importlib.import_module("betty.engine").Engine(
        problems=[upper, lower],
        config=configs.EngineConfig(strategy="gpu" if problem.device.type == "cuda" else "cpu"),
        dependencies={"u2l": {upper: [lower]}, "l2u": {lower: [upper]}},
    )


def betty_step(problem: Problem) -> None:
    """A step of both levels through betty."""
    if "engine" not in problem.kept:
        problem.kept["engine"] = betty_engine(problem)
    # It would add to what the step before has left.
    problem.outer.zero_grad()
    problem.kept["engine"].train_step()
    for p, gradient in zip(problem.scorer.parameters(), problem.kept["gradient"], strict=True):
        p.grad = gradient


Step = Callable[[Problem], None]
PEERS: dict[str, Step] = {
    "double backward, T full passes": double_backward_step,
    "higher, T full passes": higher_step,
    "TorchOpt, T full passes": torchopt_step,
    "betty, T full passes": betty_step,
}
LIBRARIES = {
    "higher, T full passes": ("higher", "higher"),
    "TorchOpt, T full passes": ("torchopt", "torchopt"),
    "betty, T full passes": ("betty", "betty-ml"),
}
"""The module a peer needs, and the package that has it."""
APPROXIMATE = ("betty, T full passes",)
"""Of these only the direction can be compared."""
