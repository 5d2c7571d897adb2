"""Which outputs are stale, and why: hashes of code, accepted edits, replaced files of the user's, what would run."""
