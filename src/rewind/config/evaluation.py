"""Keys of a study's ``evaluation``: settings, search directions, zero-shot classification."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from rewind.config.base import ConfigModel, config_field, require_unique, required_field

# ---- Settings, search directions and batch sizes of the evaluation -------------------------------------------------

TWIN_SETTINGS = ("origin", "hard", "binary")
"""Settings that need a clip's time-reversed twin."""
OrderControl = Literal["reversed", "shuffled", "halves", "single", "frozen"]
"""What frames are shown instead of a clip's, see :func:`rewind.evaluation.order.shown_frames`."""


ProbeName = Literal["pairs", "answers", "foils", "direction", "geometry"]
"""What is evaluated on finished runs in addition to their ranks, see :mod:`rewind.evaluation.probes`."""
PROBE_KEYS = ("probe", "part", "direction", "metric")
"""Columns that name what a probe measures."""
VALUE_COLUMNS = (*PROBE_KEYS, "query_id", "cluster_id", "value")
"""Columns of what a run answers; ``value``: of a query, in percent, or of the whole run where ``query_id`` is empty."""
BY_CHANCE = ", by chance"
"""Ends the name of a metric whose rows are permutations: what a probe gives where there is nothing to find."""
DIRECTION_FOLDS = 5
"""Parts of the cross-validation of ``direction``: clips with a twin are needed in as many clusters."""
DIRECTION_PERMUTATIONS = 999
"""Draws of which clip of a pair runs forward; the smallest p-value is 0.001."""
HUBNESS_NEIGHBOURS = 10
"""Nearest items of a caption that ``geometry`` counts; more items are needed than that."""


class Evaluation(ConfigModel, affects="scores"):
    """Which queries search which gallery.

    >>> Evaluation(settings=["test"]).directions
    ['text_to_item', 'item_to_text']
    """

    settings: list[Literal["origin", "hard", "binary", "test"]] = config_field(
        ["origin", "hard", "binary"],
        "`origin`, `hard` and `binary` need reversed twins; `test` is the plain test split.",
        min_length=1,
    )
    directions: list[Literal["text_to_item", "item_to_text"]] = config_field(
        ["text_to_item", "item_to_text"], "Search directions.", min_length=1
    )
    item_to_text: Literal["all_captions", "best_caption"] = config_field(
        "all_captions",
        "What an item searches where items have several captions: `all_captions`, or only the `best_caption` "
        "of each item, as CLIP4Clip does. Its rank is that of its own best caption either way; validation "
        "always searches all.",
        legacy_default="all_captions",
    )
    cosine_gap: bool = config_field(
        False,
        "Also report the cosine gap on validation and test: how much closer a caption is to its own item than to "
        "others.",
    )
    order: list[OrderControl] = config_field(
        [],
        "Also rank captions with each clip's frames in another order: `reversed`, `shuffled` (at random, each clip "
        "with a seed of its own), `halves` (the second half first), `single` (only the middle frame), `frozen` (the "
        "middle frame in the place of all). The report states what each costs every method (docs/probes.md).",
        legacy_default=[],
    )
    paraphrases: bool = config_field(
        False,
        "Also count, for items with several captions, how often every caption finds its item first and how often at "
        "least one does (docs/statistics.md).",
        legacy_default=False,
        affects="statistics",
    )
    transductive: list[Literal["dual_softmax", "qb_norm"]] = config_field(
        [],
        "Also show what captions gain if scores are normalised over all captions of the test split: `dual_softmax` "
        "(CAMoE), `qb_norm` (QB-Norm with the test captions as its bank). Such numbers see the test set; they are in a "
        "table of their own (docs/statistics.md).",
        legacy_default=[],
        affects="statistics",
    )
    probes: list[ProbeName] = config_field(
        [],
        "Also evaluate on every run (docs/probes.md): `pairs` (text, video and group score of clips with their twins), "
        "`answers` (mAP, R@k and nDCG where captions have several right clips), `foils` (true captions against "
        "captions that are not true), `direction` (can a linear classifier read the direction of time from features "
        "and vectors), `geometry` (modality gap, hubness, alignment, uniformity, a threshold for `no such clip`).",
        legacy_default=[],
    )
    batch_size: int = config_field(64, "Number of items or captions encoded at once.", ge=1, affects="run")
    pair_batch_size: int = config_field(
        4096, "Number of pairs scored at once by heads that score pairs.", ge=1, affects="run"
    )
    zero_shot: ZeroShot | None = config_field(
        None,
        "Also measure zero-shot classification of labelled images, after each epoch and for the final model.",
        affects="run",
    )

    @field_validator("settings", "directions", "order", "transductive", "probes")
    @classmethod
    def _once(cls, names: list[str]) -> list[str]:
        return require_unique(names)


# ---- Zero-shot classification of labelled images -------------------------------------------------------------------


class ZeroShot(ConfigModel, affects="run"):
    """Zero-shot classification: labelled images, and the prompts of their classes.

    >>> ZeroShot(folder="cifar", templates=["a photo of a {class}", "a drawing of a {class}"]).data
    'cifar10'
    """

    data: Literal["cifar10"] = config_field("cifar10", "CIFAR-10's 10,000 test images, in its binary version.")
    folder: str = required_field("Folder with `test_batch.bin`, or with the unpacked folder `cifar-10-batches-bin/`.")
    sha256: str | None = config_field(
        None,
        "SHA-256 that the file must have; none: any file, whose SHA-256 is then stored with the results.",
        pattern=r"^[0-9a-fA-F]{64}$",
        affects="nothing",
    )
    templates: Literal["simple", "openai"] | list[str] = config_field(
        ["a photo of a {class}"],
        "Prompts of each class, whose vectors are averaged: texts with `{class}`, or open_clip's 7 `simple` or 80 "
        "`openai` templates for ImageNet.",
    )
    validation_images: int | None = config_field(
        None,
        "Number of images for the column `zs_cifar10` of `history.csv` at every validation, equally many of each "
        "class; none: all, 0: no such column. The final result of each run always uses all images.",
        ge=0,
    )

    @field_validator("templates")
    @classmethod
    def _name_the_class(cls, templates: str | list[str]) -> str | list[str]:
        if isinstance(templates, list):
            if not templates:
                raise ValueError("at least one text with {class} is needed, or simple, or openai")
            for text in templates:
                if text.count("{class}") != 1:
                    raise ValueError(f"{text!r} must contain {{class}} exactly once")
            require_unique(templates)
        return templates
