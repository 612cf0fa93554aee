"""Fast sample reweighting against its equations."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from revar.checkpoint import Tensors, progress_of, restore, weights_of
from revar.errors import InputError
from revar.fitting import fit_prepared
from revar.functional import Params, call, flat_state, load_flat_state, mode
from revar.methods.base import Plan, Sizes
from revar.methods.dictionary import Average, Dictionary, PseudoLabels, Remembered
from revar.methods.fsr import FSR, batch_weights, reached_by_head
from revar.methods.mixup import Mixed, mix
from revar.nets.external import OpaqueClassifier
from revar.preparation import Prepared, prepare
from revar.progress import Silent
from revar.training import TrainingState
from revar.types import Batch, Networks
from support.feeds import CLOCK, TASK, small
from support.noise import outcome
from support.problems import CPU, recipe, source

EARLY = replace(CLOCK, step=9)


def remembered(networks: Networks) -> Remembered:
    assert isinstance(networks.memory, Remembered)
    return networks.memory


def filled(networks: Networks, labels: Tensor) -> Dictionary:
    """A dictionary that is ready to use: one example of every class."""
    dictionary = remembered(networks).dictionary
    dictionary.refill(labels)
    return dictionary


def naive_step(
    networks: Networks, batch: Batch, dictionary: Batch, *, partial: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gains, losses before and losses after, with the look-ahead written out, graph kept."""
    f = networks.classifier
    epsilon = torch.full_like(batch.x[:, 0], 1 / len(batch.y)).requires_grad_()
    every: Params = {k: p.detach().clone() for k, p in f.named_parameters()}
    moving = {k: p.requires_grad_() for k, p in every.items() if not partial or "head" in k}

    def losses(params: Params) -> Tensor:
        torch.manual_seed(4)
        with mode(f, dropout=True, statistics=False):
            logits = call(f, params, batch.x)
        return F.cross_entropy(logits, batch.y, reduction="none")

    before = losses({**every, **moving})
    gradients = torch.autograd.grad(
        (epsilon * before).sum(), list(moving.values()), create_graph=True
    )
    steps = zip(moving.items(), gradients, strict=True)
    ahead = {**every, **{k: p - 0.1 * g for (k, p), g in steps}}
    with mode(f, dropout=False, statistics=True):
        meta_loss = F.cross_entropy(call(f, ahead, dictionary.x), dictionary.y)
    (slope,) = torch.autograd.grad(meta_loss, epsilon)
    return -slope, before.detach(), losses(ahead).detach()


@pytest.mark.parametrize("value", ["loss_after", "drop"])
@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("engine", ["forward_mode", "double_backward"])
def test_weights_and_values_are_those_of_the_written_out_step(
    partial: bool, value: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout everywhere: the look-ahead must see the masks of the training pass."""
    method = FSR(partial=partial, value=value, engine=engine)  # type: ignore[arg-type]
    networks, batch, feeds = small(method, "everywhere")
    dictionary = filled(networks, batch.y)
    for module in networks.modules():
        if isinstance(module, nn.BatchNorm1d):
            # The statistics stand still for both; else the training pass moves them first.
            module.momentum = 0.0
    # One example a class, so that every draw is the whole dictionary.
    positions = dictionary.chosen.flatten()
    assert len(positions) == 3
    chosen = feeds.train_at(positions)
    gain, before, after = naive_step(networks, batch, chosen, partial=partial)
    # The draw comes before the training pass, which is to start where the written-out one does.
    monkeypatch.setattr(Dictionary, "draw", lambda *_: (torch.manual_seed(4), positions)[1])
    with mode(networks, dropout=True, statistics=False):
        result = method.loss(networks, TASK, batch, feeds, CLOCK)
    raw = gain.clamp_min(0)
    weights = raw / (raw.sum() + 1e-5)
    torch.testing.assert_close(result.weights, weights, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(result.loss, (weights * before).sum())
    new = (before if value == "drop" else 0.0) - after
    torch.testing.assert_close(dictionary.values, 0.1 * new)


def test_the_variance_joins_the_meta_loss() -> None:
    weights = []
    for factor in (0.0, 5.0):
        method = FSR(variance_weight=factor)
        networks, batch, feeds = small(method)
        filled(networks, batch.y)
        torch.manual_seed(0)
        weights.append(method.loss(networks, TASK, batch, feeds, CLOCK).weights)
    assert not torch.allclose(*weights)  # type: ignore[arg-type]
    assert not FSR().needs_dropout
    assert FSR(variance_weight=1.0).needs_dropout


def test_batch_weights_by_hand() -> None:
    gain = torch.tensor([0.3, -0.2, 0.1, 0.0]).double()
    clipped = torch.tensor([0.3, 0.0, 0.1, 0.0]).double() / 0.40001
    one = torch.ones(4).double()
    torch.testing.assert_close(batch_weights(gain, one, "clip"), clipped)
    shifted = torch.tensor([0.75, 0.25, 0.55, 0.45]).double() / 2.00001
    torch.testing.assert_close(batch_weights(gain, one, "shift"), shifted)
    counts = torch.tensor([2.0, 9.0, 0.0, 1.0]).double()
    expected = torch.tensor([0.3, 0.0, 0.1, 0.0]).double() / 0.60001
    torch.testing.assert_close(batch_weights(gain, counts, "clip"), expected)
    assert not batch_weights(-gain.abs(), one, "clip").any(), "no step where nothing agrees"


@pytest.mark.parametrize("mixup", [False, True])
def test_class_and_sample_weights_multiply_the_losses_and_nothing_else(mixup: bool) -> None:
    """Not the values, or an example of weight zero would be the best of its class."""
    value: Literal["drop", "loss_after"] = "drop" if mixup else "loss_after"
    method = FSR(mixup=mixup, value=value, lookahead_rate=1e-9)
    results, values = [], []
    task = replace(TASK, class_weights=(2.0, 2.0, 2.0))
    weight = torch.linspace(0, 2, 12).double()
    for chosen, given in ((TASK, None), (task, weight)):
        networks, batch, feeds = small(method)
        filled(networks, batch.y)
        torch.manual_seed(7)
        results.append(method.loss(networks, chosen, replace(batch, weight=given), feeds, CLOCK))
        values.append(remembered(networks).dictionary.values)
    torch.testing.assert_close(values[1], values[0], rtol=1e-5, atol=1e-9)
    even, weighted = (result.weights for result in results)
    assert even is not None
    assert weighted is not None
    torch.testing.assert_close(weighted / weighted.sum(), even / even.sum())
    torch.manual_seed(7)
    remembered(networks).dictionary.draw(1)
    mixed = (
        mix(replace(batch, weight=weight)) if mixup else Mixed.plain(replace(batch, weight=weight))
    )
    losses = mixed.losses(task, results[1].logits)
    torch.testing.assert_close(results[1].loss, (weighted * losses).sum())


def test_before_the_start_weights_are_uniform_and_values_are_learned() -> None:
    method = FSR(start=0.5)
    networks, batch, feeds = small(method)
    result = method.loss(networks, TASK, batch, feeds, replace(CLOCK, step=49))
    torch.testing.assert_close(result.loss, F.cross_entropy(result.logits, batch.y))
    assert feeds.asked == []
    assert remembered(networks).dictionary.values.all()
    method.loss(networks, TASK, batch, feeds, CLOCK)
    assert feeds.asked == ["train 3"]


def test_there_is_one_epoch_before_the_start_at_least() -> None:
    """The dictionary is first filled when all examples have been seen."""
    method = FSR(start=0.0)
    networks, batch, feeds = small(method)
    method.loss(networks, TASK, batch, feeds, EARLY)
    assert feeds.asked == []
    method.finish_epoch(networks, TASK, feeds, replace(CLOCK, step=10))
    chosen = remembered(networks).dictionary.chosen
    assert torch.equal(batch.y[chosen.flatten()], torch.arange(3))
    method.loss(networks, TASK, batch, feeds, replace(CLOCK, step=10))
    assert feeds.asked == ["train 3"]


@pytest.mark.parametrize(
    ("train", "classes", "expected"),
    [(50_000, 10, 200), (50_000, 7, 285), (5_000, 10, 50), (300, 100, 1), (20, 3, 1)],
)
def test_the_dictionary_has_as_many_of_every_class(train: int, classes: int, expected: int) -> None:
    """2,000 rounded down, a tenth of the training set at most, one a class at least."""
    memory = FSR().build_memory(Sizes(train=train, meta=0, unlabelled=0, n_classes=classes))
    assert isinstance(memory, Remembered)
    assert memory.dictionary.chosen.shape == (classes, expected)
    assert memory.pseudo_labels is None
    assert memory.average is None


def test_the_dictionary_by_hand() -> None:
    dictionary = Dictionary(7, 3, 2)
    dictionary.observe(torch.tensor([4, 0]), torch.tensor([10.0, 20.0]), 0.9)
    dictionary.observe(torch.tensor([4]), torch.tensor([-10.0]), 0.9)
    torch.testing.assert_close(dictionary.values[[4, 0]], torch.tensor([-0.1, 2.0]))
    dictionary.values = torch.tensor([1.0, 5.0, 2.0, 3.0, 9.0, 0.0, 4.0])
    dictionary.refill(torch.tensor([0, 0, 0, 0, 1, 2, 2]))
    assert dictionary.chosen.tolist() == [[1, 3], [4, 4], [6, 5]], "best first, too few repeat"
    dictionary.refill(torch.tensor([0, 0, 0, 0, 1, 1, 1]))
    assert dictionary.chosen[2].tolist() == [4, 1], "a class without examples takes the best"


def test_a_draw_has_as_many_of_every_class_all_different() -> None:
    dictionary = Dictionary(60, 3, 20)
    dictionary.chosen = torch.arange(60).view(3, 20)
    torch.manual_seed(0)
    first, second = dictionary.draw(5), dictionary.draw(5)
    for drawn in (first, second):
        assert len(drawn.unique()) == 15
        assert torch.equal((drawn // 20).bincount(), torch.tensor([5, 5, 5]))
    assert not torch.equal(first, second)
    assert dictionary.draw(99).sort().values.tolist() == list(range(60))


def test_mixup_by_hand() -> None:
    _, batch, _ = small(FSR())
    torch.manual_seed(1)
    mixed = mix(batch)
    torch.manual_seed(1)
    share = 1 - torch.rand(12).square() / 2
    other = torch.randperm(12)
    assert (share >= 0.5).all()
    torch.testing.assert_close(
        mixed.x, share[:, None] * batch.x + (1 - share[:, None]) * batch.x[other]
    )
    logits = torch.randn(12, 3).double()
    one, two = (F.cross_entropy(logits, y, reduction="none") for y in (batch.y, batch.y[other]))
    torch.testing.assert_close(mixed.losses(TASK, logits), share * one + (1 - share) * two)
    weight = torch.rand(12).double()
    torch.manual_seed(1)
    weighted = mix(replace(batch, weight=weight))
    torch.testing.assert_close(
        weighted.losses(TASK, logits), share * weight * one + (1 - share) * weight[other] * two
    )
    torch.testing.assert_close(weighted.counts(TASK), share * weight + (1 - share) * weight[other])
    assert torch.equal(weighted.unweighted().losses(TASK, logits), mixed.losses(TASK, logits))
    plain = Mixed.plain(batch)
    assert plain.x is batch.x
    assert torch.equal(plain.losses(TASK, logits), one)


def test_with_mixup_the_drop_is_from_the_mixed_to_the_plain_input() -> None:
    """As the authors' code has it; the plain pass does not move the statistics."""
    method = FSR(mixup=True, value="drop", lookahead_rate=1e-12)
    networks, batch, feeds = small(method, rate=0.0)
    f = networks.classifier
    state = {name: value.clone() for name, value in f.state_dict().items()}
    torch.manual_seed(2)
    with mode(networks, dropout=True, statistics=False):
        result = method.loss(networks, TASK, batch, feeds, EARLY)
        once = {name: value.clone() for name, value in f.named_buffers()}
        f.load_state_dict(state)
        torch.manual_seed(2)
        mixed = mix(batch)
        logits = f(mixed.x)
        assert all(torch.equal(once[name], value) for name, value in f.named_buffers())
        after = F.cross_entropy(f(batch.x), batch.y, reduction="none")
    torch.testing.assert_close(result.loss, mixed.losses(TASK, logits).mean())
    drop = mixed.losses(TASK, logits) - after
    torch.testing.assert_close(remembered(networks).dictionary.values, 0.1 * drop.detach())


def test_pseudo_labels_by_hand() -> None:
    labels = PseudoLabels(3, 2).double()
    logits = torch.tensor([[2.0, -2.0], [1.0, 3.0]]).double()
    index = torch.tensor([2, 0])
    assert not labels.visit(index, logits, 0.1).any(), "nothing is known before the first visit"
    torch.testing.assert_close(labels.logits[index], 0.9 * logits)
    kept = labels.visit(index, torch.zeros_like(logits), 0.1)
    scale = (0.81 * (4 + 4 + 1 + 9) / 4) ** 0.5
    torch.testing.assert_close(kept, 0.9 * logits / scale)
    torch.testing.assert_close(labels.logits[index], 0.1 * kept)


def test_the_soft_label_loss_joins_at_the_start() -> None:
    plain, soft = FSR(), FSR(pseudo_weight=2.0, pseudo_temperature=0.5)
    losses = {}
    for clock in (EARLY, CLOCK):
        for method in (plain, soft):
            networks, batch, feeds = small(method)
            filled(networks, batch.y)
            if method is soft:
                torch.manual_seed(6)
                pseudo = remembered(networks).pseudo_labels
                assert pseudo is not None
                pseudo.logits.normal_()
                kept = pseudo.logits / pseudo.logits.square().mean().sqrt()
            torch.manual_seed(0)
            result = method.loss(networks, TASK, batch, feeds, clock)
            losses[clock.step, method is soft] = result.loss
    assert torch.equal(losses[9, False], losses[9, True])
    target = (kept / 0.5).softmax(1)
    distance = -(target * result.logits.log_softmax(1)).sum(1).mean()
    torch.testing.assert_close(losses[50, True], losses[50, False] + 2.0 * distance)


def test_the_average_by_hand() -> None:
    average = Average(2)
    weights = [torch.tensor([1.0, -1.0]), torch.tensor([2.0, 0.0]), torch.tensor([0.0, 5.0])]
    average.follow(nn.ParameterList([weights[0]]), 0, 0.999)
    assert torch.equal(average.flat, weights[0])
    average.follow(nn.ParameterList([weights[1]]), 1, 0.999)
    torch.testing.assert_close(average.flat, 0.1 * weights[0] + 0.9 * weights[1])
    before = average.flat.clone()
    average.follow(nn.ParameterList([weights[2]]), 10**6, 0.999)
    torch.testing.assert_close(average.flat, 0.999 * before + 0.001 * weights[2])


def test_a_state_goes_flat_and_back() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(memory_format=torch.channels_last)
    other = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    net(torch.randn(2, 3, 5, 5))
    load_flat_state(other, flat_state(net))
    for name, value in net.state_dict().items():
        if value.is_floating_point():
            assert torch.equal(other.state_dict()[name], value)


class _InMemory:
    """Keeps the last state of a run."""

    def __init__(self) -> None:
        self.kept: tuple[Tensors, Tensors, dict[str, object]] | None = None

    def begin(self, data: Prepared, state: TrainingState) -> None:
        if self.kept is not None:
            restore(state, *self.kept)

    def save(self, state: TrainingState) -> None:
        tensors, plain = progress_of(state)
        weights = {name: value.clone() for name, value in weights_of(state).items()}
        self.kept = weights, {name: value.clone() for name, value in tensors.items()}, plain


def test_the_averaged_weights_are_the_model_also_of_a_run_resumed_at_its_very_end() -> None:
    """The last checkpoint has the weights of the last step; the average is put in afterwards."""
    data, keeper = prepare(recipe("fsr-full"), source()), _InMemory()
    whole = fit_prepared(data, device=CPU, observer=Silent(), keeper=keeper)
    average = remembered(whole.networks).average
    assert average is not None
    final = flat_state(whole.networks.classifier)
    assert torch.equal(final, average.flat)
    assert keeper.kept is not None
    last = keeper.kept[0]["classifier.head.1.weight"]
    assert not torch.equal(last, whole.networks.state_dict()["classifier.head.1.weight"])
    again = fit_prepared(data, device=CPU, observer=Silent(), keeper=keeper)
    assert torch.equal(flat_state(again.networks.classifier), final)


def test_the_head_is_found_and_a_net_without_one_moves_altogether() -> None:
    method = FSR()
    networks, batch, feeds = small(method)
    features = networks.classifier.forward_features(batch.x).detach()
    assert set(reached_by_head(networks, features)) == {"head.1.weight", "head.1.bias"}
    opaque = OpaqueClassifier(networks.classifier, 3)
    networks.classifier = opaque
    assert reached_by_head(networks, opaque(batch.x).detach()) == {}
    filled(networks, batch.y)
    weights = method.loss(networks, TASK, batch, feeds, CLOCK).weights
    assert weights is not None
    assert weights.isfinite().all()


@pytest.mark.parametrize("method", [FSR(), FSR.full(), FSR(partial=False)])
def test_extreme_logits_stay_finite(method: FSR) -> None:
    networks, batch, feeds = small(method)
    networks, batch = networks.float(), replace(batch, x=batch.x.float())
    feeds.x_train = feeds.x_train.float()
    filled(networks, batch.y)
    with torch.no_grad():
        for p in networks.classifier.parameters():
            p.mul_(100)
    result = method.loss(networks, TASK, batch, feeds, CLOCK)
    assert result.logits.abs().max() > 1e4
    result.loss.backward()
    assert result.loss.isfinite()
    for p in networks.classifier.parameters():
        assert p.grad is not None
        assert p.grad.isfinite().all()
    for value in remembered(networks).buffers():
        assert value.isfinite().all()


def test_the_full_method_has_what_its_authors_have() -> None:
    full = FSR.full()
    assert (full.mixup, full.weight_average, full.pseudo_weight) == (True, 0.999, 2.0)
    assert (full.pseudo_temperature, full.pseudo_momentum) == (1.0, 0.1)
    assert full.value == "drop"
    assert (FSR().capacity, FSR().dictionary_batch) == (2000, 200)
    assert (FSR().lookahead_rate, FSR().value_momentum) == (0.1, 0.9)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"capacity": 0}, "capacity is 0.*at least 1"),
        ({"capacity_share": 0.0}, r"capacity_share is 0.0.*\(0, 1\]"),
        ({"dictionary_batch": 0}, "dictionary_batch is 0.*at least 1"),
        ({"start": 1.0}, r"start is 1.0.*\[0, 1\)"),
        ({"start_epochs": -1}, "start_epochs is -1.*negative"),
        ({"lookahead_rate": 0.0}, "lookahead_rate is 0.0.*positive"),
        ({"value_momentum": 1.0}, r"value_momentum is 1.0.*\[0, 1\)"),
        ({"weight_average": 1.0}, r"weight_average is 1.0.*\[0, 1\)"),
        ({"pseudo_weight": -1.0}, "pseudo_weight is -1.0.*negative"),
        ({"negatives": "abs"}, "negatives is 'abs'.*clip, shift"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        FSR(**fields)  # type: ignore[arg-type]


def test_a_run_that_would_end_before_the_dictionary_is_used_is_refused() -> None:
    plan = Plan(total=10, steps_per_epoch=10, meta_size=0, unlabelled_size=0)
    with pytest.raises(InputError, match=r"never weight.*until step 10"):
        FSR().check(plan)
    FSR().check(replace(plan, total=20))
    with pytest.raises(InputError, match="until step 20"):
        FSR(start_epochs=2).check(replace(plan, total=20))


def purity(networks: Networks, wrong: object) -> float:
    """Share of right labels in the dictionary."""
    chosen = remembered(networks).dictionary.chosen.flatten().numpy()
    return 1 - float(wrong[chosen].mean())  # type: ignore[index]


@pytest.mark.parametrize("name", ["fsr", "fsr-full"])
def test_wrong_labels_are_weighted_down_and_not_memorised(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 % symmetric noise; ERM ends near 0.7 here (see test_mwn). No clean example is used."""
    mine = outcome(name, monkeypatch, FSR)
    assert mine.auroc > 0.8
    assert mine.accuracy > 0.85
    assert mine.memorised < 0.75
    assert purity(mine.model.networks, mine.wrong) > 0.9


def test_without_mixup_the_drop_collects_wrong_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why the core method values examples by ``loss_after``."""
    mine = outcome("fsr", monkeypatch, FSR, value="drop")
    assert purity(mine.model.networks, mine.wrong) < 0.6
    assert mine.auroc < 0.5
