"""Rewind: does a text-to-video retriever know which way time runs?

Configuration is in :mod:`rewind.config`, models in :mod:`rewind.models`, losses in :mod:`rewind.losses`; what the
workflow's rules need is in :mod:`rewind.workflow`, the commands of ``rewind`` in :mod:`rewind.cli`.
"""
