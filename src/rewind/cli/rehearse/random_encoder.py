"""An encoder of random vectors, in place of a model that is not on this machine.

Its module's name is written into rehearsed studies as ``encoder``, like that of an encoder of the user's own.
"""

from __future__ import annotations

import numpy as np

from rewind.config.encoders import Encoding
from rewind.encoders.base import Encoder
from rewind.hashing import stable_hash

VECTOR_WIDTH = 32


class RandomEncoder(Encoder):
    """Gives the same vector for the same caption, or for the same pictures in the same order.

    >>> RandomEncoder().encode_texts(["A door opens.", "A door closes."]).shape
    (2, 32)
    """

    notes = ("random vectors stand in for a model that is not available",)

    def encode_texts(self, texts: list[str]) -> np.ndarray:
        """float32 [texts, 32]."""
        return np.stack([_random_vector(text) for text in texts])

    def encode_clips(self, clips: list[np.ndarray]) -> np.ndarray:
        """float32 [clips, 32]."""
        return np.stack([_random_vector(stable_hash(clip.tobytes().hex())) for clip in clips])


def _random_vector(text: str) -> np.ndarray:
    return np.random.default_rng(int(stable_hash(text)[:15], 16)).normal(size=VECTOR_WIDTH).astype(np.float32)


def build(encoding: Encoding) -> RandomEncoder:
    """The encoder, whatever model ``encoding`` names."""
    return RandomEncoder()
