"""Losses: one callable a module, named in a study by its module."""
