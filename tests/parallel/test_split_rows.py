"""The layers that see more than one row, on three processes, against torch's own on one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from revar.parallel import World, world
from revar.sharded import Share, own, sharing, whole
from support.problems import fit
from support.ranks import TESTS, run_ranks


@pytest.fixture(scope="module")
def found() -> list[dict[str, Any]]:
    answers = []
    for code, out, err in run_ranks(Path(TESTS) / "support" / "split_layers.py", 3):
        assert code == 0, err
        answers.append(json.loads(out.splitlines()[-1]))
    return answers


def test_rows_come_back_as_they_were(found: list[dict[str, Any]]) -> None:
    assert [each["gathering"] for each in found] == [0.0] * 3


@pytest.mark.parametrize("what", ["value", "gradient", "tangent", "statistics"])
def test_batch_norm_is_that_of_the_whole_batch(what: str, found: list[dict[str, Any]]) -> None:
    assert max(each["norms"][what] for each in found) < 1e-12


def test_masks_are_those_one_process_would_draw(found: list[dict[str, Any]]) -> None:
    assert [each["masks"] for each in found] == [0.0] * 3


def test_a_network_that_cannot_be_split_is_refused(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert "cannot be split between processes" in each["refusal"]
        assert "\n" not in each["refusal"]


def test_a_silent_process_is_not_waited_for_for_ever(found: list[dict[str, Any]]) -> None:
    for each in found[:-1]:
        assert each["waited"] > 0


def test_half_precision_is_near_that_of_one_process(found: list[dict[str, Any]]) -> None:
    alone = fit("revar", epochs=1, precision="bfloat16", test_passes=2)
    norms = [float(p.detach().double().norm()) for p in alone.networks.parameters()]
    for each in found:
        assert each["half"] == found[0]["half"]
        # As far as rounding takes one process: the bias of the head is 0.10 long, or 0.13 in
        # single precision. Another epoch or batch size is further away.
        np.testing.assert_allclose(each["half"], norms, rtol=0.05, atol=0.05)


def test_every_row_has_one_owner() -> None:
    for size in (1, 2, 3, 5):
        for sizes in ((1,), (7,), (4, 4), (3, 0, 8)):
            shares = [Share(sizes, World(rank, size)) for rank in range(size)]
            rows = [row for share in shares for row in share.positions()]
            assert sorted(rows) == list(range(sum(sizes)))
            counts = [share.count() for share in shares]
            assert max(counts) - min(counts) <= len(sizes)


def test_one_process_is_left_alone() -> None:
    import torch

    x = torch.randn(4, 2)
    assert world() == World()
    with sharing(4):
        assert whole(x) is x
        assert own(x) is x
    assert world().average([x])[0] is x
    assert not world().traffic
