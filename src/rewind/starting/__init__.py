"""``rewind new``: a working folder of the user's own, without a checkout."""
