"""The command ``rewind``: one module or package for each of its larger commands, assembled in ``main``."""
