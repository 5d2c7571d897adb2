"""Rewind: does a text-to-video retriever know which way time runs?

Configuration is in :mod:`rewind.config`, models in :mod:`rewind.models`, losses in :mod:`rewind.losses`; the functions
that the workflow's rules run are in :mod:`rewind.jobs`, the commands of ``rewind`` in :mod:`rewind.cli`.
"""
