"""Retrievers: towers, temporal heads, baselines."""
