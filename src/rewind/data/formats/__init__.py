"""Source formats of datasets: one module for each ``source.format`` of a dataset file.

A format is found by the name under which its reader is registered (:data:`rewind.registry.FORMATS`):

- ``read(dataset, sources) -> Annotations``: items and captions. What else a format has is named in the decorator:
- ``make_sources(dataset, folder)``, in formats whose source files are generated or downloaded: writes them;
- ``has_groups(dataset) -> bool``, optional: whether captions of the test split have groups.

Its module also has ``make_dummy_data``, which writes a few invented items in its files (:mod:`rewind.data.dummy`).

``cifar10`` is not a dataset format: it reads labelled images for zero-shot classification.
"""
