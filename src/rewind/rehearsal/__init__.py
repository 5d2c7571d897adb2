"""A dress rehearsal of a study: every stage on a handful of items, and what the whole study will cost."""
