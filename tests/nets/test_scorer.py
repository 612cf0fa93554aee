from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from torch import Tensor, nn

from revar.nets.base import Dropout
from revar.nets.build import Backbone
from revar.nets.scorer import (
    Evidence,
    EvidenceScorer,
    FeatureScorer,
    NetworkScorer,
    Scored,
    Scorer,
    top_log_odds,
)


def evidence(n: int = 16, seed: int = 0, scale: float = 3.0, offset: float = 2.0) -> Evidence:
    draw = torch.Generator().manual_seed(seed)
    return Evidence(
        x=torch.randn(n, 5, generator=draw),
        embedding=torch.randn(n, 6, generator=draw),
        log_odds=torch.randn(n, generator=draw) * scale + offset,
    )


def standardised(log_odds: Tensor) -> Tensor:
    values = log_odds.double()
    return (values - values.mean()) / (values - values.mean()).square().mean().sqrt()


# --- the scorer that starts from softmax response


def test_it_starts_exactly_at_the_standardised_negative_log_odds() -> None:
    shown = evidence()
    scored = EvidenceScorer(6).train()(shown)
    torch.testing.assert_close(
        scored.base.double(), -standardised(shown.log_odds), rtol=1e-5, atol=1e-6
    )
    assert torch.equal(scored.correction, torch.zeros(16))
    assert torch.equal(scored.logit, scored.base)
    assert torch.equal(scored.logit.argsort(), shown.log_odds.argsort(descending=True))


def test_unseen_statistics_are_zero_and_one() -> None:
    shown = evidence()
    scored = EvidenceScorer(6).eval()(shown)
    assert torch.equal(scored.base, -shown.log_odds)


@pytest.mark.parametrize(("scale", "offset"), [(30.0, 0.0), (0.01, 500.0)])
def test_the_base_does_not_depend_on_how_confident_the_classifier_is(
    scale: float, offset: float
) -> None:
    plain = EvidenceScorer(6).train()(evidence())
    other = EvidenceScorer(6).train()(evidence(scale=3.0 * scale, offset=offset))
    torch.testing.assert_close(other.base, plain.base, rtol=1e-2, atol=1e-2)


def test_the_first_batch_sets_the_statistics_and_later_ones_move_them() -> None:
    scorer = EvidenceScorer(6, momentum=0.1).train()
    first, second = evidence(seed=1), evidence(seed=2, scale=9.0, offset=-4.0)
    scorer(first)
    mean, deviation = first.log_odds.mean(), first.log_odds.std(correction=0)
    torch.testing.assert_close(scorer.mean, mean)
    torch.testing.assert_close(scorer.deviation, deviation)
    scorer(second)
    torch.testing.assert_close(scorer.mean, 0.9 * mean + 0.1 * second.log_odds.mean())
    torch.testing.assert_close(
        scorer.deviation, 0.9 * deviation + 0.1 * second.log_odds.std(correction=0)
    )


def test_statistics_move_in_training_mode_only() -> None:
    scorer = EvidenceScorer(6)
    for training in (False, True, False):
        scorer.train(training)
        before = copy.deepcopy(scorer.state_dict())
        scorer(evidence(seed=3))
        moved = [key for key, value in scorer.state_dict().items() if not value.equal(before[key])]
        assert moved == (["mean", "deviation", "seen"] if training else [])


def test_scoring_a_row_does_not_depend_on_its_neighbours() -> None:
    scorer = EvidenceScorer(6).train()
    scorer(evidence(seed=1))
    nn.init.normal_(scorer.net[-1].weight)  # type: ignore[arg-type]
    scorer.eval()
    shown = evidence()
    whole = scorer(shown).logit
    one = scorer(Evidence(shown.x[4:5], shown.embedding[4:5], shown.log_odds[4:5])).logit
    torch.testing.assert_close(one, whole[4:5])


def test_log_odds_that_are_all_alike_are_no_division_by_zero() -> None:
    shown = Evidence(torch.zeros(4, 5), torch.randn(4, 6), torch.full((4,), 7.0))
    scored = EvidenceScorer(6).train()(shown)
    assert torch.equal(scored.logit, torch.zeros(4))


def test_statistics_survive_being_saved() -> None:
    scorer = EvidenceScorer(6).train()
    scorer(evidence(seed=1))
    loaded = EvidenceScorer(6)
    loaded.load_state_dict(scorer.state_dict())
    shown = evidence(seed=2)
    assert torch.equal(loaded.eval()(shown).logit, scorer.eval()(shown).logit)
    # A loaded scorer goes on moving its statistics; it does not set them anew.
    loaded.train()(shown)
    scorer.train()(shown)
    assert torch.equal(loaded.mean, scorer.mean)


def test_only_the_correction_learns() -> None:
    scorer = EvidenceScorer(6).train()
    scored = scorer(evidence())
    assert not scored.base.requires_grad
    (scored.logit * torch.randn(16)).sum().backward()
    last = scorer.net[-1]
    assert isinstance(last, nn.Linear)
    assert last.weight.grad is not None
    assert last.weight.grad.abs().sum() > 0


def test_a_trained_correction_is_added_to_the_base() -> None:
    scorer = EvidenceScorer(6).train()
    scorer(evidence(seed=5))
    nn.init.normal_(scorer.net[-1].weight)  # type: ignore[arg-type]
    scorer.eval()
    shown = evidence()
    scored = scorer(shown)
    standard = (shown.log_odds - scorer.mean) / scorer.deviation
    expected = scorer.net(torch.cat([shown.embedding, standard[:, None]], 1))[:, 0]
    assert torch.equal(scored.correction, expected)
    assert scored.correction.abs().sum() > 0
    assert torch.equal(scored.logit, scored.base + scored.correction)


# --- the others


def scorers() -> list[Scorer]:
    net = Backbone("mlp", Dropout(rate=0.0)).build((5,), 1)
    return [FeatureScorer(6), NetworkScorer(net)]


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("n", [1, 16])
def test_scorers_without_a_base_are_all_correction(kind: int, n: int) -> None:
    scorer = scorers()[kind].eval()
    scored = scorer(evidence(n))
    assert isinstance(scored, Scored)
    assert scored.logit.shape == (n,)
    assert scored.base is None
    assert torch.equal(scored.logit, scored.correction)


@pytest.mark.parametrize(
    "scorer", [FeatureScorer(6), EvidenceScorer(6)], ids=["features", "evidence"]
)
def test_small_scorers_are_not_rounded_by_a_run_in_half_precision(
    scorer: FeatureScorer | EvidenceScorer,
) -> None:
    nn.init.normal_(scorer.net[-1].weight)  # type: ignore[arg-type]
    shown = evidence()
    exact = scorer.eval()(shown).logit
    with torch.autocast("cpu", torch.bfloat16):
        within = scorer(shown).logit
        assert torch.is_autocast_enabled("cpu")
    assert within.dtype == exact.dtype
    assert torch.equal(within, exact)


def test_each_scorer_reads_what_its_name_says() -> None:
    shown = evidence()
    features, network = (scorer.eval() for scorer in scorers())
    other_x = Evidence(shown.x + 1, shown.embedding, shown.log_odds)
    other_embedding = Evidence(shown.x, shown.embedding.flip(1), shown.log_odds)
    other_odds = Evidence(shown.x, shown.embedding, shown.log_odds + 1)
    assert torch.equal(features(shown).logit, features(other_x).logit)
    assert not torch.equal(features(shown).logit, features(other_embedding).logit)
    assert torch.equal(network(shown).logit, network(other_embedding).logit)
    assert not torch.equal(network(shown).logit, network(other_x).logit)
    for scorer in (features, network):
        assert torch.equal(scorer(shown).logit, scorer(other_odds).logit)


# --- log-odds

LOGITS = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 4), st.integers(2, 6)), elements=st.floats(-15, 15)
)


@given(LOGITS)
def test_log_odds_are_those_of_the_largest_probability(logits: NDArray[np.float64]) -> None:
    z = torch.from_numpy(logits)
    p = z.softmax(-1)
    top, where = p.max(-1)
    # Not 1 - top, which loses digits.
    others = p.scatter(-1, where[:, None], 0.0).sum(-1)
    torch.testing.assert_close(top_log_odds(z), (top / others).log(), rtol=1e-9, atol=1e-9)


def test_log_odds_by_hand() -> None:
    z = torch.tensor([[0.0, 0.0], [2.0, -1.0], [1.0, 1.0], [0.0, float(np.log(3))]])
    torch.testing.assert_close(top_log_odds(z), torch.tensor([0.0, 3.0, 0.0, float(np.log(3))]))
    three = torch.log(torch.tensor([[0.5, 0.25, 0.25]]))
    torch.testing.assert_close(top_log_odds(three), torch.tensor([0.0]), atol=1e-6, rtol=0)


def test_log_odds_stay_finite_and_ordered_where_probabilities_saturate() -> None:
    z = torch.tensor([[1e4, 0.0, -1e4], [2e4, 0.0, -1e4], [-1e4, -1e4, -1e4], [88.0, 87.9, -200.0]])
    got = top_log_odds(z)
    assert torch.isfinite(got).all()
    expected = torch.tensor([1e4, 2e4, -float(np.log(2)), 0.1])
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-3)  # float32 at 1e4
    # The largest probabilities of the first two are both exactly one.
    assert z[:2].softmax(-1).amax(-1).tolist() == [1.0, 1.0]


@given(LOGITS)
def test_ranking_by_log_odds_is_ranking_by_the_largest_probability(
    logits: NDArray[np.float64],
) -> None:
    z = torch.from_numpy(logits)
    top = z.softmax(-1).amax(-1)
    odds = top_log_odds(z)
    for i in range(len(z)):
        for j in range(len(z)):
            if top[i] > top[j] + 1e-12:
                assert odds[i] > odds[j]


@given(LOGITS, st.floats(-50, 50))
def test_a_constant_added_to_all_logits_changes_nothing(
    logits: NDArray[np.float64], constant: float
) -> None:
    z = torch.from_numpy(logits)
    torch.testing.assert_close(top_log_odds(z + constant), top_log_odds(z), rtol=1e-9, atol=1e-9)


def test_log_odds_leave_the_logits_alone() -> None:
    z = torch.randn(5, 3)
    kept = z.clone()
    top_log_odds(z)
    assert torch.equal(z, kept)


# --- the scorer on images that are smaller


def test_a_network_scorer_reads_means_of_squares() -> None:
    torch.manual_seed(0)
    net = Backbone("convnet", Dropout(rate=0.0)).build((3, 4, 6), 1).eval()
    x = torch.randn(5, 3, 8, 12)
    nothing = torch.zeros(0)
    by_hand = (x[..., ::2, ::2] + x[..., 1::2, ::2] + x[..., ::2, 1::2] + x[..., 1::2, 1::2]) / 4
    found = NetworkScorer(net, 2)(Evidence(x, nothing, nothing)).logit
    torch.testing.assert_close(found, net(by_hand).squeeze(-1))
    whole = NetworkScorer(net)(Evidence(x, nothing, nothing)).logit
    assert torch.equal(whole, net(x).squeeze(-1))
    assert not torch.allclose(found, whole)


# --- layers without the calls around them


def _by_layers(scorer: FeatureScorer, shown: Evidence) -> Tensor:
    found = shown.embedding
    for layer in scorer.net:
        found = layer(found)
    return found.squeeze(-1)


def test_its_layers_are_run_as_they_are() -> None:
    scorer, shown = FeatureScorer(6), evidence()
    assert torch.equal(scorer(shown).correction, _by_layers(scorer, shown))
    parameters = list(scorer.parameters())
    ours = torch.autograd.grad(scorer(shown).correction.square().sum(), parameters)
    theirs = torch.autograd.grad(_by_layers(scorer, shown).square().sum(), parameters)
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one, other)


def test_a_layer_that_was_swapped_is_run() -> None:
    scorer, shown = FeatureScorer(6), evidence()
    before = scorer(shown).correction
    scorer.net[2] = nn.Tanh()
    assert torch.equal(scorer(shown).correction, _by_layers(scorer, shown))
    assert not torch.equal(scorer(shown).correction, before)


def test_a_hook_on_a_layer_is_heard() -> None:
    scorer, shown = FeatureScorer(6), evidence()
    scorer.net[1].register_forward_hook(lambda _, __, output: 2 * output)
    assert torch.equal(scorer(shown).correction, _by_layers(scorer, shown))
