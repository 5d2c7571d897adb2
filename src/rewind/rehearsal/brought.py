"""What a rehearsal does about models that are files, or that are named."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rewind.study.brought import BROUGHT, FILES
from rewind.study.encoding import SCORING, Encoding

Keys = dict[str, Any]
STAND_IN = "rewind.rehearsal.random_encoder"


def rehearsed(keys: Keys, name: str, study: str, real: bool, notes: list[str]) -> Keys:
    """Options of a method as rehearsed: the user's own where they can be, else those of a stand-in.

    Args:
        keys: of the whole study, its methods included, with paths of existing files made absolute.
        name: the method.
        study: the study's name.
        real: whether items of the user's own data set are taken: its vectors then fit.
        notes: takes a sentence for each stand-in.
    """
    method = keys["methods"][name]
    options = method["options"]
    if method["model"] not in BROUGHT:
        return options
    if "encoder" in options:
        return _encoder(options, name, notes)
    here = f"results/{study}/"
    files = [path for option in FILES[method["model"]] for path in _paths(options.get(option))]
    if all(path.startswith(here) or (real and Path(path).is_file()) for path in files):
        return _of_seeds(options, method["seeds"])
    if method["model"] == "vectors":
        notes.append(f"methods.{name}: random vectors stand in for your files")
        return {"encoder": STAND_IN, "name": "random"} | {k: v for k, v in options.items() if k == "score"}
    others = [other for other, block in keys["methods"].items() if block["model"] != "scores"]
    seed = (keys["methods"][others[0]]["seeds"] or keys["seeds"])[0] if others else 0
    notes.append(f"methods.{name}: scores of another method stand in for your file")
    return {"file": f"{here}similarity/{others[0]}/seed{seed}.npz"} if others else options


def _encoder(options: Keys, name: str, notes: list[str]) -> Keys:
    given = {key: value for key, value in options.items() if key not in SCORING}
    if Encoding(**given).local() is not None or options["encoder"] == STAND_IN:
        return {key: value for key, value in options.items() if key not in ("captions", "items")}
    notes.append(f"methods.{name}: random vectors stand in for {options['encoder']} {options['name']}")
    frames = {key: options[key] for key in ("max_frames", "sampling", "rate", "score") if key in options}
    return {"encoder": STAND_IN, "name": options["name"]} | frames


def _of_seeds(options: Keys, seeds: list[int]) -> Keys:
    """Files of the seeds that are rehearsed."""
    wanted = {str(seed) for seed in seeds or []}
    return {
        key: {seed: path for seed, path in value.items() if str(seed) in wanted}
        if isinstance(value, Mapping)
        else value
        for key, value in options.items()
    }


def _paths(value: Any) -> list[str]:
    return [str(path) for path in value.values()] if isinstance(value, Mapping) else [str(value)]
