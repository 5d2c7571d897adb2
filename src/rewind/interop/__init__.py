"""Rewind's data, runs and scores in the forms of other evaluation tools, and theirs in Rewind's."""
