"""The names of all tables, for a command line that starts quickly."""

from revar.published import TABLES

ELSEWHERE = ("controlled", "dataset-statistics")
"""A study of its own, and ``revar list datasets``."""
LATER = ("plex-calibration", "plex-label", "plex-selective")
"""Fine-tuning of a large pretrained model, which no cell does yet."""
NAMES = tuple(name for name in TABLES if name not in (*ELSEWHERE, *LATER))
