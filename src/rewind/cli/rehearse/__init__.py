"""``rewind rehearse``: runs every stage of a study on a handful of items and estimates the cost of the whole study."""
