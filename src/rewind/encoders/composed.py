"""Vectors of queries that show a picture besides their text: composed retrieval, and what either part alone finds.

A model that reads a picture and a text together is given both (:attr:`rewind.encoders.base.Encoder.composes`). Of
others a query is the mean of two unit vectors, as CLIP is compared on WebVid-CoVR (Ventura et al., arXiv 2308.14746).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rewind.config.encoders import Encoding, QueryParts
from rewind.data.captions import Query
from rewind.encoders.base import Encoder, EncoderOutput
from rewind.encoders.frames import l2_normalise
from rewind.errors import RewindError
from rewind.video.frames import middle_frame

NOTES: dict[QueryParts, str] = {
    "text": "of a query the text alone is encoded, not the frame",
    "frame": "of a query the frame alone is encoded, not the text",
}
TOGETHER_NOTE = "frame and text of a query are encoded together"
MEAN_NOTE = "a query is the mean of the unit vectors of its frame and its text"


def encode_queries(encoder: Encoder, queries: Sequence[Query], parts: QueryParts) -> EncoderOutput:
    """Vectors of queries, in their order, of both parts or one.

    Raises:
        RewindError: if the model does not read both together, and has several vectors of each.
    """
    texts = [query.text for query in queries]
    if parts == "text":
        return encoder.encode_texts(texts)
    frames = [middle_frame(query.clip) for query in queries]
    if parts == "both" and getattr(encoder, "composes", False):  # encoders of the user's own may lack it
        return encoder.encode_composed(texts, frames)
    seen = encoder.encode_clips([frame[None] for frame in frames])
    if parts == "frame":
        return seen
    said = encoder.encode_texts(texts)
    if isinstance(said, list) or isinstance(seen, list) or said.ndim > 2 or seen.ndim > 2:
        raise RewindError(
            "query: both: a mean of one vector of the frame and one of the text is needed, and this model has several "
            "of each; give the encoder composes = True and a method encode_composed, or set query to text or frame."
        )
    return ((l2_normalise(said) + l2_normalise(seen)) / 2).astype(np.float32)


def query_note(encoder: Encoder, keys: Encoding) -> str:
    """How queries were encoded, for the notes of a table."""
    if keys.query != "both":
        return NOTES[keys.query]
    return TOGETHER_NOTE if getattr(encoder, "composes", False) else MEAN_NOTE
