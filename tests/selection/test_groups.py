from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from revar import fields
from revar.errors import InputError
from revar.selection import GroupThresholds, threshold_for_risk, thresholds_by_group


def data(n: int = 600) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    uncertainty = rng.random(n)
    groups = rng.choice(["clinic", "home", "ward"], size=n, p=[0.5, 0.45, 0.05])
    error = np.where(groups == "clinic", 0.1, 0.4) * uncertainty**2
    return uncertainty, rng.random(n) >= error, groups


def test_each_group_has_its_own_at_its_share_of_the_confidence() -> None:
    uncertainty, correct, groups = data()
    found = thresholds_by_group(uncertainty, correct, groups, max_risk=0.15, confidence=0.94)
    assert found.groups == ("clinic", "home", "ward")
    assert list(found) == ["clinic", "home", "ward"]
    assert len(found) == 3
    assert found.confidence == 0.94
    for group in found:
        rows = groups == group
        alone = threshold_for_risk(
            uncertainty[rows], correct[rows], max_risk=0.15, confidence=1 - (1 - 0.94) / 3
        )
        assert found[group] == alone
        assert found[group].confidence == pytest.approx(0.98)
    assert found["clinic"].coverage > found["home"].coverage > 0
    # Some twenty examples cannot prove 15 % at 98 %.
    assert found["ward"].threshold is None
    with pytest.raises(KeyError):
        _ = found["street"]
    assert found.describe().count("\n") == 2


def test_accepts_by_group_and_rejects_an_unseen_one() -> None:
    uncertainty, correct, groups = data()
    found = thresholds_by_group(uncertainty, correct, groups, max_risk=0.1)
    accepted = found.accept(uncertainty, groups)
    for group in found:
        rows = groups == group
        assert np.array_equal(accepted[rows], found[group].accept(uncertainty[rows]))
    unseen = found.accept([0.0, 0.0, 0.0], ["clinic", "street", "clinical"])
    assert unseen.tolist() == [True, False, False]
    assert found.accept([0.0], [3]).tolist() == [False]


def test_predicted_classes_as_groups_and_any_loss() -> None:
    uncertainty, correct, groups = data()
    classes = np.unique(groups, return_inverse=True)[1]
    found = thresholds_by_group(uncertainty, correct, classes, max_risk=0.2, procedure="sgr")
    assert found.groups == (0, 1, 2)
    assert found[0].procedure == "sgr"
    text = json.dumps(fields.to_json(found), allow_nan=False)
    assert fields.from_json(GroupThresholds, json.loads(text)) == found
    losses = thresholds_by_group(
        uncertainty, None, classes, loss=2.0 * ~correct, bounds=(0, 2), max_risk=0.4
    )
    assert 0 < losses[0].coverage <= 1
    assert losses[0].risk_bound == 0.4


def test_one_group_is_no_group() -> None:
    uncertainty, correct, _ = data()
    found = thresholds_by_group(uncertainty, correct, np.zeros(600, int), max_risk=0.1)
    alone = threshold_for_risk(uncertainty, correct, max_risk=0.1)
    assert found[0].threshold == alone.threshold


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([0.5] * 600, "groups has shape .* whole numbers or text"),
        ([["a"]] * 600, r"groups has shape \(600, 1\)"),
        (["a"] * 599, "uncertainty has 600 rows, groups 599"),
        ([None] * 600, "whole numbers or text"),
    ],
)
def test_what_is_no_group_is_refused(groups: Any, message: str) -> None:
    uncertainty, correct, _ = data()
    with pytest.raises(InputError, match=message):
        thresholds_by_group(uncertainty, correct, groups, max_risk=0.1)


def test_rows_must_agree() -> None:
    uncertainty, correct, groups = data()
    with pytest.raises(InputError, match="uncertainty has 600 rows, correct 599"):
        thresholds_by_group(uncertainty, correct[1:], groups, max_risk=0.1)
    found = thresholds_by_group(uncertainty, correct, groups, max_risk=0.1)
    with pytest.raises(InputError, match="uncertainty has 2 rows, groups 1"):
        found.accept([0.1, 0.2], ["clinic"])
