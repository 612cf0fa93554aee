"""ReVaR against its equations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import support.feeds
from revar import SelectiveClassifier
from revar.data.source import Part, Source
from revar.errors import InputError
from revar.fitting import build_networks
from revar.functional import call, mode, parameters
from revar.methods.base import Plan
from revar.methods.erm import ERM
from revar.methods.revar import ReVaR
from revar.methods.reweighting import (
    MetaObjective,
    linear_surrogate,
    normalise_weights,
    proximal_surrogate,
)
from revar.nets.base import Dropout, DropoutPlacement
from revar.nets.scorer import Evidence, EvidenceScorer, top_log_odds
from revar.preparation import prepare
from revar.recipe import Recipe
from revar.stochastic import DropoutPasses, variance
from revar.types import Batch, Networks
from support.feeds import CLOCK, TASK, FixedFeeds
from support.problems import blobs, fit, source
from support.threads import one_thread


def small(
    method: ReVaR, placement: DropoutPlacement = "head"
) -> tuple[Networks, Batch, FixedFeeds]:
    """Networks with a U-Score that has already moved, and batches."""
    networks, batch, feeds = support.feeds.small(method, placement)
    assert networks.scorer is not None
    with torch.no_grad():
        for p in networks.scorer.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return networks, batch, feeds


def naive_hypergradient(
    method: ReVaR, networks: Networks, batch: Batch, meta: Batch, unlabelled: Tensor | None
) -> list[Tensor]:
    """Differentiate the meta-loss through a look-ahead written out, with the graph kept."""
    f, scorer = networks.classifier, networks.scorer
    assert scorer is not None
    theta = {k: p.detach().clone().requires_grad_() for k, p in f.named_parameters()}
    with mode(f, dropout=False, statistics=True):
        features = f.forward_features(batch.x).detach()
        logits = f.forward_head(features).detach()
    evidence = Evidence(batch.x, features, top_log_odds(logits))
    with mode(scorer, dropout=True, statistics=False):
        raw = scorer(evidence).logit.sigmoid()
    weights = normalise_weights(raw, method.weight_normalisation)
    with mode(f, dropout=True, statistics=False):
        losses = F.cross_entropy(call(f, theta, batch.x), batch.y, reduction="none")
    gradients = torch.autograd.grad(
        (weights * losses).mean(), list(theta.values()), create_graph=True
    )
    ahead = {k: p - CLOCK.lr * g for (k, p), g in zip(theta.items(), gradients, strict=True)}
    x = meta.x if unlabelled is None else torch.cat([meta.x, unlabelled])
    with mode(f, dropout=False, statistics=True):
        deterministic = call(f, ahead, x)
    with mode(f, dropout=True, statistics=True):
        samples = torch.stack([call(f, ahead, x) for _ in range(method.passes)])
    loss = F.cross_entropy(deterministic[: len(meta.x)], meta.y)
    loss = loss + method.variance_weight * variance(samples).mean()
    return list(torch.autograd.grad(loss, list(scorer.parameters())))


@pytest.mark.parametrize("reads", ["network", "features", "evidence"])
@pytest.mark.parametrize("how", ["none", "batch_mean_one", "sum_one"])
def test_the_linear_update_is_the_hypergradient(reads: str, how: str) -> None:
    """Appendix A, whole: against second-order differentiation through the written-out step."""
    method = ReVaR(
        scorer=reads,  # type: ignore[arg-type]
        weight_normalisation=how,  # type: ignore[arg-type]
        update="linear",
        candidates="train",
        meta_batch=16,
        passes=3,
    )
    networks, batch, feeds = small(method, "everywhere")
    if isinstance(networks.scorer, EvidenceScorer):
        # Its statistics move in every training pass; here they stand still for both.
        networks.scorer.seen.fill_(True)
        networks.scorer.momentum = 0.0
    torch.manual_seed(11)
    result = method.outer_loss(networks, TASK, batch, feeds, CLOCK)
    got = torch.autograd.grad(result.loss, list(networks.scorer.parameters()))  # type: ignore[union-attr]
    torch.manual_seed(11)
    expected = naive_hypergradient(method, networks, batch, feeds.meta(16), None)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-14)


def test_pooled_unlabelled_inputs_join_the_variance_and_nothing_else() -> None:
    method = ReVaR(
        scorer="features", update="linear", candidates="train", meta_batch=8, passes=2,
        unlabelled="pooled", unlabelled_from=0.0, variance_weight=3.0,
    )  # fmt: skip
    networks, batch, feeds = small(method, "everywhere")
    torch.manual_seed(11)
    result = method.outer_loss(networks, TASK, batch, feeds, CLOCK)
    got = torch.autograd.grad(result.loss, list(networks.scorer.parameters()))  # type: ignore[union-attr]
    torch.manual_seed(11)
    unlabelled = feeds.unlabelled(8)
    expected = naive_hypergradient(method, networks, batch, feeds.meta(8), unlabelled)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-14)


def test_only_unlabelled_inputs_leave_the_labels_of_the_meta_set_out() -> None:
    method = ReVaR(
        unlabelled="only", unlabelled_from=0.0, passes=2, candidates="train", scorer="features"
    )
    networks, batch, feeds = small(method)
    torch.manual_seed(5)
    first = method.outer_loss(networks, TASK, batch, feeds, CLOCK).meta_loss
    torch.manual_seed(5)
    feeds.y = (feeds.y + 1) % 3
    assert torch.equal(first, method.outer_loss(networks, TASK, batch, feeds, CLOCK).meta_loss)


@pytest.mark.parametrize(("step", "takes_part"), [(76, False), (77, True)])
def test_unlabelled_inputs_take_part_from_their_share_of_the_budget(
    step: int, takes_part: bool
) -> None:
    """230 of 300 epochs: step 77 of 100."""
    method = ReVaR(unlabelled="pooled")
    networks, batch, feeds = small(method)
    method.outer_loss(networks, TASK, batch, feeds, replace(CLOCK, step=step))
    assert any(line.startswith("unlabelled") for line in feeds.asked) == takes_part


def test_no_variance_weight_takes_no_passes() -> None:
    """IBR trains a net without dropout; ReVaR refuses it."""
    ibr = ReVaR(variance_weight=0.0)
    recipe = Recipe(method=ibr, backbone="mlp", dropout=Dropout(rate=0.0))
    networks = build_networks(recipe, TASK, torch.zeros(2, 4), None, torch.device("cpu"))
    assert networks.sampler is None
    with pytest.raises(InputError, match="no dropout"):
        build_networks(
            replace(recipe, method=ReVaR()), TASK, torch.zeros(2, 4), None, torch.device("cpu")
        )


def test_the_mean_of_the_passes_can_be_the_prediction() -> None:
    """With T = 1 pass the mean is the pass: cross-entropy of the sampled logits."""
    method = ReVaR(meta_prediction="dropout_mean", variance_weight=0.0, passes=1)
    networks, batch, feeds = small(method)
    torch.manual_seed(5)
    meta_loss = method.outer_loss(networks, TASK, batch, feeds, replace(CLOCK, lr=0.0)).meta_loss
    torch.manual_seed(5)
    f, params = networks.classifier, parameters(networks.classifier)
    with mode(f, dropout=True, statistics=False):
        call(f, params, batch.x)  # the look-ahead draws first
    with mode(f, dropout=True, statistics=True):
        logits = call(f, params, feeds.x[:8])
    torch.testing.assert_close(meta_loss, F.cross_entropy(logits, feeds.y[:8]))


def test_held_out_candidates_are_never_aligned_with_their_own_gradient() -> None:
    method = ReVaR(meta_batch=100)
    networks, batch, feeds = small(method)
    method.outer_loss(networks, TASK, batch, feeds, CLOCK)
    assert feeds.asked == ["meta 16"], "one draw, halved"


def test_during_the_warm_up_the_loss_is_that_of_erm() -> None:
    method = ReVaR()
    networks, batch, feeds = small(method)
    early = replace(CLOCK, step=7)  # 100 / 12 rounds to 8
    torch.manual_seed(0)
    result = method.loss(networks, TASK, batch, feeds, early)
    torch.manual_seed(0)
    assert torch.equal(result.loss, ERM().loss(networks, TASK, batch, feeds, early).loss)
    assert result.weights is None
    assert not method.outer_due(replace(CLOCK, step=5))
    assert method.loss(networks, TASK, batch, feeds, replace(CLOCK, step=8)).weights is not None


def test_a_small_variance_survives_half_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of 8 and 8 + 1/16, neighbours in bfloat16, have a mean between them."""
    samples = torch.tensor([8.0, 8.0625], dtype=torch.bfloat16)[:, None, None].expand(2, 5, 3)
    monkeypatch.setattr(DropoutPasses, "run", lambda *_: (samples[0], samples))
    networks, batch, _ = small(ReVaR())
    objective = MetaObjective(
        passes=2, variance_weight=1.0, space="logits", prediction="deterministic"
    )
    spread = 3 * 0.03125**2
    assert objective.unlabelled(networks, TASK, batch.x)({}).item() == pytest.approx(spread)
    meta = batch.part(slice(5))
    labelled = objective.labelled(networks, TASK, meta, None)({})
    assert labelled.item() == pytest.approx(float(np.log(3)) + spread, rel=1e-4)


def test_weights_are_normalised_as_asked() -> None:
    raw = torch.tensor([0.2, 0.3, 0.5]).double()
    assert torch.equal(normalise_weights(raw, "none"), raw)
    torch.testing.assert_close(normalise_weights(raw, "batch_mean_one"), 3 * raw)
    torch.testing.assert_close(normalise_weights(5 * raw, "sum_one"), raw)
    assert torch.isfinite(normalise_weights(torch.zeros(3), "batch_mean_one")).all()


def test_surrogates_by_hand() -> None:
    """Linear: -0.1 (1*2 - 1*4) / 2. Proximal: s = (-1, 1), mean of (c^2/2 - s c)."""
    alignment = torch.tensor([2.0, 4.0]).double()
    weights = torch.tensor([1.0, -1.0]).double()
    assert linear_surrogate(weights, alignment, 0.1).item() == pytest.approx(0.1)
    correction = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    loss = proximal_surrogate(correction, alignment)
    assert loss.item() == pytest.approx(((0.125 + 0.5) + (2.0 - 2.0)) / 2)
    (gradient,) = torch.autograd.grad(loss, correction)
    torch.testing.assert_close(gradient, (torch.tensor([0.5 + 1, 2 - 1]) / 2).double())


def test_the_proximal_update_is_minimised_by_the_standardised_alignment() -> None:
    alignment = torch.randn(50).double()
    standard = (alignment - alignment.mean()) / alignment.std(unbiased=False)
    best = proximal_surrogate(standard, alignment)
    for _ in range(20):
        other = standard + 0.1 * torch.randn(50).double()
        assert proximal_surrogate(other, alignment) > best
    assert torch.isfinite(proximal_surrogate(torch.zeros(4), torch.ones(4)))


def test_the_paper_is_literal() -> None:
    paper = ReVaR.paper()
    assert paper.scorer == "network"
    assert paper.update == "linear"
    assert paper.candidates == "train"
    assert paper.meta_batch is None
    assert paper.weight_normalisation == "none"
    assert paper.variance_weight == 1.0
    assert paper.interval == 15
    assert paper.warmup == pytest.approx(25 / 300)
    assert paper.passes == 10
    assert (paper.outer_optimiser, paper.outer_learning_rate) == ("sgd", 1e-4)
    assert (paper.outer_momentum, paper.outer_weight_decay) == (0.9, 1e-4)
    assert paper.orientation == "high"
    assert paper.unlabelled_from == pytest.approx(230 / 300)
    assert paper.default_score == "uscore"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"scorer": "pixels"}, "scorer is 'pixels'.*network, features, evidence"),
        ({"interval": 0}, "interval is 0.*at least 1"),
        ({"interval": 2.5}, "interval is 2.5.*whole number"),
        ({"warmup": 1.0}, r"warmup is 1.0.*\[0, 1\)"),
        ({"variance_weight": -1.0}, "variance_weight is -1.0.*negative"),
        ({"unlabelled": "only", "variance_weight": 0.0}, "variance_weight is 0.0.*positive"),
        ({"default_score": "uscroe"}, "default_score is 'uscroe'.*fused, uscore, softmax"),
        ({"scorer_backbone": "mlp"}, "scorer_backbone is 'mlp'.*none with scorer=evidence"),
    ],
)
def test_bad_fields_are_named(fields: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        ReVaR(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "plan", "words"),
    [
        (ReVaR(interval=15), {"total": 10}, "never be updated: 10 steps"),
        (ReVaR(warmup_epochs=10), {}, "warm-up until step 100"),
        (ReVaR(), {"meta_size": 1}, "meta set has 1 examples"),
        (ReVaR(unlabelled="pooled"), {}, "needs unlabelled inputs"),
        (
            ReVaR(unlabelled="pooled", unlabelled_from_epoch=10),
            {"unlabelled_size": 5},
            "never start: it begins at step 100 of 100",
        ),
    ],
)
def test_a_phase_that_would_never_start_is_an_error(
    method: ReVaR, plan: dict[str, int], words: str
) -> None:
    size = {"total": 100, "steps_per_epoch": 10, "meta_size": 20, "unlabelled_size": 0, **plan}
    with pytest.raises(InputError, match=words):
        method.check(Plan(**size))


def test_unlabelled_inputs_train_end_to_end() -> None:
    x, y = blobs()
    data = Source(Part(x, y), unlabelled=Part(blobs(seed=9)[0] + 0.5))
    for how in ("pooled", "only"):
        model = fit("revar", data, unlabelled=how, unlabelled_from=0.5)
        assert np.isfinite(model.predictions["train"].columns["uscore"]).all()


def test_training_points_have_uscores_and_weights_of_mean_one() -> None:
    model = fit("revar")
    train = model.predictions["train"]
    assert set(train.columns) == {"uscore", "weight"}
    assert train.columns["weight"].mean() == pytest.approx(1.0)
    order = np.argsort(train.columns["uscore"])
    assert (np.diff(train.columns["weight"][order]) >= 0).all()
    assert set(model.predictions["test"].columns) == {"uscore"}


@pytest.mark.parametrize("candidates", ["train", "held_out"])
@pytest.mark.parametrize("update", ["linear", "proximal"])
@pytest.mark.parametrize("reads", ["network", "features", "evidence"])
def test_every_combination_trains(reads: str, update: str, candidates: str) -> None:
    model = fit("revar", epochs=2, scorer=reads, update=update, candidates=candidates)
    assert np.isfinite(model.predictions["test"].columns["uscore"]).all()


@pytest.mark.parametrize("engine", ["double_backward", "finite_difference"])
def test_the_engines_train_the_same_model(engine: str) -> None:
    """Same steps through another engine: equal to rounding, in float32."""
    a, b = (
        fit("revar", epochs=2, interval=5, shares_gradient=False, engine=name)
        for name in ("forward_mode", engine)
    )
    left, right = a.predictions["test"].columns["uscore"], b.predictions["test"].columns["uscore"]
    assert np.corrcoef(left, right)[0, 1] > 0.999


@pytest.mark.parametrize("seed", range(3))
def test_g_gives_less_weight_where_training_labels_contradict_the_meta_set(seed: int) -> None:
    """Linear updates, clean meta set, one region of the inputs labelled wrongly in training."""
    x, y = blobs(900, seed=seed)
    noisy = (y == 2) & (x[:, 3] > 0)
    y = np.where(noisy, 0, y)
    data = Source(Part(x, y), meta=Part(*blobs(300, seed=100 + seed)))
    model = fit(
        "revar", data, seed=seed, epochs=12, scorer="features", update="linear",
        candidates="train", interval=1, meta_batch=512, shares_gradient=False,
        outer_learning_rate=0.003, dropout_rate=0.1,
    )  # fmt: skip
    train = model.predictions["train"]
    weight, region = train.columns["weight"], noisy[train.index]
    assert weight[region].mean() < 0.8 * weight[~region].mean(), seed


def test_orientation_auto_is_decided_on_tune_and_reported() -> None:
    model = fit("revar", source(), orientation="auto")
    assert model.fitted.orientation_note.startswith("auto")
    assert fit("revar", source(), orientation="low").fitted.orientation == -1


def test_a_given_meta_set_is_used_and_tune_still_comes_off_the_training_data() -> None:
    x, y = blobs()
    x_meta, y_meta = blobs(60, seed=4)
    data = prepare(Recipe(method=ReVaR()), Source(Part(x, y), meta=Part(x_meta, y_meta)))
    assert len(data.splits["meta"].x) == 60
    assert len(data.splits["tune"].x) == 24
    assert len(data.splits["train"].x) == 216


# --- g on smaller images


def test_g_on_smaller_images_trains_and_comes_back_from_its_folder(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    y = np.arange(96) % 2
    x = (
        generator.integers(0, 128, (96, 3, 8, 8), dtype=np.uint8)
        + (100 * y).astype(np.uint8)[:, None, None, None]
    )
    with one_thread():
        model = SelectiveClassifier(
            replace(ReVaR.paper(), scorer_reduction=2, interval=2), backbone="convnet",
            epochs=2, batch_size=16, random_state=0,
        ).fit(x, y)  # fmt: skip
        expected = model.uncertainty(x)
        model.save(tmp_path / "run")
        again = SelectiveClassifier.load(tmp_path / "run").uncertainty(x)
    assert len(np.unique(expected)) > 10
    np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (lambda: ReVaR(scorer_reduction=2), "scorer_reduction is 2"),
        (lambda: replace(ReVaR.paper(), scorer_reduction=0), "scorer_reduction is 0"),
    ],
)
def test_a_reduction_that_means_nothing_is_refused(method: Callable[[], ReVaR], said: str) -> None:
    with pytest.raises(InputError, match=said):
        method()


def test_rows_of_a_table_cannot_be_smaller() -> None:
    x, y = blobs(60)
    with pytest.raises(InputError, match="scorer_reduction is 2, and inputs are 4"):
        SelectiveClassifier(replace(ReVaR.paper(), scorer_reduction=2), epochs=1).fit(x, y)
