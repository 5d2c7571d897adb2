"""Where a caption ends among its token ids, for towers that pool at the end token."""

from __future__ import annotations

from torch import Tensor


def up_to_the_end(tokens: Tensor) -> Tensor:
    """Token ids (n, L) without the places behind the end token of the longest caption.

    The end token is the largest id of a row, as CLIP pools. Padding is no guide: its id, 0, is ``!`` to CLIP's
    tokenizer wherever a word follows without a space.
    """
    return tokens[:, : int(tokens.argmax(dim=1).max()) + 1]
