"""What becomes of a caption before its tokens: one text for one checkpoint, whichever library loads it.

A checkpoint knows captions as its authors prepared them. Libraries prepare some in other ways, without an error: SigLIP
and SigLIP 2 were trained on lower case with punctuation, but transformers keeps the capitals of SigLIP 2, and open_clip
removes the punctuation of both. docs/encoders.md has a table.
"""

from __future__ import annotations

from typing import Any

# big_vision (pp/ops_text.py) lower-cases what is tokenised, and nothing else; canonicalize_text, which removes
# punctuation, is for names of classes.
SIGLIP = "lower case, punctuation kept"
OWN = "as its library prepares it"


def prepare_captions(family: str, tokenizer: Any) -> str:
    """Make a tokenizer read captions as the authors of a family did, and say how that is.

    Args:
        family: ``model_type`` of transformers, or a name of open_clip.
        tokenizer: of transformers or of open_clip; it is changed.
    """
    if tokenizer is None or "siglip" not in family.lower():
        return OWN
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


def _lower(text: str, **_: Any) -> str:
    return text.lower()
