"""The paper's generative model of section 4: what the ideal weights are is known exactly.

    Y = W'X + N(0, 1) * (c + G'X),    X = [X_c X_e] ~ N(mu, Sigma),

with 48 core and 24 further features, a diagonal Sigma, and a validation set whose mean is moved.
The printed text leaves much open and contradicts itself in places; the readings are fields here
and their reasons are in docs/controlled-study.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from revar import fields

Floats = NDArray[np.float64]
Features = Literal["all", "core", "extra"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One setting of the model.

    Attributes:
        constant: c.
        label_noise: whether G is there; else G = 0.
        extra_effect: whether W_e is there; else W_e = 0.
        observed: the features the learner sees.
        shift: s: how far the mean of the validation inputs is moved, in standard deviations
            (Mahalanobis distance, on average over directions).
        shifted: the features that move.
        shifted_scale: factor on the deviation of the moved features in the validation inputs.
        heteroscedastic: k of scenario 3b: given X_c, the deviation of X_e is multiplied by
            ``exp(k z)``, z a standard normal direction of X_c. 0 is the paper's joint normal.
        reading: whether the b of the paper's N(a, b) is a ``variance`` or a ``deviation``.
        n_core: features of X_c.
        n_extra: features of X_e.
    """

    constant: float = 0.0
    label_noise: bool = False
    extra_effect: bool = True
    observed: Features = "all"
    shift: float = 0.0
    shifted: Features = "all"
    shifted_scale: float = 1.0
    heteroscedastic: float = 0.0
    reading: Literal["variance", "deviation"] = "variance"
    n_core: int = 48
    n_extra: int = 24

    def __post_init__(self) -> None:
        fields.check(self)
        for name in ("n_core", "n_extra"):
            fields.require(getattr(self, name) >= 1, self, name, "be at least 1")
        for name in ("shift", "heteroscedastic"):
            fields.require(getattr(self, name) >= 0, self, name, "not be negative")
        fields.require(self.shifted_scale > 0, self, "shifted_scale", "be positive")
        fields.require(
            self.constant != 0 or self.label_noise, self, "constant",
            "not be 0 without label noise: labels would be exact",
        )  # fmt: skip

    def columns(self, which: Features) -> slice:
        """Where these features are."""
        n = self.n_core
        return {"all": slice(None), "core": slice(n), "extra": slice(n, None)}[which]


SCENARIOS = {
    "1": Scenario(label_noise=True),
    "2": Scenario(label_noise=True, shift=2.0),
    "3": Scenario(constant=1.0, observed="core"),
    "3b": Scenario(constant=1.0, observed="core", heteroscedastic=0.7),
    "4": Scenario(constant=1.0, observed="core", shift=2.0),
    "5": Scenario(constant=1.0, extra_effect=False, shift=2.0, shifted="extra", shifted_scale=1.5),
}
"""By the paper's numbers; 3b is ours."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A draw of a scenario.

    Attributes:
        x: [n, d] observed training inputs.
        y: [n]
        x_meta: [m, d] observed validation inputs.
        y_meta: [m]
        noise: [n] Var(Y | observed x) of the training points, exactly; the ideal weight for label
            noise is its inverse.
        distance: [n] h = |x - mu|^2 over the observed features.
    """

    x: Floats
    y: Floats
    x_meta: Floats
    y_meta: Floats
    noise: Floats
    distance: Floats

    def standardised(self) -> Problem:
        """Inputs and targets by the mean and deviation of the training ones.

        As printed, the signal is a fiftieth of the noise in variance and no two features have
        one scale: a learner at one step size would learn nothing.
        """
        mean, deviation = self.x.mean(0), self.x.std(0)
        centre, spread = self.y.mean(), self.y.std()
        return Problem(
            (self.x - mean) / deviation,
            (self.y - centre) / spread,
            (self.x_meta - mean) / deviation,
            (self.y_meta - centre) / spread,
            self.noise,
            self.distance,
        )


@dataclass(frozen=True, slots=True)
class _Parameters:
    """One draw of W, G, mu, Sigma (diagonal), the shift, and the direction of 3b."""

    effect: Floats
    noise: Floats
    mean: Floats
    deviation: Floats
    shift: Floats
    direction: Floats


def _parameters(scenario: Scenario, rng: np.random.Generator) -> _Parameters:
    d = scenario.n_core + scenario.n_extra

    def normal(mean: float, spread: float) -> Floats:
        return rng.normal(mean, np.sqrt(spread) if scenario.reading == "variance" else spread, d)

    effect, noise, mean = normal(5, 10), normal(12, 18), normal(1, 10)
    # A variance cannot be negative, as some of the printed draws are.
    deviation = np.sqrt(np.abs(normal(5, 10)))
    towards, direction = rng.normal(size=d) / np.sqrt(d), rng.normal(size=scenario.n_core)
    if not scenario.extra_effect:
        effect[scenario.columns("extra")] = 0
    shift = np.zeros(d)
    moved = scenario.columns(scenario.shifted)
    shift[moved] = scenario.shift * (towards * deviation)[moved]
    return _Parameters(
        effect,
        noise * scenario.label_noise,
        mean,
        deviation,
        shift,
        direction / np.linalg.norm(direction),
    )


def draw(scenario: Scenario, n: int, n_meta: int, seed: int) -> Problem:
    """Parameters, training and validation sets of one seed.

    The parameters depend on the seed alone, so scenarios that differ in a knob differ in nothing
    else: W, G, mu, Sigma and the direction of the shift are the same at every s.

    Args:
        scenario: what of the model is switched on.
        n: training points.
        n_meta: validation points.
        seed: of everything.
    """
    rng = np.random.default_rng(seed)
    parameters = _parameters(scenario, rng)
    train = _points(scenario, parameters, n, rng, validation=False)
    meta = _points(scenario, parameters, n_meta, rng, validation=True)
    seen = scenario.columns(scenario.observed)
    x, y, scale = train
    if scenario.observed == "core":
        hidden = scenario.columns("extra")
        unseen = np.square(parameters.effect[hidden] * parameters.deviation[hidden]).sum()
        noise = scale**2 * unseen + (scenario.constant + x @ parameters.noise) ** 2
    else:
        noise = (scenario.constant + x @ parameters.noise) ** 2
    distance = np.square((x - parameters.mean)[:, seen]).sum(1)
    return Problem(x[:, seen], y, meta[0][:, seen], meta[1], noise, distance)


def _points(
    scenario: Scenario, at: _Parameters, n: int, rng: np.random.Generator, *, validation: bool
) -> tuple[Floats, Floats, Floats]:
    """[n, d] inputs, [n] targets, and [n] factors on the deviation of X_e."""
    standard = rng.normal(size=(n, len(at.mean)))
    extra = scenario.columns("extra")
    scale = np.exp(scenario.heteroscedastic * standard[:, : scenario.n_core] @ at.direction)
    standard[:, extra] *= scale[:, None]
    if validation:
        standard[:, scenario.columns(scenario.shifted)] *= scenario.shifted_scale
    x = at.mean + (at.shift if validation else 0.0) + at.deviation * standard
    y = x @ at.effect + rng.normal(size=n) * (scenario.constant + x @ at.noise)
    return x, y, scale
