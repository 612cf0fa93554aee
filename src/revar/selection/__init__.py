"""Thresholds with guarantees: from a wish on held-out data to accept or abstain.

Accept iff ``uncertainty <= threshold``. Every guarantee is for calibration and new examples
drawn independently from one distribution; `coverage_drift` watches over that.
"""

from revar.selection.coverage import threshold_for_coverage
from revar.selection.drift import CoverageDrift, coverage_drift
from revar.selection.groups import GroupThresholds, thresholds_by_group
from revar.selection.result import Attainable, Threshold
from revar.selection.risk import threshold_for_risk

__all__ = [
    "Attainable",
    "CoverageDrift",
    "GroupThresholds",
    "Threshold",
    "coverage_drift",
    "threshold_for_coverage",
    "threshold_for_risk",
    "thresholds_by_group",
]
