"""Training: batches, optimisers, exact large-batch steps and a resumable loop."""
