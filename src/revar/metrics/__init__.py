"""Figures from arrays: NumPy or torch in, float out.

Selective ones take ``(uncertainty, correct)``, higher is rejected first; those of calibration
take ``(probabilities, labels)``. An undefined figure is NaN, with an `UndefinedMetricWarning`
that says why.
"""

from revar.metrics.arrays import balanced_weights, kept_weights
from revar.metrics.calibration import (
    Reliability,
    brier,
    ece,
    mce,
    nll,
    reliability,
    selective_ece,
)
from revar.metrics.comparison import Compared, Comparison, compare, holm
from revar.metrics.detection import auc_at_coverage, ood_auroc, ood_fpr_at_tpr
from revar.metrics.distributions import label_js, label_kl, uscore_entropy_correlation
from revar.metrics.matched import matched_set
from revar.metrics.selective import (
    CURVE_FIGURES,
    AccuracyRejection,
    RiskCoverage,
    accuracy_at_coverage,
    accuracy_rejection_curve,
    auarc,
    augrc,
    aurc,
    coverage_at_risk,
    curve_figures,
    e_aurc,
    failure_aupr,
    failure_auroc,
    fpr_at_tpr,
    normalised_auarc,
    risk_coverage_curve,
)

__all__ = [
    "CURVE_FIGURES",
    "AccuracyRejection",
    "Compared",
    "Comparison",
    "Reliability",
    "RiskCoverage",
    "accuracy_at_coverage",
    "accuracy_rejection_curve",
    "auarc",
    "auc_at_coverage",
    "augrc",
    "aurc",
    "balanced_weights",
    "brier",
    "compare",
    "coverage_at_risk",
    "curve_figures",
    "e_aurc",
    "ece",
    "failure_aupr",
    "failure_auroc",
    "fpr_at_tpr",
    "holm",
    "kept_weights",
    "label_js",
    "label_kl",
    "matched_set",
    "mce",
    "nll",
    "normalised_auarc",
    "ood_auroc",
    "ood_fpr_at_tpr",
    "reliability",
    "risk_coverage_curve",
    "selective_ece",
    "uscore_entropy_correlation",
]
