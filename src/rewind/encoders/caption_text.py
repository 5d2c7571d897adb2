"""What becomes of a caption before its tokens: one text for one checkpoint, whichever library loads it.

A checkpoint knows captions as its authors prepared them. Libraries prepare some in other ways, without an error: SigLIP
and SigLIP 2 were trained on lower case with punctuation, but transformers keeps the capitals of SigLIP 2, and open_clip
removes the punctuation of both; for CLIP, transformers leaves out what its authors mend. docs/encoders.md has a table.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rewind import optional_packages

# big_vision (pp/ops_text.py) lower-cases what is tokenised, and nothing else; canonicalize_text, which removes
# punctuation, is for names of classes.
SIGLIP = "lower case, punctuation kept"
CLIP = "broken Unicode and HTML entities mended, lower case"
OWN = "as its library prepares it"
UNKNOWN = f"{OWN}, which was not compared with how its authors did"
UNKNOWN_NOTE = f"captions are read {UNKNOWN}"
_OF_TRANSFORMERS = {"clip": CLIP, "xclip": CLIP, "clipseg": CLIP, "groupvit": CLIP, "metaclip_2": OWN}


def prepare_captions(family: str, tokenizer: Any) -> str:
    """Make a tokenizer read captions as the authors of a family did, as far as is known, and say how that is.

    Args:
        family: ``model_type`` of transformers, or a name of open_clip.
        tokenizer: of transformers or of open_clip; it is changed.
    """
    if tokenizer is None or "siglip" not in family.lower():
        is_of_transformers = hasattr(tokenizer, "get_vocab")
        return _OF_TRANSFORMERS.get(family, UNKNOWN) if is_of_transformers else OWN
    if hasattr(tokenizer, "clean_fn"):  # open_clip, which removes punctuation of all SigLIPs
        tokenizer.clean_fn = str.lower
    elif hasattr(tokenizer, "canonicalize_text"):  # SigLIP's own in transformers, which removes it too
        tokenizer.canonicalize_text = _lower
    elif getattr(tokenizer, "backend_tokenizer", None) is not None:  # Gemma's in transformers, which keeps capitals
        from tokenizers import normalizers

        inner = tokenizer.backend_tokenizer
        own = [inner.normalizer] if inner.normalizer else []
        inner.normalizer = normalizers.Sequence([normalizers.Lowercase(), *own])
    return SIGLIP


def caption_writer(family: str, prefix: str = "") -> Callable[[list[str]], list[str]]:
    """What a tokenizer of transformers is given: captions behind a prefix, mended where the family's authors did.

    >>> caption_writer("clip", "see: ")(["caf\u00c3\u00a9 &amp;amp; bar "])
    ['see: café & bar']
    """
    mend = optional_packages.open_clip("tokenizer").basic_clean if _OF_TRANSFORMERS.get(family) == CLIP else str
    return functools.partial(_written, prefix, mend)


def _written(prefix: str, mend: Callable[[str], str], captions: list[str]) -> list[str]:
    return [mend(prefix + caption) for caption in captions]


def _lower(text: str, **_: Any) -> str:
    return text.lower()
