"""Confidence intervals, tests and power analysis over training seeds and clusters of queries."""
