"""Source formats of datasets: one module for each ``source.format`` of a dataset file.

A module is found by its name (:func:`rewind.data.annotations.format_module`) and has these functions:

- ``read(dataset, sources) -> Annotations``: items and captions;
- ``make_sources(dataset, folder)``, in formats whose source files are generated or downloaded: writes them;
- ``has_groups(dataset) -> bool``, optional: whether captions of the test split have groups.

``cifar10`` is no dataset format: it reads labelled images for zero-shot classification.
"""
