"""What an epoch came to, and reading it while it goes on."""

from __future__ import annotations

import io

import pytest
import torch
from rich.console import Console

from revar.progress import Bar, describe
from revar.totals import EpochRecord, Totals
from support.gpu import needs_gpu
from support.problems import CPU


def _after_two_steps(device: torch.device) -> Totals:
    totals = Totals(device)
    numbers = torch.tensor([0.5, 1.0, 3.0, 2.0, 0.25], device=device)
    totals.add_step(numbers[0], numbers[3], 4, numbers[1:3])
    totals.add_step(numbers[1], numbers[1], 2, None)
    totals.add_outer(numbers[4])
    return totals


def test_means_by_hand() -> None:
    # (0.5 * 4 + 1 * 2) / 6, (2 + 1) / 6, weights 1 and 3.
    expected = {
        "loss": 4 / 6, "accuracy": 0.5, "meta_loss": 0.25, "weight_mean": 2.0, "weight_spread": 1.0,
    }  # fmt: skip
    totals = _after_two_steps(CPU)
    assert totals.figures() == pytest.approx(expected)
    # Nothing has to be waited for on the CPU, so nothing lags.
    assert totals.recent() == totals.figures()


def test_nothing_is_said_of_what_was_not_counted() -> None:
    totals = Totals(CPU)
    totals.add_step(torch.tensor(2.0), None, 3, None)
    assert totals.figures() == {"loss": 2.0}
    assert describe({}) == ""


@needs_gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_reading_on_a_gpu_waits_for_nothing() -> None:
    device = torch.device("cuda")
    totals = _after_two_steps(device)
    whole = totals.figures()
    before = torch.cuda.get_sync_debug_mode()
    # Enough work that it cannot be done when the host asks.
    x = torch.randn(4096, 4096, device=device)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(200):
            x = (x @ x).tanh()
        early = [totals.recent() for _ in range(3)]
    finally:
        torch.cuda.set_sync_debug_mode(before)
    assert early == [{}, {}, {}]
    totals.add_step(torch.tensor(9.0, device=device), None, 2, None)
    torch.cuda.synchronize()
    assert totals.recent() == whole
    torch.cuda.synchronize()
    later = totals.recent()
    assert later["loss"] == pytest.approx((4 + 18) / 8)
    assert "accuracy" not in later


def _record(epoch: int, step: int, loss: float) -> EpochRecord:
    return EpochRecord(
        epoch=epoch, step=step, lr=0.1, loss=loss, accuracy=0.75, meta_loss=None,
        weight_mean=None, weight_spread=None, seconds=1.0,
    )  # fmt: skip


def test_a_bar_shows_figures_as_they_come_and_at_last_those_of_the_epoch() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, width=80, color_system=None)
    with Bar(console, "erm") as bar:
        bar.started(step=0, total=4, epochs=2)
        bar.stepped(1, dict)
        bar.stepped(4, lambda: {"loss": 0.5})
        bar.finished_epoch(_record(2, 4, 0.125))
    frames = written.getvalue()
    last = frames.rindex("erm")
    assert "2/2 loss 0.125 acc 75.0%" in frames[last:]


def test_without_a_terminal_ten_lines_tell_it() -> None:
    written = io.StringIO()
    console = Console(file=written, force_terminal=False, width=80)
    with Bar(console, "erm") as bar:
        bar.started(step=0, total=40, epochs=20)
        for epoch in range(1, 21):
            bar.finished_epoch(_record(epoch, 2 * epoch, 1 / epoch))
    lines = written.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[-1] == "erm epoch 20/20 loss 0.050 acc 75.0%"
