"""Which queries search which gallery: the keys of a study's ``evaluation``."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from rewind.study import keys as kinds
from rewind.study.keys import Keys, key
from rewind.study.zero_shot import ZeroShot


class Evaluation(Keys):
    """Which queries search which gallery."""

    settings: list[Literal["origin", "hard", "binary", "test"]] = key(
        ["origin", "hard", "binary"],
        "`origin`, `hard` and `binary` need reversed twins; `test` is the plain test split.",
        min_length=1,
    )
    directions: list[Literal["text_to_item", "item_to_text"]] = key(
        ["text_to_item", "item_to_text"], "Search directions.", min_length=1
    )
    item_to_text: Literal["all_captions", "best_caption"] = key(
        "all_captions",
        "What an item searches where items have several captions: `all_captions`, or of each item the "
        "`best_caption` alone, as CLIP4Clip does. Its rank is that of its own best caption either way; validation "
        "always searches all.",
        before="all_captions",
    )
    cosine_gap: bool = key(
        False,
        "Also report the cosine gap on validation and test: how much closer a caption is to its own item than to "
        "others.",
    )
    batch_size: int = key(64, "Number of items or captions encoded at once.", ge=1)
    pair_batch_size: int = key(4096, "Number of pairs scored at once by heads that score pairs.", ge=1)
    zero_shot: ZeroShot | None = key(
        None, "Also measure zero-shot classification of labelled images, after each epoch and for the final model."
    )

    @field_validator("settings", "directions")
    @classmethod
    def _once(cls, names: list[str]) -> list[str]:
        return kinds.once(names)
