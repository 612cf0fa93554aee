"""Raw values to labels, scores and decisions, as one module."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from revar.data.frames import FrameInputs
from revar.export import scores
from revar.export.frames import FrameEncoder
from revar.export.masks import DropoutHeads
from revar.export.plan import Plan
from revar.functional import mode
from revar.model import Model
from revar.randomness import derive
from revar.scoring import Wanted


class DecisionGraph(nn.Module):
    """What ``revar predict`` computes for a batch, in one deterministic pass.

    Its networks are a copy of the model's, on the CPU.
    """

    limit: Tensor

    def __init__(self, model: Model, plan: Plan) -> None:
        super().__init__()
        # Frozen: what comes out of the file is for reading, and needs no gradient.
        networks = copy.deepcopy(model.networks).cpu().requires_grad_(False)
        networks.memory = None
        self.networks = networks
        self.encoder: nn.Module = nn.Identity()
        if isinstance(model.inputs, FrameInputs):
            self.encoder = FrameEncoder(model.inputs)
        self.method, self.fitted, self.plan = model.recipe.method, model.fitted, plan
        self.register_buffer("limit", torch.tensor(plan.limit, dtype=torch.float64))
        self.heads: DropoutHeads | None = None
        if plan.passes:
            stored = torch.zeros(2, *model.inputs.shape)
            with torch.no_grad(), mode(networks, dropout=False, statistics=True):
                features = networks.classifier.forward_features(networks.normalise(stored))
            seed = derive(model.recipe.seed, "scoring")
            self.heads = DropoutHeads(networks.classifier, features, plan.passes, seed)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """[n, ...] raw values to everything, by name; [n] each unless told otherwise.

        ``logits`` and ``probabilities`` [n, C], ``predicted`` class numbers, ``score_...`` and
        ``uncertainty`` in float64, ``accepted``.
        """
        networks = self.networks
        inputs = networks.normalise(self.encoder(x))
        features = networks.classifier.forward_features(inputs)
        logits = networks.classifier.forward_head(features)
        found = {
            "softmax": scores.softmax(logits),
            "softmax_entropy": scores.softmax_entropy(logits),
        }
        columns = self.method.columns(networks, inputs, features, logits)
        if "uscore" in columns:
            found["uscore"] = self.fitted.orientation * columns["uscore"].double()
        for name, value in self.method.scores(networks, inputs, features, logits).items():
            found[name] = value.double()
        probabilities = logits.double().softmax(-1)
        predicted = logits.argmax(-1)
        if self.heads is not None:
            samples = self.heads(features)
            found |= scores.dropout_scores(samples)
            if self.plan.score == "mcd":
                probabilities = samples.double().softmax(-1).mean(0)
                predicted = probabilities.argmax(-1)
        self._fuse(found, logits)
        uncertainty = found[self.plan.score]
        accepted = uncertainty <= self.limit
        if x.is_floating_point():
            # A model refuses infinity, a graph can only abstain; gaps in a table are NaN.
            accepted = accepted & ~torch.isinf(x).flatten(1).any(1)
        return {
            "logits": logits.float(),
            "probabilities": probabilities.float(),
            "predicted": predicted,
            **{f"score_{name}": value for name, value in found.items()},
            # Of its own, also where it equals a score: runtimes want every output once.
            "uncertainty": uncertainty + 0.0,
            "accepted": accepted,
        }

    def _fuse(self, found: dict[str, Tensor], logits: Tensor) -> None:
        fusion = self.fitted.fusion
        if fusion is None or (Wanted.by("fused", self.fitted).dropout and self.heads is None):
            return
        total = torch.full_like(found["softmax"], fusion.intercept)
        for name, value in zip(fusion.features, fusion.coefficients, strict=True):
            if value:
                total = total + value * found[name]
        found["fused"] = total
