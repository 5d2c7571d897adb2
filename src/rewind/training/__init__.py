"""Training: batches, optimiser, resumable loop."""
