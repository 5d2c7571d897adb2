"""``rewind init``: write a dataset file and a first study file for clips of the user's own."""
