"""The queue in front of the model, with a model that tells what it was asked."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from revar.serving import batching
from revar.serving.batching import Batcher
from revar.serving.deciding import Decisions
from revar.serving.limits import Limits
from revar.serving.refusals import Refused


class Model:
    """Answers each example by its own value; one that is negative breaks the pass."""

    def __init__(self) -> None:
        self.passes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, x: Tensor) -> Decisions:
        assert self.gate.wait(20)
        self.passes.append(len(x))
        if (x < 0).any():
            raise RuntimeError("broken by a negative example")
        values = x[:, 0].numpy().astype(np.float64)
        yes = np.ones(len(x), dtype=bool)
        return Decisions(np.zeros(len(x), dtype=np.int64), values[:, None], values, yes, yes)


def run(limits: Limits, body: Callable[[Batcher, Model], Awaitable[None]]) -> Model:
    model = Model()

    async def main() -> None:
        batcher = Batcher(model, limits)
        batcher.start()
        try:
            await asyncio.wait_for(body(batcher, model), 20)
        finally:
            model.gate.set()
            await batcher.close()

    asyncio.run(main())
    return model


def examples(*values: float) -> Tensor:
    return torch.tensor(values)[:, None]


def test_requests_share_passes_and_each_gets_its_own_rows() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        asked = [batcher.submit(examples(*range(10 * i, 10 * i + i + 1))) for i in range(6)]
        for i, decided in enumerate(await asyncio.gather(*asked)):
            assert decided.uncertainty.tolist() == list(range(10 * i, 10 * i + i + 1))

    # Of 1, 2, 3, 4, 5 and 6 examples: in their order, whole, as many as fit.
    assert run(Limits(max_batch=6, max_items=8), body).passes == [1 + 2 + 3, 4, 5, 6]


def test_a_request_longer_than_a_batch_is_computed_in_slices() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        decided = await batcher.submit(examples(*range(10)))
        assert decided.uncertainty.tolist() == list(range(10))

    assert run(Limits(max_batch=4, max_items=16), body).passes == [4, 4, 2]


def test_a_lone_client_waits_for_nobody() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        for i in range(3):
            with batcher.expecting():
                asked = batcher.submit(examples(i))
            await asked

    # Three such waits are more than `run` allows.
    assert run(Limits(max_wait=10.0), body).passes == [1, 1, 1]


def test_an_idle_server_waits_for_what_is_being_read() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        with batcher.expecting():
            first = batcher.submit(examples(1.0))
            await asyncio.sleep(0.1)
            assert not first.done()
            second = batcher.submit(examples(2.0))
        await asyncio.gather(first, second)

    assert run(Limits(max_wait=10.0), body).passes == [2]


def test_it_waits_no_longer_than_it_may() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        with batcher.expecting():
            began = time.monotonic()
            await batcher.submit(examples(3.0))
            assert time.monotonic() - began > 0.3

    assert run(Limits(max_wait=0.4), body).passes == [1]


def test_a_full_queue_refuses_and_has_room_again_later() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        model.gate.clear()
        first = batcher.submit(examples(0.0))
        await asyncio.sleep(0.05)
        waiting = [batcher.submit(examples(1.0, 1.0)) for _ in range(2)]
        with pytest.raises(Refused, match="4 examples are waiting") as refusal:
            batcher.submit(examples(2.0))
        assert refusal.value.status == 503
        assert int(refusal.value.headers["Retry-After"]) >= 1
        model.gate.set()
        await asyncio.gather(first, *waiting)
        assert batcher.waiting == 0
        await batcher.submit(examples(2.0))

    run(Limits(max_items=4, queue=4), body)


def test_one_that_breaks_the_pass_does_not_break_it_for_others() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        model.gate.clear()
        first = batcher.submit(examples(0.0))
        await asyncio.sleep(0.05)
        asked = [batcher.submit(examples(value)) for value in (1.0, -1.0, 2.0)]
        model.gate.set()
        await first
        good, bad, other = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(good, Decisions)
        assert isinstance(other, Decisions)
        assert isinstance(bad, RuntimeError)
        assert other.uncertainty.tolist() == [2.0]

    run(Limits(), body)


def test_who_gave_up_is_not_computed() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        model.gate.clear()
        first = batcher.submit(examples(0.0))
        await asyncio.sleep(0.05)
        given_up, kept = batcher.submit(examples(1.0, 1.0)), batcher.submit(examples(2.0))
        given_up.cancel()
        model.gate.set()
        await asyncio.gather(first, kept)
        assert batcher.waiting == 0

    assert run(Limits(), body).passes == [1, 1]


def test_closing_finishes_what_was_accepted_and_refuses_the_rest() -> None:
    async def body(batcher: Batcher, model: Model) -> None:
        model.gate.clear()
        asked = [batcher.submit(examples(float(i))) for i in range(5)]
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0.05)
        with pytest.raises(Refused, match="shutting down"):
            batcher.submit(examples(9.0))
        model.gate.set()
        await closing
        assert [asked_.result().uncertainty[0] for asked_ in asked] == [0, 1, 2, 3, 4]

    run(Limits(), body)


def test_a_pass_that_takes_a_moment_goes_without_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    where: list[str] = []
    slow, model, now = threading.Event(), Model(), [0.0]
    monkeypatch.setattr(batching, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def decide(x: Tensor) -> Decisions:
        where.append(threading.current_thread().name)
        now[0] += 0.05 if slow.is_set() else 0.0001
        return model(x)

    async def main() -> None:
        batcher = Batcher(decide, Limits())
        batcher.start()
        for _ in range(60):
            await batcher.submit(examples(1.0))
        slow.set()
        for _ in range(3):
            await batcher.submit(examples(1.0))
        await batcher.close()

    asyncio.run(main())
    # Nothing is known of the first one; a slow one stops the loop once and no more.
    assert where[0].startswith("decide")
    assert where[59] == threading.main_thread().name
    assert where[-1].startswith("decide")
