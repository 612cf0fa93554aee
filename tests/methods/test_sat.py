"""Self-adaptive training against its equation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from revar import checkpoint
from revar.data.source import Part, Source
from revar.errors import InputError
from revar.fitting import fit_prepared
from revar.functional import mode
from revar.methods.abstention import abstention_log_odds
from revar.methods.base import Plan
from revar.methods.sat import SAT, Beliefs, adaptive_losses
from revar.metrics import failure_auroc
from revar.preparation import Prepared, prepare
from revar.progress import Silent
from revar.training import InterruptedRun, TrainingState
from revar.types import Networks
from support.feeds import CLOCK, TASK, small
from support.keepers import FolderKeeper
from support.problems import CPU, blobs, fit, recipe, source

PLAN = Plan(total=100, steps_per_epoch=10, meta_size=10, unlabelled_size=0)


def beliefs_of(networks: Networks) -> Beliefs:
    assert isinstance(networks.memory, Beliefs)
    return networks.memory


def test_the_loss_by_hand() -> None:
    """Softmax over three: 1/2, 1/4 and 1/4 for abstaining; the label has 1/2, t is 3/4."""
    logits = torch.tensor([[2.0, 1.0]], dtype=torch.float64).log()
    abstention = torch.zeros(1, dtype=torch.float64)
    belief = torch.tensor([0.75], dtype=torch.float64)
    loss = adaptive_losses(logits, abstention, torch.tensor([0]), belief)
    assert float(loss) == pytest.approx(0.75 * np.log(2) + 0.25 * np.log(4), rel=1e-12)


def test_beliefs_by_hand() -> None:
    """From one, by m = 0.9 towards 0.5: 0.95, then 0.905; others stay."""
    memory = Beliefs(3)
    index, p_label = torch.tensor([2, 0]), torch.tensor([0.5, 0.0])
    first = memory.update(index, p_label, 0.9)
    torch.testing.assert_close(first, torch.tensor([0.95, 0.9]))
    memory.update(index, p_label, 0.9)
    torch.testing.assert_close(memory.belief, torch.tensor([0.81, 1.0, 0.905]))


def test_the_labels_entry_is_all_that_is_needed() -> None:
    """Against running vectors in R^C, set to one-hot at the first visit, as published."""
    torch.manual_seed(0)
    y = torch.tensor([0, 2, 1, 2])
    vectors, memory = F.one_hot(y, 3).double(), Beliefs(4).double()
    for _ in range(5):
        p = torch.randn(4, 3).double().softmax(dim=1)
        vectors = 0.9 * vectors + 0.1 * p
        memory.update(torch.arange(4), p[torch.arange(4), y], 0.9)
    torch.testing.assert_close(memory.belief, vectors[torch.arange(4), y])


def test_momentum_one_is_cross_entropy_on_the_label() -> None:
    """Over all C+1 outputs."""
    method = SAT(target_momentum=1.0, pretrain=0.0)
    networks, batch, feeds = small(method, rate=0.0)
    with mode(networks, dropout=False, statistics=True):
        result = method.loss(networks, TASK, batch, feeds, CLOCK)
        features = networks.classifier.forward_features(batch.x)
    assert networks.heads is not None
    joint = torch.cat([result.logits, networks.heads(features)], dim=1)
    torch.testing.assert_close(result.loss, F.cross_entropy(joint, batch.y))
    assert (beliefs_of(networks).belief == 1).all()


def test_the_step_is_the_equation() -> None:
    """Beliefs follow this pass over C classes, without a gradient; weights count."""
    method = SAT(pretrain=0.0)
    networks, batch, feeds = small(method, rate=0.0)
    batch = replace(batch, weight=torch.linspace(0.5, 2.0, 12).double(), index=batch.index.flip(0))
    task = replace(TASK, class_weights=(1.0, 2.0, 3.0))
    memory = beliefs_of(networks)
    memory.belief.copy_(torch.linspace(0.1, 0.9, 12))
    before = memory.belief.clone()
    with mode(networks, dropout=False, statistics=True):
        result = method.loss(networks, task, batch, feeds, CLOCK)
        features = networks.classifier.forward_features(batch.x)
    rows = torch.arange(12)
    p_label = result.logits.softmax(dim=1)[rows, batch.y].detach()
    t = 0.9 * before[batch.index] + 0.1 * p_label
    assert networks.heads is not None
    p = torch.cat([result.logits, networks.heads(features)], dim=1).softmax(dim=1)
    losses = -(t * p[rows, batch.y].log() + (1 - t) * p[:, -1].log())
    assert batch.weight is not None
    expected = (losses * batch.weight * (batch.y + 1)).mean()
    torch.testing.assert_close(result.loss, expected)
    torch.testing.assert_close(memory.belief[batch.index], t)
    parameters = list(networks.classifier.parameters())
    got = torch.autograd.grad(result.loss, parameters, retain_graph=True)
    wanted = torch.autograd.grad(expected, parameters)
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a, b)


def test_pretraining_is_cross_entropy_and_remembers_nothing() -> None:
    method = SAT()
    networks, batch, feeds = small(method, rate=0.0)
    result = method.loss(networks, TASK, batch, feeds, replace(CLOCK, step=49))
    expected = F.cross_entropy(networks.classifier(batch.x), batch.y)
    torch.testing.assert_close(result.loss, expected)
    assert (beliefs_of(networks).belief == 1).all()
    method.loss(networks, TASK, batch, feeds, replace(CLOCK, step=50))
    assert (beliefs_of(networks).belief < 1).all()


@pytest.mark.parametrize("extreme", [1e4, -1e4])
@pytest.mark.parametrize("belief", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["label", "other", "abstention"])
def test_extreme_logits_give_finite_losses_and_gradients(
    extreme: float, belief: float, kind: str
) -> None:
    logits, abstention = torch.zeros(2, 3), torch.zeros(2)
    if kind == "abstention":
        abstention[0] = extreme
    else:
        logits[0, 0 if kind == "label" else 1] = extreme
    logits.requires_grad_()
    abstention.requires_grad_()
    y = torch.zeros(2, dtype=torch.long)
    losses = adaptive_losses(logits, abstention, y, torch.full((2,), belief))
    losses.sum().backward()
    for value in (losses, logits.grad, abstention.grad):
        assert value is not None
        assert value.isfinite().all()
    assert abstention_log_odds(logits, abstention).isfinite().all()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("target_momentum", 1.1),
        ("target_momentum", -0.1),
        ("pretrain", 1.0),
        ("pretrain_epochs", -1),
    ],
)
def test_bad_fields_are_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=f"SAT: {field} is"):
        SAT(**{field: value})  # type: ignore[arg-type]


def test_a_run_that_never_adapts_is_refused() -> None:
    SAT().check(PLAN)
    with pytest.raises(InputError, match="lower pretrain"):
        SAT(pretrain_epochs=10).check(PLAN)


def resumed(prepared: Prepared, path: Path) -> dict[str, Tensor]:
    """The end of a run that stopped in its last epoch, with adapted targets, and went on."""
    keeper, steps = FolderKeeper(path), iter(range(1, 1000))
    with pytest.raises(InterruptedRun):
        fit_prepared(
            prepared, device=CPU, observer=Silent(), keeper=keeper, stop=lambda: next(steps) == 20
        )
    keeper.folder.end()
    model = fit_prepared(prepared, device=CPU, observer=Silent(), keeper=keeper)
    keeper.folder.end()
    return dict(model.networks.state_dict())


def test_resuming_needs_the_beliefs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in the checkpoint, and a run that lost them would end elsewhere."""
    prepared = prepare(recipe("sat"), source())
    whole = fit_prepared(prepared, device=CPU, observer=Silent()).networks.state_dict()
    assert "memory.belief" in whole
    kept = resumed(prepared, tmp_path / "kept")
    assert all(torch.equal(whole[name], kept[name]) for name in whole)
    restore = checkpoint.restore

    def forgetful(state: TrainingState, *parts: object) -> None:
        restore(state, *parts)  # type: ignore[arg-type]
        beliefs_of(state.networks).belief.fill_(1.0)

    monkeypatch.setattr("revar.run.restore", forgetful)
    lost = resumed(prepared, tmp_path / "lost")
    name = "classifier.head.1.weight"
    assert not torch.equal(whole[name], lost[name])


def test_the_region_with_random_labels_is_rejected_first() -> None:
    """One cluster of three is labelled by a coin; the beliefs in its labels fall."""
    x, y = blobs(600)
    random = np.random.default_rng(0).integers(0, 2, len(y))
    model = fit("sat", Source(Part(x, np.where(y == 2, random, y))), epochs=12)
    x_test, region = blobs(600, seed=1)
    own = model.uncertainty(model.predict(x_test), "own")
    assert failure_auroc(own, region != 2) > 0.95
    train = model.predictions["train"]
    noisy = y[train.index] == 2
    belief = beliefs_of(model.networks).belief.numpy()
    assert belief[noisy].mean() < 0.8
    assert belief[~noisy].mean() > 0.95
