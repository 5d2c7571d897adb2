"""Datasets before any clip is decoded: annotations, splits, captions, tokenizers, and readers of users' files.

:mod:`rewind.data.annotations` turns a dataset of any format into one table of items and one of captions; the formats
are modules of :mod:`rewind.data.formats`. After the video stage :mod:`rewind.data.captions` writes ``items.csv`` and
the caption tables that all later stages read. Files of embeddings, scores and TREC runs are read by
:mod:`rewind.data.readers`.
"""
