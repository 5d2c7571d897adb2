"""What a stage computes, as a sum: which code counts for it, which never does, and what changed since."""
