"""``rewind init``: a data set file and a study file for clips that a user brings."""
