"""Rewind: does a text-to-video retriever know which way time runs?"""

__version__ = "0.1.0"
