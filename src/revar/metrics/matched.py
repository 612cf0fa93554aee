"""Classifiers on one selection: the paper's control for who selects and who classifies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from revar.metrics.arrays import as_array
from revar.metrics.selective import accuracy_at_coverage


def matched_set(
    uncertainty: Mapping[str, Any],
    correct: Mapping[str, Any],
    *,
    coverage: float,
    sample_weight: Any = None,
) -> dict[str, dict[str, float]]:
    """Accuracy of every classifier on every selector's most certain examples.

    The rows of the result ask whether a method's classifier is better where it is used; the
    columns whether its selection is easier (OSS and PSS in the paper: a baseline on the subset
    that ReVaR keeps, and the reverse).

    Args:
        uncertainty: selector to [n], higher is rejected first.
        correct: classifier to [n] booleans, on the same examples in the same order.
        coverage: share of the examples each selector keeps; tied ones count by their share.
        sample_weight: [n] weights.

    Returns:
        classifier to selector to accuracy.

    Raises:
        ValueError: not all of one shape [n], NaN, or a coverage outside (0, 1].

    >>> matched_set({"a": [1, 2]}, {"a": [True, False], "b": [False, True]}, coverage=0.5)
    {'a': {'a': 1.0}, 'b': {'a': 0.0}}
    """
    shapes = {as_array(v).shape for v in (*uncertainty.values(), *correct.values())}
    if len(shapes) != 1:
        raise ValueError(f"all must be on the same examples [n], not of shapes {sorted(shapes)}")
    return {
        classifier: {
            selector: accuracy_at_coverage(
                scores, correct[classifier], coverage, sample_weight=sample_weight
            )
            for selector, scores in uncertainty.items()
        }
        for classifier in correct
    }
