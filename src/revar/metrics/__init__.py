"""Figures from arrays. Selective ones take ``(uncertainty, correct)``, higher is rejected first."""

from revar.metrics.calibration import ece
from revar.metrics.selective import (
    RiskCoverage,
    accuracy_at_coverage,
    auarc,
    augrc,
    aurc,
    e_aurc,
    failure_auroc,
    risk_coverage_curve,
)

__all__ = [
    "RiskCoverage",
    "accuracy_at_coverage",
    "auarc",
    "augrc",
    "aurc",
    "e_aurc",
    "ece",
    "failure_auroc",
    "risk_coverage_curve",
]
