"""Several threads of one process get what they would get alone."""

from __future__ import annotations

import copy
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from revar import SelectiveClassifier
from revar.randomness import give_way, preserved, repeatable, seed_generators, seeded
from revar.turns import TURNS, Turns
from support.problems import blobs

CPU = torch.device("cpu")


def classifier(seed: int, **more: Any) -> SelectiveClassifier:
    chosen = {"epochs": 3, "random_state": seed, "device": "cpu", **more}
    return SelectiveClassifier(**chosen)


def at_once(*functions: Callable[[], Any]) -> list[Any]:
    """Their answers; all have begun before one goes on."""
    begun = threading.Barrier(len(functions))

    def run(function: Callable[[], Any]) -> Any:
        begun.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return [future.result() for future in [pool.submit(run, f) for f in functions]]


def test_predictions_of_several_threads_are_those_of_one() -> None:
    (x, y), (x_new, _) = blobs(), blobs(90, seed=1)
    clf = classifier(0, dropout_placement="everywhere").fit(x, y)
    certain, doubt = clf.predict_proba(x_new), clf.uncertainty(x_new, "mcd")
    torch.manual_seed(3)
    wanted = copy.deepcopy(torch.get_rng_state())

    def ask(what: Callable[[], Any], answer: Any) -> bool:
        return all(np.array_equal(what(), answer) for _ in range(60))

    by_passes = [lambda: ask(lambda: clf.uncertainty(x_new, "mcd"), doubt)] * 2
    plainly = [lambda: ask(lambda: clf.predict_proba(x_new), certain)] * 2
    assert all(at_once(*by_passes, *plainly))
    assert not any(module.training for module in clf.model_.networks.modules())
    assert torch.equal(torch.get_rng_state(), wanted)


def test_runs_of_several_threads_are_those_of_one() -> None:
    (x, y), (x_new, _) = blobs(), blobs(90, seed=1)
    alone = [classifier(seed).fit(x, y).predict_proba(x_new) for seed in range(3)]
    torch.manual_seed(3)
    wanted = torch.get_rng_state()
    together = at_once(
        *(lambda s=s: classifier(s).fit(x, y).predict_proba(x_new) for s in range(3))
    )
    for one, same in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one, same)
    assert torch.equal(torch.get_rng_state(), wanted)


def test_who_asks_waits_for_a_step_and_not_for_a_run() -> None:
    (x, y), (x_new, _) = blobs(), blobs(90, seed=1)
    ready = classifier(0).fit(x, y)
    certain = ready.predict_proba(x_new)
    other = classifier(1, epochs=100_000)
    training = threading.Event()

    class AskedError(Exception):
        """The run has been stopped."""

    done = threading.Event()

    def watch(*_: Any) -> None:
        training.set()
        if done.is_set():
            raise AskedError

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:
        patch.setattr("revar.progress.Silent.stepped", watch)
        run = pool.submit(other.fit, x, y)
        assert training.wait(60)
        for _ in range(20):
            np.testing.assert_array_equal(ready.predict_proba(x_new), certain)
        assert not run.done()
        done.set()
        assert isinstance(run.exception(), AskedError)


def test_a_run_that_gives_way_goes_on_as_if_it_had_not() -> None:
    def draw() -> torch.Tensor:
        with seeded(7, CPU), repeatable(True):
            first = torch.rand(3)
            here.set()
            while not waits.is_set():
                give_way(CPU)
            give_way(CPU)
            return torch.cat([first, torch.rand(3)])

    def other() -> bool:
        waits.set()
        with preserved(CPU):
            seen = torch.are_deterministic_algorithms_enabled()
            seed_generators(9, CPU)
        return seen

    here, waits = threading.Event(), threading.Event()
    with ThreadPoolExecutor(2) as pool:
        run = pool.submit(draw)
        assert here.wait(60)
        seen = pool.submit(other).result()
        numbers = run.result()
    assert not seen
    with seeded(7, CPU):
        assert torch.equal(numbers, torch.rand(6))


def test_turns_come_in_order_and_may_be_taken_twice() -> None:
    turns, order = Turns(), []

    def take(number: int) -> None:
        with turns.mine(), turns.mine():
            order.append(number)

    with turns.mine():
        threads = []
        for number in range(4):
            threads.append(threading.Thread(target=take, args=(number,)))
            threads[-1].start()
            while len(turns._waiting) <= number:
                pass
        assert turns.wanted
        with turns.lent():
            pass
        # Those who waited have been, and the turn is ours again.
        waits = turns.wanted
        assert (order, waits) == ([0, 1, 2, 3], False)
    for thread in threads:
        thread.join()


def test_ctrl_c_while_others_have_their_turn_ends_as_it_should(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns, take, calls = Turns(), Turns._take, []

    def interrupted(self: Turns) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        take(self)

    monkeypatch.setattr(Turns, "_take", interrupted)
    with pytest.raises(KeyboardInterrupt), turns.mine(), turns.lent():
        pass
    assert len(calls) == 3
    assert (turns._holder, turns._depth) == (None, 0)
    assert at_once(lambda: turns.mine().__enter__()) == [None]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_child_does_not_wait_for_a_thread_it_has_not() -> None:
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with TURNS.mine():
            held.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        with TURNS.mine():
            os._exit(0)
    _, status = os.waitpid(child, 0)
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_drawn_seed_leaves_the_generators_alone() -> None:
    torch.manual_seed(1)
    wanted = torch.rand(2)
    torch.manual_seed(1)
    first = torch.rand(1)
    seeds = {SelectiveClassifier(epochs=1, device="cpu").fit(*blobs()).seed_ for _ in range(2)}
    assert len(seeds) == 2
    assert torch.equal(torch.cat([first, torch.rand(1)]), wanted)
