"""What models are fed: items and captions of a split as tensors, whoever asks for them."""
