"""Classifiers that know when to stay silent."""
