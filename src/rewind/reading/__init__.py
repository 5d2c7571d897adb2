"""Files that a user brings, read strictly: what is wrong is refused with its file and row, whatever is in it."""
