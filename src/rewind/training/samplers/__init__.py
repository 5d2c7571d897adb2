"""Samplers decide which captions share a batch; :class:`rewind.training.samplers.base.Sampler` is their interface."""
