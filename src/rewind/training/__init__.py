"""Training: inputs, batches, optimiser, resumable loop."""
