"""``rewind doctor --gpu``: what only a GPU can show, as a table of checks; a command of checkouts.

``check.py`` runs checks one after another and prints them, ``correctness.py`` and ``speed.py`` have the checks,
``command.py`` their list, the command's options and the file of figures.
"""
