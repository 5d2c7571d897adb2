"""From a model to similarities, ranks and metrics."""
