"""What limits g: closed forms against autograd, planted signals found, teachers that point up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import spearmanr
from torch import Tensor

from revar.nets.base import Dropout
from revar.nets.residual import resnet20
from revar.stochastic import variance
from support.scripts import scripts

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
CLASSES, WIDTH = 3, 4


@pytest.fixture(scope="module")
def limits() -> Iterator[Any]:
    """The scripts of the study."""
    with scripts("uscore_limits", "record", "teachers", "report", main="uscore_limits") as found:
        yield found


def random_said(limits: Any, n: int, seed: int, head: Tensor | None = None) -> Any:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, WIDTH, generator=generator)
    head = torch.randn(CLASSES, WIDTH + 1, generator=generator) if head is None else head
    labels = torch.randint(CLASSES, (n,), generator=generator)
    return limits.record.Said(features, F.pad(features, (0, 1), value=1.0) @ head.T, labels)


def head_loss(said: Any, head: Tensor) -> Tensor:
    return F.cross_entropy(said.inputs @ head.T, said.labels)


def test_alignments_of_the_last_layer_are_inner_products_of_gradients(limits: Any) -> None:
    head = torch.randn(CLASSES, WIDTH + 1, generator=torch.Generator().manual_seed(0))
    points, meta = (random_said(limits, n, seed, head) for n, seed in ((5, 1), (9, 2)))
    of_meta = torch.func.grad(lambda at: head_loss(meta, at))(head)
    wanted = [
        (torch.func.grad(lambda at, i=i: head_loss(points.at(torch.tensor([i])), at))(head)
         * of_meta).sum()
        for i in range(5)
    ]  # fmt: skip
    found = limits.teachers.aligned(points, limits.teachers.head_gradient(meta))
    torch.testing.assert_close(found, torch.stack(wanted))


def test_the_variance_term_is_the_dropout_variance_of_the_probabilities(limits: Any) -> None:
    """Linear in its weight, zero without dropout, and the slope of ``variance`` along itself."""
    head = torch.randn(CLASSES, WIDTH + 1, generator=torch.Generator().manual_seed(3))
    meta = random_said(limits, 6, 4, head)
    fold = limits.record.Fold(torch.arange(0), meta, meta, head)
    rows = torch.arange(6)
    plain, one, two = (
        limits.teachers.varied_gradient(fold, rows, weight, 0.5, seed=7)
        for weight in (0.0, 1.0, 2.0)
    )
    torch.testing.assert_close(plain, limits.teachers.head_gradient(meta))
    torch.testing.assert_close(two - plain, 2 * (one - plain))
    still = limits.teachers.varied_gradient(fold, rows, 5.0, 0.0, seed=7)
    torch.testing.assert_close(still, plain)
    kept = torch.rand(10, 6, WIDTH, generator=torch.Generator().manual_seed(7)) >= 0.5
    dropped = F.pad(2.0 * meta.features * kept, (0, 1), value=1.0).double()
    term = (one - plain).double()
    ends = [variance(dropped @ (head + t * term).T.double()).mean() for t in (-1e-3, 1e-3)]
    assert (ends[1] - ends[0]) / 2e-3 == pytest.approx(float(term.square().sum()), rel=1e-3)


def test_gradients_by_example_make_the_kernel_of_each_set_of_layers(limits: Any) -> None:
    torch.manual_seed(0)
    net = resnet20((1, 8, 8), CLASSES, Dropout())
    x, y = torch.randn(5, 1, 8, 8), torch.tensor([0, 1, 2, 0, 1])
    found = limits.record.kernels(net, (x[:2], y[:2]), (x[2:], y[2:]))
    assert list(found) == ["last layer", "last stage", "all"]
    points, meta = (limits.record.said(net, x[part], y[part]) for part in (slice(2), slice(2, 5)))
    closed = limits.teachers.aligned(points, limits.teachers.head_gradient(meta))
    torch.testing.assert_close(found["last layer"].mean(dim=1), closed)
    net.eval()
    gradients = [
        torch.autograd.grad(F.cross_entropy(net(x[part]), y[part]), list(net.parameters()))
        for part in (slice(1), slice(2, 5))
    ]
    names = [name for name, _ in net.named_parameters()]
    products = {
        name: float((a * b).sum()) for name, a, b in zip(names, *gradients, strict=True)
    }  # fmt: skip
    late = sum(
        v
        for k, v in products.items()
        if k.startswith(("head", *(f"trunk.{n}." for n in (8, 9, 10))))
    )
    assert float(found["all"][0].mean()) == pytest.approx(sum(products.values()), rel=1e-4)
    assert float(found["last stage"][0].mean()) == pytest.approx(late, rel=1e-4)
    pooled = limits.record.pooled(net, x)
    torch.testing.assert_close(pooled[:2, -64:], points.features)


@pytest.mark.parametrize("size", [1, 16])
def test_signal_to_noise_of_known_parts(limits: Any, size: int) -> None:
    """Signal 2^2, noise of each example 3^2, and 4^2 that all share in a draw."""
    generator = torch.Generator().manual_seed(5)
    signal = 2 * torch.randn(2000, 1, generator=generator)
    own = 3 * torch.randn(2000, 400, generator=generator)
    shared = 4 * torch.randn(1, 400, generator=generator)
    found = limits.main.signal_to_noise(signal + own + shared, size)
    assert found == pytest.approx((size * 4 / 25, size * 4 / 9), rel=0.1)


def test_noise_alone_has_no_signal(limits: Any) -> None:
    """The mean over few draws varies from row to row, which is not signal."""
    values = torch.randn(500, 4, generator=torch.Generator().manual_seed(6))
    assert limits.main.signal_to_noise(values)[0] < 0.05
    assert float(values.mean(dim=1).var() / values.var(dim=1).mean()) > 0.2


def made_up(limits: Any) -> Any:
    """Meta points whose loss falls as the bias of class 0 grows; of training points half are sure.

    All are of class 0, the second half is not sure of it. The more a point would push towards
    class 0, the larger its alignment.
    """
    n, times = 40, 2
    margins = torch.cat([torch.full((n // 2,), 4.0), torch.linspace(1, -1, n // 2)])

    def points(size: int, over: Tensor) -> Any:
        logits = torch.stack([over, torch.zeros(size), torch.full((size,), -9.0)], dim=1)
        return limits.record.Said(
            torch.ones(size, WIDTH), logits, torch.zeros(size, dtype=torch.int64)
        )

    train, meta = points(n, margins), points(300, torch.linspace(2, -1, 300))
    folds = []
    for rows in (torch.arange(0, n, 2), torch.arange(1, n, 2)):
        head = torch.zeros(CLASSES, WIDTH + 1)
        folds.append(limits.record.Fold(rows, train.at(rows), meta, head))
    kernel = torch.stack(
        [limits.teachers.aligned(train, limits.teachers.head_gradient(meta.at(torch.tensor([m]))))
         for m in range(300)], dim=1,
    )  # fmt: skip
    return limits.record.Record(
        train=(train,) * times, meta=(meta,) * times, shares=(0.5, 1.0), folds=tuple(folds),
        head=kernel, every=2 * kernel, dropout=0.3, seed=0,
    )  # fmt: skip


def test_every_teacher_points_up(limits: Any) -> None:
    record = made_up(limits)
    for lesson in limits.teachers.LESSONS:
        target = lesson.teacher(record)
        if lesson.points == "meta":
            assert float(target[-50:].mean()) > float(target[:50].mean()), lesson.name
        else:
            assert target.shape == (40,)
            assert float(target[20:].min()) > float(target[:20].max()), lesson.name


def test_more_meta_points_and_a_control_variate_come_closer_to_the_whole_set(limits: Any) -> None:
    """The control variate takes off all noise where the last layer tells all, as it does here."""
    record, teachers = made_up(limits), limits.teachers
    whole = teachers.whole_set(record)
    errors = [
        float((values - whole).square().mean())
        for values in (teachers.one_batch(record, 8), teachers.one_batch(record, 256))
    ]
    assert errors[1] < errors[0]
    torch.testing.assert_close(teachers.controlled(record), 2 * whole, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(teachers.all_layers_whole(record), 2 * whole, rtol=1e-4, atol=1e-6)
    assert float(teachers.centred(record).mean()) == pytest.approx(0.0, abs=1e-7)


def test_temperature_is_that_of_the_logits(limits: Any) -> None:
    generator = torch.Generator().manual_seed(8)
    logits = torch.randn(20_000, CLASSES, generator=generator)
    labels = torch.multinomial(logits.softmax(dim=1), 1, generator=generator).squeeze(1)
    said = limits.record.Said(torch.ones(20_000, 1), 3 * logits, labels)
    assert limits.teachers.temperature(said) == pytest.approx(3.0, rel=0.06)


@pytest.mark.parametrize("sharpness", [1.0, 3.0])
def test_alignments_depend_on_the_input_only_where_probabilities_are_wrong(
    limits: Any, sharpness: float
) -> None:
    """Labels as likely as the classifier says: their mean is zero for sure and unsure inputs."""
    head = torch.randn(CLASSES, WIDTH + 1, generator=torch.Generator().manual_seed(9))
    points = random_said(limits, 40_000, 10, head)
    generator = torch.Generator().manual_seed(11)
    labels = torch.multinomial(points.logits.softmax(dim=1), 1, generator=generator).squeeze(1)
    points = limits.record.Said(points.features, sharpness * points.logits, labels)
    values = limits.teachers.aligned(points, head)
    sure = points.logits.softmax(dim=1).amax(dim=1)
    for part in (sure > sure.median(), sure <= sure.median()):
        error = float(values[part].std()) / float(part.sum()) ** 0.5
        away = abs(float(values[part].mean())) / error
        assert away < 4 if sharpness == 1 else away > 20


@pytest.mark.parametrize("loss", ["linear", "regression", "ranking", "kl", "distil"])
@pytest.mark.parametrize("reads", ["features", "evidence"])
def test_g_learns_what_was_planted(limits: Any, loss: str, reads: str) -> None:
    """In its features; the log-odds are of no use, and evidence starts from them all the same."""
    generator = torch.Generator().manual_seed(12)
    embedding = torch.randn(1200, 6, generator=generator)
    log_odds = 0.1 * torch.randn(1200, generator=generator)
    target = embedding[:, 0] - embedding[:, 1]
    inputs = limits.teachers.Inputs(embedding, log_odds)
    scorer = limits.teachers.fit_g(
        limits.teachers.Inputs(embedding[:900], log_odds[:900]), target[:900], reads, loss, seed=0,
        epochs=20,
    )  # fmt: skip
    found = limits.teachers.score(scorer, inputs)[900:]
    lowest = 0.5 if reads == "evidence" and loss == "regression" else 0.85
    assert spearmanr(found.numpy(), target[900:].numpy()).statistic > lowest


def test_the_linear_form_saturates_and_regression_does_not(limits: Any) -> None:
    embedding = torch.randn(600, 6, generator=torch.Generator().manual_seed(13))
    inputs = limits.teachers.Inputs(embedding, torch.zeros(600))
    shares = []
    for loss in ("linear", "regression"):
        scorer = limits.teachers.fit_g(inputs, embedding[:, 0], "features", loss, seed=0)
        weights = limits.teachers.score(scorer, inputs).sigmoid()
        shares.append(float(((weights < 0.02) | (weights > 0.98)).double().mean()))
    assert shares[0] > 0.5
    assert shares[1] < 0.1


def test_a_table_and_a_picture_of_what_was_found(limits: Any, tmp_path: Path) -> None:
    points = {"snr_order": {"16": 1.0, "whole": 9.0}, "auroc": {"16": 50.0, "whole": float("nan")}}
    layers = {name: {"train": points, "held out": points} for name in limits.record.LAYERS}
    runs = [
        {
            "labels": "noisy", "seed": seed,
            "references": {
                name: {"auroc": 80.0, "auarc": 9.0} for name in ("softmax", "dropout_entropy")
            },
            "alignments": {"middle": layers, "end": {**layers, "loss, wrong labels": float("nan")}},
            "taught": [
                {"teacher": "base", "reads": reads, "auroc": 60.0 + 2 * seed, "auarc": 70.0}
                for reads in limits.teachers.READS
            ],
        }
        for seed in (0, 1)
    ]  # fmt: skip
    report = limits.report
    made = {
        "experiment": {"images": 90, "meta": 1 / 3},
        "summary": report.rounded(report.summary(runs)), "runs": report.rounded(runs),
    }  # fmt: skip
    made = json.loads(json.dumps(made, allow_nan=False))
    found = made["summary"]["noisy"]
    assert found["taught/base/features/auroc"] == [61.0, pytest.approx(np.sqrt(2), rel=1e-3)]
    assert found["alignments/end/loss, wrong labels"] == [None, None]
    assert "| base | 61.0 ± 1.4, 70.0 ± 0.0 |" in report.table(made)
    assert "| noisy | end | all | 1 ± 0 | 9 ± 0 |  |  |" in report.signal_table(made)
    report.figure(made, tmp_path / "limits.png")
    assert (tmp_path / "limits.png").stat().st_size > 10_000
