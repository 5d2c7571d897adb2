"""The keys of zero-shot classification."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from rewind.study.keys import Keys, key, once, required


class ZeroShot(Keys):
    """Zero-shot classification: labelled images, and the prompts of their classes."""

    data: Literal["cifar10"] = key("cifar10", "CIFAR-10's 10,000 test images, in its binary version.")
    folder: str = required("Folder with `test_batch.bin`, or with the unpacked folder `cifar-10-batches-bin/`.")
    sha256: str | None = key(
        None,
        "SHA-256 that the file must have; none: any file, whose SHA-256 is then stored with the results.",
        pattern=r"^[0-9a-fA-F]{64}$",
    )
    templates: Literal["simple", "openai"] | list[str] = key(
        ["a photo of a {class}"],
        "Prompts of each class, whose vectors are averaged: texts with `{class}`, or open_clip's 7 `simple` or 80 "
        "`openai` templates for ImageNet.",
    )
    validation_images: int | None = key(
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
            once(templates)
        return templates
