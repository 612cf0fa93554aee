"""Laws of (uncertainty, error) whose selective risk is known in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from support.properties import Floats


@dataclass(frozen=True)
class Pieces:
    """Piece j has a mass and a risk; it is spread evenly over (j, j + 1), or sits at j.

    Attributes:
        mass: of each piece, summing to 1.
        risk: chance of an error in each.
        point: whether each is a point mass.
    """

    mass: tuple[float, ...]
    risk: tuple[float, ...]
    point: tuple[bool, ...]

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        """[n] uncertainties and [n] chances of an error."""
        piece = rng.choice(len(self.mass), size=n, p=self.mass)
        spread = np.where(np.array(self.point)[piece], 0.0, rng.random(n))
        uncertainty: Floats = piece.astype(np.float64) + spread
        return uncertainty, np.array(self.risk)[piece]

    def _shares(self, threshold: float) -> Floats:
        start = np.arange(len(self.mass))
        spread = np.clip(threshold - start, 0.0, 1.0)
        inside = np.where(self.point, (threshold >= start).astype(float), spread)
        shares: Floats = np.array(self.mass) * inside
        return shares

    def coverage(self, threshold: float) -> float:
        """P(U <= threshold)."""
        return float(self._shares(threshold).sum())

    def risk_at(self, threshold: float) -> float:
        """P(error | U <= threshold)."""
        shares = self._shares(threshold)
        return float((shares * np.array(self.risk)).sum() / shares.sum())


@dataclass(frozen=True)
class Power:
    """U is uniform on (0, 1) and an error has the chance ``top u^exponent``."""

    top: float
    exponent: float

    def draw(self, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        """[n] uncertainties and [n] chances of an error."""
        uncertainty = rng.random(n)
        return uncertainty, self.top * uncertainty**self.exponent

    def coverage(self, threshold: float) -> float:
        """P(U <= threshold)."""
        return min(max(threshold, 0.0), 1.0)

    def risk_at(self, threshold: float) -> float:
        """The mean of ``top u^exponent`` below the threshold."""
        return float(self.top * self.coverage(threshold) ** self.exponent / (self.exponent + 1.0))


Law = Pieces | Power


def zigzag(limit: float, pieces: int, *, point: bool, swing: float = 0.1) -> Pieces:
    """The risk of all pieces up to j is a little above the limit for even j, below for odd."""
    mass = np.full(pieces, 1.0 / pieces)
    cumulative = np.cumsum(mass) * limit * (1.0 + swing * (-1.0) ** np.arange(pieces))
    risk = np.clip(np.diff(np.r_[0.0, cumulative]) / mass, 0.0, 1.0)
    return Pieces(tuple(mass.tolist()), tuple(risk.tolist()), (point,) * pieces)


def some_laws(limit: float) -> dict[str, Law]:
    """Laws that make it hard to keep a risk of `limit`."""
    over = limit * 1.001
    return {
        "informative": Power(4.0 * limit, 1.5),
        "uninformative": Pieces((1.0,), (over,), (False,)),
        "one value": Pieces((1.0,), (over,), (True,)),
        "five values": Pieces(
            (0.2,) * 5, (limit / 2, limit, 1.6 * limit, 2 * limit, 3 * limit), (True,) * 5
        ),
        "reversed": Pieces((0.5, 0.3, 0.2), (over, limit / 1.5, limit / 2), (False,) * 3),
        "reversed values": Pieces(
            (0.3, 0.3, 0.4), (2.5 * limit, over / 2, 0.2 * limit), (True,) * 3
        ),
        "point mass": Pieces((0.4, 0.3, 0.3), (over, limit / 3, 3 * limit), (True, False, False)),
        "zigzag": zigzag(limit, 9, point=False),
        "zigzag values": zigzag(limit, 9, point=True),
    }
