"""Tables and figures: what a study publishes."""
