"""Rewind: does a text-to-video retriever know which way time runs?"""
