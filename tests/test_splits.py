from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from revar.errors import DataWarning, InputError
from revar.splits import Fingerprint, SplitPlan, refuse_reuse, take_off

Rows = NDArray[np.int64]


@st.composite
def class_numbers(draw: st.DrawFn) -> Rows:
    """[n] class numbers of any balance, shuffled."""
    counts = draw(st.lists(st.integers(1, 40), min_size=2, max_size=8))
    y = np.repeat(np.arange(len(counts)), counts)
    return np.random.default_rng(draw(st.integers(0, 99))).permutation(y)


def test_no_rows_serve_nothing() -> None:
    """Two empty sets are no copies of each other."""
    none = Fingerprint.of(torch.zeros(0, 3))
    with pytest.raises(InputError, match="there are no rows that could serve as calibration"):
        refuse_reuse(none, "calibration", {"meta": none})


SHARES = st.floats(0.01, 0.49)
SEEDS = st.integers(0, 2**63 - 1)


def wanted_rows(share: float, n: int, name: str = "meta") -> float:
    """What is asked of n rows: a little more of tiny data, and never a tune split of one."""
    wanted = max(share * n, min(8, n // 5))
    return 0.0 if name == "tune" and wanted < 2 else max(wanted, 2)


@given(class_numbers(), SHARES, SHARES, SEEDS)
def test_splits_are_disjoint_cover_everything_and_keep_every_class_in_training(
    y: Rows, meta: float, tune: float, seed: int
) -> None:
    try:
        rows = take_off(y, None, {"meta": meta, "tune": tune}, seed)
    except InputError:
        assume(False)
    assert list(rows) == ["train", "meta", "tune"]
    together = np.concatenate(list(rows.values()))
    assert sorted(together.tolist()) == list(range(len(y)))
    assert set(y[rows["train"]]) == set(y)
    assert len(rows["meta"]) > 0
    assert (len(rows["tune"]) > 0) == (wanted_rows(tune, len(y), "tune") > 0)


@given(class_numbers(), SHARES, SHARES, SEEDS)
def test_every_class_gives_its_share_to_within_one(
    y: Rows, meta: float, tune: float, seed: int
) -> None:
    shares = {"meta": meta, "tune": tune}
    left = np.bincount(y)
    try:
        rows = take_off(y, None, shares, seed)
    except InputError:
        assume(False)
    for name, share in shares.items():
        wanted = wanted_rows(share, len(y), name)
        of_rest = wanted / left.sum()
        taken = np.bincount(y[rows[name]], minlength=len(left))
        for number, count in zip(taken, left, strict=True):
            # A class that would be used up keeps one.
            assert abs(number - of_rest * count) < 1 or number == count - 1
        if (taken < left - 1).all():
            assert abs(taken.sum() - wanted) <= 0.5 + 1e-9
        left = left - taken


@given(class_numbers(), SHARES, SEEDS)
def test_data_is_too_small_only_where_nothing_can_be_taken(
    y: Rows, share: float, seed: int
) -> None:
    possible = np.bincount(y).max() > 1
    if possible:
        assert len(take_off(y, None, {"meta": share}, seed)["meta"])
        return
    with pytest.raises(InputError, match=f"{len(y)} examples are too few.*meta_fraction=0"):
        take_off(y, None, {"meta": share}, seed)


@given(class_numbers(), SEEDS)
def test_the_same_seed_gives_the_same_rows(y: Rows, seed: int) -> None:
    assume(len(y) >= 20 and np.bincount(y).max() > 3)
    shares = {"meta": 0.2, "tune": 0.2}
    one, two = (take_off(y, None, shares, seed) for _ in range(2))
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def test_another_seed_gives_other_rows_and_so_does_another_name() -> None:
    y = np.arange(200) % 4
    rows = take_off(y, None, {"meta": 0.2}, 0)["meta"]
    assert set(rows) != set(take_off(y, None, {"meta": 0.2}, 1)["meta"])
    assert set(rows) != set(take_off(y, None, {"tune": 0.2}, 0)["tune"])


def test_every_row_is_as_likely_to_be_taken() -> None:
    y = np.arange(30) % 3
    taken = np.zeros(30)
    draws = 600
    for seed in range(draws):
        taken[take_off(y, None, {"meta": 0.2}, seed)["meta"]] += 1
    deviation = np.sqrt(0.2 * 0.8 / draws)
    np.testing.assert_allclose(taken / draws, 0.2, atol=4.5 * deviation)


def test_a_share_of_nothing_is_an_empty_split() -> None:
    rows = take_off(np.arange(40) % 2, None, {"meta": 0.0, "tune": 0.1}, 0)
    assert len(rows["meta"]) == 0
    assert rows["meta"].dtype == np.int64
    # A tenth of 40 is 4, but a fifth of the data allows 8.
    assert (len(rows["tune"]), len(rows["train"])) == (8, 32)


def test_shares_are_of_all_rows_whatever_was_taken_before() -> None:
    rows = take_off(np.arange(1000) % 5, None, {"meta": 0.3, "tune": 0.3}, 0)
    assert {name: len(of) for name, of in rows.items()} == {"train": 400, "meta": 300, "tune": 300}


# --- groups


@st.composite
def grouped(draw: st.DrawFn) -> tuple[Rows, Rows]:
    """Class numbers and groups, some of which mix classes."""
    generator = np.random.default_rng(draw(st.integers(0, 9999)))
    n_groups, classes = draw(st.integers(15, 40)), draw(st.integers(2, 4))
    sizes = generator.integers(1, 6, n_groups)
    groups = np.repeat(np.arange(n_groups), sizes)
    y = np.where(
        generator.random(len(groups)) < 0.5,
        groups % classes,
        generator.integers(0, classes, len(groups)),
    )
    order = generator.permutation(len(groups))
    return y[order], groups[order]


@settings(deadline=None, max_examples=40)
@given(grouped(), st.floats(0.1, 0.3), SEEDS)
def test_groups_are_never_torn_apart(data: tuple[Rows, Rows], share: float, seed: int) -> None:
    y, groups = data
    shares = {"meta": share, "tune": share}
    try:
        rows = take_off(y, groups, shares, seed)
    except InputError:
        assume(False)
    together = np.concatenate(list(rows.values()))
    assert sorted(together.tolist()) == list(range(len(y)))
    sets = [set(groups[of]) for of in rows.values()]
    assert sum(map(len, sets)) == len(set(groups))
    assert set(y[rows["train"]]) == set(y)
    assert all(len(of) for of in rows.values())
    again = take_off(y, groups, shares, seed)
    assert all(np.array_equal(rows[name], again[name]) for name in rows)


def test_groups_named_by_text_are_split_in_about_the_wanted_shares() -> None:
    generator = np.random.default_rng(0)
    patients = np.array([f"p{i}" for i in generator.integers(0, 120, 900)])
    y = generator.integers(0, 3, 900)
    rows = take_off(y, patients, {"meta": 0.1, "tune": 0.2}, 0)
    assert len(rows["meta"]) == pytest.approx(90, abs=15)
    assert len(rows["tune"]) == pytest.approx(180, abs=30)
    np.testing.assert_allclose(
        np.bincount(y[rows["meta"]]) / len(rows["meta"]), np.bincount(y) / 900, atol=0.1
    )


@pytest.mark.parametrize("seed", range(5))
def test_one_giant_group_is_left_in_training(seed: int) -> None:
    groups = np.concatenate([np.zeros(300, dtype=int), 1 + np.arange(100) // 2])
    y = np.arange(400) % 2
    y[:250] = 0
    rows = take_off(y, groups, {"meta": 0.1}, seed)
    assert 0 not in groups[rows["meta"]]
    assert 0 < len(rows["meta"]) < 100


@pytest.mark.parametrize("seed", range(5))
def test_groups_nearest_to_the_wanted_size_are_taken(seed: int) -> None:
    groups = np.repeat(np.arange(10), [2, 10, 10, 10, 10, 10, 10, 10, 10, 18])
    rows = take_off(np.arange(100) % 2, groups, {"meta": 0.1}, seed)
    assert len(rows["meta"]) == 10


def test_a_class_rarer_than_the_folds_are_many_is_no_reason_to_warn() -> None:
    """Warnings are errors here: scikit-learn's own would fail the test."""
    y = np.array([0] * 100 + [1] * 3)
    rows = take_off(y, np.arange(103) // 2, {"meta": 0.1}, 0)
    assert 1 in y[rows["train"]]
    assert len(rows["meta"]) == pytest.approx(10, abs=3)


@pytest.mark.parametrize(
    ("y", "groups", "message"),
    [
        (np.arange(60) % 2, np.arange(60) // 20, "3 groups are too few"),
        (np.arange(60) % 30, np.arange(60), "2 examples of the largest class are too few"),
        (np.arange(200) // 20, np.arange(200) // 20, "leaves a class without training examples"),
    ],
)
def test_groups_that_cannot_be_split_are_refused(y: Rows, groups: Rows, message: str) -> None:
    with pytest.raises(InputError, match=message):
        take_off(y, groups, {"meta": 0.1}, 0)


# --- the plan


@pytest.mark.parametrize("share", [-0.1, 0.5, 1.0])
@pytest.mark.parametrize("name", ["meta", "tune"])
def test_shares_out_of_range_are_refused(name: str, share: float) -> None:
    with pytest.raises(InputError, match=rf"SplitPlan: {name} is .*must be in \[0, 0\.5\)"):
        SplitPlan(**{name: share})


# --- fingerprints


def table(n: int, seed: int) -> torch.Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))


@given(st.integers(0, 50))
def test_a_fingerprint_does_not_depend_on_the_order_of_rows(n: int) -> None:
    x = table(n, 0)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(n))
    one, two = Fingerprint.of(x), Fingerprint.of(x[order])
    assert one.digest == two.digest
    np.testing.assert_array_equal(one.rows, two.rows)
    assert len(one.rows) == n
    rebuilt = Fingerprint.of_rows(np.random.default_rng(0).permutation(one.rows))
    assert rebuilt.digest == one.digest


def test_one_bit_in_one_row_changes_the_digest() -> None:
    x = table(10, 0)
    y = x.clone()
    y[3, 1] = torch.nextafter(y[3, 1], torch.tensor(torch.inf))
    assert Fingerprint.of(x).digest != Fingerprint.of(y).digest
    assert Fingerprint.of(y).share_within(Fingerprint.of(x)) == 0.9


def test_fingerprints_do_not_depend_on_how_a_tensor_lies_in_memory() -> None:
    x = torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8)
    other = x.contiguous(memory_format=torch.channels_last)
    assert Fingerprint.of(other).digest == Fingerprint.of(x).digest
    wide = torch.randn(5, 8)
    assert Fingerprint.of(wide[:, ::2]).digest == Fingerprint.of(wide[:, ::2].clone()).digest


def test_rows_seen_before_are_counted() -> None:
    old, new = table(40, 0), table(60, 1)
    mixed = torch.cat([old[:10], new[:30]])
    assert Fingerprint.of(mixed).share_within(Fingerprint.of(old)) == 0.25
    assert Fingerprint.of(old).share_within(Fingerprint.of(mixed)) == 0.25
    assert Fingerprint.of(old).share_within(Fingerprint.of(old)) == 1.0
    assert Fingerprint.of(new).share_within(Fingerprint.of(old)) == 0.0


def test_nothing_shares_nothing() -> None:
    nothing, some = Fingerprint.of(torch.empty(0, 3)), Fingerprint.of(table(4, 0))
    assert nothing.share_within(some) == 0.0
    assert some.share_within(nothing) == 0.0
    images = Fingerprint.of(torch.empty(0, 3, 8, 8, dtype=torch.uint8))
    assert images.digest == nothing.digest


def test_data_that_serves_already_is_refused_with_share_and_both_purposes() -> None:
    train, tune = Fingerprint.of(table(100, 0)), Fingerprint.of(table(50, 1))
    used = {"train": train, "tune": tune}
    reused = Fingerprint.of(torch.cat([table(100, 0)[:75], table(25, 2)]))
    with pytest.raises(InputError, match=r"75% of these rows are in the train split.*as test too"):
        refuse_reuse(reused, "test:clinic", used)
    with pytest.raises(InputError, match=r"100% of these rows are in the tune split.*calibration"):
        refuse_reuse(tune, "calibration", used)
    half = Fingerprint.of(torch.cat([table(100, 0)[:25], table(25, 2)]))
    refuse_reuse(half, "test", used)
    refuse_reuse(Fingerprint.of(table(50, 3)), "test", used)


def test_one_purpose_may_be_served_twice() -> None:
    rows = Fingerprint.of(table(20, 0))
    refuse_reuse(rows, "test:b", {"test:a": rows, "test": rows})
    refuse_reuse(rows, "calibration", {"calibration": rows})
    with pytest.raises(InputError, match="in the test split and cannot serve as calibration"):
        refuse_reuse(rows, "calibration", {"test:a": rows})


def test_tables_that_repeat_rows_by_chance_are_not_refused() -> None:
    """Three yes-or-no columns have eight rows: new patients look like old ones."""
    old = torch.randint(0, 2, (400, 3), generator=torch.Generator().manual_seed(0)).float()
    new = torch.randint(0, 2, (100, 3), generator=torch.Generator().manual_seed(1)).float()
    refuse_reuse(Fingerprint.of(new), "test", {"train": Fingerprint.of(old)})
    with pytest.raises(InputError, match="100%"):
        refuse_reuse(Fingerprint.of(old), "test", {"train": Fingerprint.of(old)})


def test_rows_of_several_splits_count_together() -> None:
    rows = table(90, 0)
    used = {name: Fingerprint.of(rows[k::3]) for k, name in enumerate(("train", "meta", "tune"))}
    with pytest.raises(
        InputError, match="100% of these rows are in the train, meta and tune splits"
    ):
        refuse_reuse(Fingerprint.of(rows), "calibration", used)
    some = Fingerprint.of(torch.cat([rows[:30], table(70, 5)]))
    with pytest.warns(
        DataWarning, match="30% of these rows are in the train, meta and tune splits"
    ):
        refuse_reuse(some, "calibration", used)
    refuse_reuse(some, "test", used)
    refuse_reuse(Fingerprint.of(torch.cat([rows[:1], table(99, 5)])), "calibration", used)
