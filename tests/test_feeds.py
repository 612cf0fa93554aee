from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from revar.data.augment import Augment
from revar.feeds import Cycle, DataFeeds
from revar.nets.normalise import Normalise
from revar.preparation import Split

CPU = torch.device("cpu")


def rows(n: int, offset: int = 0) -> Split:
    """Inputs that say which row they are, and labels and weights that follow from it."""
    numbers = np.arange(n) + offset
    x = torch.from_numpy(numbers).float().unsqueeze(1)
    return Split(x, numbers % 3, numbers, (numbers % 5).astype(np.float32))


def feeds(
    n: int = 50, *, meta: int = 12, unlabelled: int = 7, batch: int = 16, seed: int = 0
) -> DataFeeds:
    return DataFeeds(
        rows(n), rows(meta, 1000), rows(unlabelled, 2000).x,
        normalise=nn.Identity(), augment=Augment(), batch_size=batch, seed=seed, device=CPU,
    )  # fmt: skip


@given(st.integers(1, 200), st.integers(2, 40), st.integers(0, 5))
def test_an_epoch_visits_every_example_once_in_batches_of_nearly_one_size(
    n: int, batch: int, number: int
) -> None:
    source = feeds(n, batch=batch)
    batches = list(source.epoch(number))
    # One example is left over by pairs of an odd number, and goes with the last of them.
    assert len(batches) == source.steps_per_epoch == min(-(-n // batch), max(1, n // 2))
    sizes = [len(each.x) for each in batches]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= (3 if batch == 2 else batch)
    assert n == 1 or min(sizes) > 1
    index = torch.cat([each.index for each in batches])
    assert sorted(index.tolist()) == list(range(n))
    for each in batches:
        assert torch.equal(each.x.squeeze(1).long(), each.index)
        assert torch.equal(each.y, each.index % 3)
        assert each.weight is not None
        assert torch.equal(each.weight, (each.index % 5).float())


def order(source: DataFeeds, number: int) -> list[int]:
    return torch.cat([batch.index for batch in source.epoch(number)]).tolist()


def test_the_order_depends_on_the_seed_and_the_epoch_and_on_nothing_else() -> None:
    one, two = feeds(seed=1), feeds(seed=1)
    two.meta(5)
    two.unlabelled(3)
    torch.rand(10)
    assert order(one, 3) == order(two, 3) == order(one, 3)
    assert order(one, 3) != order(one, 4)
    assert order(one, 3) != order(feeds(seed=2), 3)
    assert order(one, 3) != list(range(50))


def test_meta_and_unlabelled_batches_come_from_their_own_sets() -> None:
    source = feeds()
    assert (source.meta_size, source.unlabelled_size) == (12, 7)
    for _ in range(5):
        batch = source.meta(8)
        assert torch.equal(batch.x.squeeze(1).long(), batch.index + 1000)
        assert torch.equal(batch.y, (batch.index + 1000) % 3)
        assert len(set(batch.index.tolist())) == 8
        more = source.unlabelled(7).squeeze(1).tolist()
        assert sorted(more) == [2000.0 + i for i in range(7)]


def test_more_unlabelled_inputs_than_there_are_may_be_asked_for() -> None:
    taken = feeds().unlabelled(20).squeeze(1).tolist()
    counts = [taken.count(2000.0 + i) for i in range(7)]
    assert sum(counts) == 20
    assert min(counts) >= 2


def test_a_resumed_feed_goes_on_where_the_other_stopped() -> None:
    source = feeds()
    for _ in range(4):
        source.meta(5)
        source.unlabelled(4)
    resumed = feeds()
    resumed.load(source.state())
    for _ in range(6):
        one, two = source.meta(5), resumed.meta(5)
        assert torch.equal(one.index, two.index)
        assert torch.equal(one.x, two.x)
        assert torch.equal(source.unlabelled(4), resumed.unlabelled(4))
    assert source.state() == resumed.state()


def test_sets_that_are_empty_have_no_state() -> None:
    source = feeds(meta=0, unlabelled=0)
    assert (source.meta_size, source.unlabelled_size, source.state()) == (0, 0, {})
    source.load({})
    assert len(list(source.epoch(0))) == 4


def test_only_training_batches_are_augmented_and_all_are_normalised() -> None:
    x = torch.full((40, 1, 6, 6), 200, dtype=torch.uint8)
    x[:20] = 100
    split = Split(x, np.zeros(40, dtype=np.int64), np.arange(40))
    normalise = Normalise.fitted(x)
    source = DataFeeds(
        split, split, x,
        normalise=normalise, augment=Augment(pad=2), batch_size=10, seed=0, device=CPU,
    )  # fmt: skip
    # Mean 150, deviation 50; what a shift moves in is black in the stored scale.
    train = torch.cat([batch.x for batch in source.epoch(0)])
    assert sorted(train.unique().tolist()) == pytest.approx([-3.0, -1.0, 1.0])
    for plain in (source.meta(40).x, source.unlabelled(40)):
        assert sorted(plain.unique().tolist()) == pytest.approx([-1.0, 1.0])


# --- cycles


@given(st.integers(1, 60), st.lists(st.integers(1, 60), max_size=12), st.integers(0, 10))
def test_positions_taken_together_are_all_different(n: int, counts: list[int], seed: int) -> None:
    cycle = Cycle(n, seed)
    for count in counts:
        taken = cycle.take(count).tolist()
        assert len(taken) == count
        for start in range(0, count, n):
            part = taken[start : start + n]
            assert len(set(part)) == len(part)
        assert set(taken) <= set(range(n))


@given(
    st.integers(1, 40),
    st.lists(st.integers(1, 50), max_size=8),
    st.lists(st.integers(1, 50), min_size=1, max_size=8),
)
def test_a_loaded_cycle_continues_identically(n: int, before: list[int], after: list[int]) -> None:
    cycle = Cycle(n, 3)
    for count in before:
        cycle.take(count)
    other = Cycle(n, 3)
    other.load(cycle.state())
    for count in after:
        assert torch.equal(cycle.take(count), other.take(count))
    assert cycle.state() == other.state()


def test_a_round_visits_everything_before_the_next_begins() -> None:
    cycle = Cycle(12, 0)
    first = torch.cat([cycle.take(4) for _ in range(3)]).tolist()
    second = torch.cat([cycle.take(4) for _ in range(3)]).tolist()
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second


def test_a_round_with_too_few_left_is_begun_anew() -> None:
    cycle = Cycle(10, 0)
    cycle.take(8)
    assert cycle.state() == {"round": 0, "position": 8}
    cycle.take(4)
    assert cycle.state() == {"round": 1, "position": 4}


def test_the_state_is_plain_numbers() -> None:
    cycle = Cycle(10, 0)
    cycle.take(3)
    assert {type(value) for value in cycle.state().values()} == {int}


def test_cycles_of_other_seeds_run_differently() -> None:
    assert Cycle(30, 0).take(30).tolist() != Cycle(30, 1).take(30).tolist()
