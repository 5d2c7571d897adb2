"""Samplers: which captions share a batch; :class:`rewind.training.samplers.interface.Sampler` says what one offers."""
