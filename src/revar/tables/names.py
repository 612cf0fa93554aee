"""The names of all tables, for a command line that starts quickly."""

from revar.published import TABLES

ELSEWHERE = ("controlled", "dataset-statistics")
"""A study of its own, and ``revar list datasets``."""
NAMES = tuple(name for name in TABLES if name not in ELSEWHERE)
