"""Load data for models: items and captions of a split as batches of tensors."""
