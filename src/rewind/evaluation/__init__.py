"""Evaluation: from a model to similarities, ranks and metrics."""
