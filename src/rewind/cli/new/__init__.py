"""``rewind new``: create a working folder that uses the installed workflow, without a checkout."""
