"""Samplers: which captions share a batch.

A sampler is made by a module's ``build(options)`` and offers

``batches(item_of_caption, cluster_of_item, keys, seed, epoch, state) -> list[np.ndarray]``
    Caption rows of every batch of an epoch, a pure function of its arguments, so that a resumed run and every process
    see the same order. Every epoch has the same number of batches. ``state`` is what ``prepare`` or the last
    ``refresh`` gave, else empty.
``prepare(data, keys, seed) -> state``, optional
    Once, before a run begins anew: NumPy arrays of numbers that the order depends on. ``data`` is the
    :class:`rewind.feeding.training_data.TrainingData`.
``refresh_every`` and ``refresh(epoch, text_vectors, state) -> state``, optional
    After every so many epochs: a state made anew from the former one and the unit text vectors (n, D) of all captions
    under the weights of that moment.
``check(keys)``, optional
    Before a study's first job: a :class:`RewindError` where the sampler and ``training.batch`` do not fit together.
``describe(batches, state) -> dict[str, float]``, optional
    Of an epoch's batches: columns of ``history.csv``.

The state is saved with the run. On several processes rank 0 makes it and the others get it.
"""
