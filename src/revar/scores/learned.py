"""Scores with something fitted: the oriented U-Score and the fused score.

What is fitted is fitted on the tune split and saved with the run, as `Fitted`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from revar.errors import InputError
from revar.metrics.selective import failure_auroc
from revar.predictions import Predictions
from revar.scores.dropout import dropout_entropy, dropout_variance
from revar.scores.softmax import softmax

_FREE = 100.0
"""How much larger than the rest the log-odds are made, so that they are hardly shrunk."""
_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Inverse ridge penalties, most shrunken first."""
_FEWEST = 10
"""Errors, and hits, below which nothing is fused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """A logistic model of P(error): ``intercept + sum_k coefficient_k * feature_k``.

    Attributes:
        features: names, see `fusion_features`.
        coefficients: one each, on the features as they are.
        intercept: of the model.
        fitted_on: examples, of which
        errors: were wrong.
        note: why the model is softmax response alone, where it is.
    """

    features: tuple[str, ...]
    coefficients: tuple[float, ...]
    intercept: float
    fitted_on: int
    errors: int
    note: str = ""

    @property
    def used(self) -> tuple[str, ...]:
        """The features that count: the fit leaves many at a coefficient of exactly zero."""
        pairs = zip(self.features, self.coefficients, strict=True)
        return tuple(name for name, coefficient in pairs if coefficient)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """What the tune split decided.

    Attributes:
        default_score: used unless another is asked for.
        orientation: +1 where a high logit of g is uncertain, -1 where a low one is.
        orientation_note: how that was decided.
        fusion: the model behind ``fused``, if there was a tune split.
        own: the score the method is published with, for which ``own`` is another name.
    """

    default_score: str
    orientation: Literal[1, -1] = 1
    orientation_note: str = ""
    fusion: Fusion | None = None
    own: str = "softmax"

    def named(self, score: str | None) -> str:
        """The score that is meant: the default where none is named, and what ``own`` stands for."""
        score = score or self.default_score
        return self.own if score == "own" else score


def raw_uscore(predictions: Predictions) -> NDArray[np.float64]:
    """[n] the logit of g(x), as the network says it."""
    if "uscore" not in predictions.columns:
        raise InputError("this run has no U-Score: train it with --method trajectory or revar")
    return predictions.columns["uscore"].astype(np.float64)


def uscore(predictions: Predictions, fitted: Fitted) -> NDArray[np.float64]:
    """The logit of g(x), turned so that higher is less certain."""
    return fitted.orientation * raw_uscore(predictions)


def fusion_features(predictions: Predictions, fitted: Fitted) -> dict[str, NDArray[np.float64]]:
    """What the fused score reads, of what there is; each points up."""
    features = {"softmax": softmax(predictions)}
    if predictions.dropout_mean is not None:
        features["dropout_entropy"] = dropout_entropy(predictions)
        features["dropout_variance"] = dropout_variance(predictions)
    if "uscore" in predictions.columns:
        features["uscore"] = uscore(predictions, fitted)
    return features


def fused(predictions: Predictions, fitted: Fitted) -> NDArray[np.float64]:
    """Logit of the estimated P(error)."""
    if fitted.fusion is None:
        raise InputError(
            "this run has no tune split, so nothing was fused: use another score, or train with "
            "tune_fraction=0.1"
        )
    features = fusion_features(predictions, fitted)
    lacking = [name for name in fitted.fusion.used if name not in features]
    if lacking:
        raise InputError(f"the fused score needs {', '.join(lacking)}, which is missing here")
    total = np.full(len(predictions), fitted.fusion.intercept)
    for name, value in zip(fitted.fusion.features, fitted.fusion.coefficients, strict=True):
        if value:
            total += value * features[name]
    return total


def fit_orientation(
    tune: Predictions | None, wanted: Literal["high", "low", "auto"]
) -> tuple[Literal[1, -1], str]:
    """Which end of g is uncertain: as told, or by failure AUROC on the tune split."""
    if wanted != "auto":
        return (1 if wanted == "high" else -1), f"set to {wanted}"
    if tune is None or not 0 < tune.correct().sum() < len(tune):
        return 1, "auto: the tune split shows no errors or nothing right, so high"
    auroc = failure_auroc(raw_uscore(tune), tune.correct())
    side: Literal[1, -1] = 1 if auroc >= 0.5 else -1
    way = "high" if side == 1 else "low"
    return side, f"auto: {way}, failure AUROC of g {auroc:.3f} on {len(tune)} tune examples"


def fit_fusion(tune: Predictions, fitted: Fitted) -> Fusion:
    """Fit P(error) on the tune split, non-decreasing in every feature.

    Coefficients are shrunk to zero (ridge), that of the log-odds hardly at all, so the family
    runs from softmax response to the free fit. How far to go is decided by five-fold
    cross-validated log-loss: the most shrunken model within one standard error of the best. With
    fewer than ten errors, or fewer than ten hits, it is softmax response and says so.
    """
    return fit_features(fusion_features(tune, fitted), ~tune.correct())


def fit_features(
    features: Mapping[str, NDArray[np.float64]], errors_made: NDArray[np.bool_]
) -> Fusion:
    """The same of any scores.

    Args:
        features: [n] each, ``softmax`` among them; all point up.
        errors_made: [n] whether the prediction is wrong.
    """
    wrong = errors_made.astype(np.float64)
    names = tuple(features)
    errors, n = int(wrong.sum()), len(wrong)

    def softmax_alone(note: str) -> Fusion:
        return Fusion(
            features=("softmax",), coefficients=(1.0,), intercept=0.0, fitted_on=n, errors=errors,
            note=f"softmax response: {note}",
        )  # fmt: skip

    if min(errors, n - errors) < _FEWEST:
        return softmax_alone(f"{errors} errors among {n} tune examples are too few to learn from")
    matrix = np.stack([features[name] for name in names], axis=1)
    centre, spread = matrix.mean(axis=0), matrix.std(axis=0)
    # The spread of a constant is a rounding error, so whether a feature varies is asked exactly.
    varies = (np.ptp(matrix, axis=0) > 0) & (spread > 0)
    # A feature made larger is shrunk less; one that does not vary is left out.
    free = np.where(np.array(names) == "softmax", _FREE, 1.0)
    stretch = np.where(varies, free, 0.0) / np.where(varies, spread, 1.0)
    scaled = (matrix - centre) * stretch
    weights = rising_logistic(scaled, wrong, _chosen_strength(scaled, wrong))
    coefficients = weights[1:] * stretch
    if not coefficients.any():
        return softmax_alone(f"{errors} errors among {n} tune examples contradict every score")
    return Fusion(
        features=names,
        coefficients=tuple(coefficients.tolist()),
        intercept=float(weights[0] - (coefficients * centre).sum()),
        fitted_on=n,
        errors=errors,
    )


def rising_logistic(
    x: NDArray[np.float64], y: NDArray[np.float64], strength: float
) -> NDArray[np.float64]:
    """Ridge logistic regression with coefficients that are not negative.

    Minimises ``sum_i log-loss_i + |b|^2 / (2 strength)`` over (intercept, b >= 0), scikit-learn's
    objective, which has no such constraint.

    Args:
        x: [n, d]
        y: [n] 0 or 1.
        strength: inverse penalty, as scikit-learn's ``C``.

    Returns:
        [1 + d] intercept and coefficients.
    """
    from scipy.optimize import minimize

    columns = np.concatenate([np.ones((1, len(x))), x.T])

    def objective(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        # Sums, not matrix products: for a handful of columns the threads of BLAS cost seconds.
        z = (columns * weights[:, None]).sum(axis=0)
        penalised = np.r_[0.0, weights[1:]]
        value = (np.logaddexp(0.0, z) - y * z).sum() + (penalised**2).sum() / (2 * strength)
        slope = (columns * (expit(z) - y)).sum(axis=1) + penalised / strength
        return value / len(x), slope / len(x)

    share = y.mean()
    start = np.r_[np.log(share / (1 - share)), np.zeros(x.shape[1])]
    bounds = [(None, None)] + [(0.0, None)] * x.shape[1]
    found = minimize(
        objective, start, jac=True, bounds=bounds, method="L-BFGS-B",
        options={"maxiter": 5000, "ftol": 1e-13, "gtol": 1e-9},
    )  # fmt: skip
    weights: NDArray[np.float64] = found.x
    return weights


def _chosen_strength(x: NDArray[np.float64], wrong: NDArray[np.float64]) -> float:
    """The one-standard-error rule over five folds, paired with the best strength."""
    from sklearn.model_selection import StratifiedKFold

    folds = list(StratifiedKFold(5, shuffle=True, random_state=0).split(x, wrong))
    losses = np.empty((len(_STRENGTHS), len(folds)))
    for i, strength in enumerate(_STRENGTHS):
        for j, (fit, held) in enumerate(folds):
            weights = rising_logistic(x[fit], wrong[fit], strength)
            z = weights[0] + (x[held] * weights[1:]).sum(axis=1)
            losses[i, j] = (np.logaddexp(0.0, z) - wrong[held] * z).mean()
    best = int(losses.mean(axis=1).argmin())
    excess = losses - losses[best]
    tolerance = excess.std(axis=1, ddof=1) / np.sqrt(len(folds))
    good = excess.mean(axis=1) <= tolerance
    return _STRENGTHS[int(np.argmax(good))]


def fit_scores(
    tune: Predictions | None,
    *,
    default_score: str,
    orientation: Literal["high", "low", "auto"] = "high",
    own: str = "softmax",
) -> Fitted:
    """Everything the tune split decides, at once.

    Without a tune split nothing is fused, and a run whose default is ``fused`` uses softmax.
    """
    side, note = fit_orientation(tune, orientation)
    fitted = Fitted(default_score=default_score, orientation=side, orientation_note=note, own=own)
    if tune is None:
        return replace(fitted, default_score="softmax") if default_score == "fused" else fitted
    return replace(fitted, fusion=fit_fusion(tune, fitted))
