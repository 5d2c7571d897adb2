"""Weights that open_clip publishes under a tag: checked before anything is fetched, then fetched once."""

from __future__ import annotations

from torch import Tensor

from rewind.compat import open_clip
from rewind.errors import RewindError
from rewind.files import raise_machine_fault
from rewind.models.architectures import other_pixels
from rewind.models.families import check_family
from rewind.packaged import page
from rewind.study import Backbone as BackboneKeys


def check_tag(keys: BackboneKeys, quick_gelu: bool) -> None:
    """Refuse a tag whose weights would be computed otherwise than they were trained; no network is needed.

    Args:
        keys: ``architecture`` and ``pretrained``.
        quick_gelu: whether the architecture has QuickGELU.

    Raises:
        RewindError: for an unknown tag, another activation, or frames of another mean or deviation than CLIP's.
    """
    name, tag = keys.architecture, keys.pretrained
    tags = open_clip().list_pretrained_tags_by_model(name)
    if tag not in tags:
        known = (
            f"its tags: {', '.join(tags)}" if tags else "it has none; name an architecture of open_clip's, or a file"
        )
        raise RewindError(f"backbone.pretrained: open_clip knows no weights {tag!r} of {name}; {known}.")
    published = open_clip().get_pretrained_cfg(name, tag)
    family = "openai" if published.get("quick_gelu", False) else "open_clip"
    check_family(family, keys, quick_gelu, f"backbone.pretrained: {tag}")
    if reason := other_pixels(published):
        raise RewindError(f"backbone.pretrained: {tag} of {name}: {reason}.")


def fetch(keys: BackboneKeys, quick_gelu: bool) -> dict[str, Tensor]:
    """Tensors of the weights that ``keys.pretrained`` names.

    Raises:
        RewindError: for what :func:`check_tag` refuses, or if they cannot be fetched.
    """
    check_tag(keys, quick_gelu)
    name, tag = keys.architecture, keys.pretrained
    if open_clip().get_pretrained_cfg(name, tag).get("resize_mode") == "squash":
        print(f"backbone.pretrained: {tag} was trained on whole frames resized to squares; set frames.fit: stretch.")
    try:
        return open_clip().create_model(name, pretrained=tag, precision="fp32").state_dict()
    except Exception as error:  # network, proxy, disk: what is raised depends on the hub's client
        raise_machine_fault(error, f"{name}, {tag}")
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise RewindError(
            f"backbone.pretrained: {name}, {tag}: the weights could not be downloaded ({reason}). Without a "
            f"network, copy them here as a file and set backbone.weights instead; {page('rtime.md')} shows how."
        ) from error
