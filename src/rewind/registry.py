"""Which code a short name of a study stands for: ``model: ridge``, ``objective: hnac``, ``sampler: topical``.

A short name is that of a module in the package of its kind. Where several models share one module,
:data:`HOOK_CLASSES` says which class of the module has the hooks of each. A name with a dot is the user's own: a
module, or an attribute of one. Nothing is imported here, so that the workflow can ask while its rules are read.
"""

from __future__ import annotations

from collections.abc import Mapping

MODELS, LOSSES, SAMPLERS, ENCODERS = "rewind.models", "rewind.losses", "rewind.training.samplers", "rewind.encoders"

# Package → short name → `module:class`, for names that are not the name of a module.
HOOK_CLASSES: Mapping[str, Mapping[str, str]] = {
    MODELS: {
        "bow": "rewind.models.baselines:BowHooks",
        "chance": "rewind.models.baselines:ChanceHooks",
        "clip_zero_shot": "rewind.models.zero_shot:ClipZeroShotHooks",
        "miniclip": "rewind.models.miniclip:MiniClipHooks",
        "miniclip_towers": "rewind.models.miniclip:MiniClipTowersHooks",
        "pixels": "rewind.models.baselines:PixelHooks",
        "ridge": "rewind.models.baselines:RidgeHooks",
        "scores": "rewind.models.precomputed:ScoreHooks",
        "vectors": "rewind.models.precomputed:VectorHooks",
        "zero_shot": "rewind.models.zero_shot:ZeroShotHooks",
    },
}


def full_name(package: str, name: str) -> str:
    """``module`` or ``module:class`` of a built-in name; a dotted path of the user's own as it is.

    Args:
        package: the kind, one of the packages above.
        name: as the study writes it.

    >>> full_name(LOSSES, "hnac")
    'rewind.losses.hnac'
    >>> full_name(MODELS, "ridge")
    'rewind.models.baselines:RidgeHooks'
    >>> full_name(MODELS, "my_package.model")
    'my_package.model'
    """
    if "." in name:
        return name
    return HOOK_CLASSES.get(package, {}).get(name, f"{package}.{name}")
