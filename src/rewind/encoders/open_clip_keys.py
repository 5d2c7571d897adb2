"""Keys of open_clip's models, and what is refused before the first job: nothing is loaded or fetched here."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any, Literal

from rewind import compat
from rewind.encoders import hub
from rewind.encoders.interface import local_folder
from rewind.errors import RewindError
from rewind.files import read_json
from rewind.study.encoding import LOCAL, Encoding
from rewind.study.keys import SEEDS, Keys, key, read_options

HUB = "hf-hub:"
CONFIG = "open_clip_config.json"
WEIGHTS = ("*.safetensors", "*.bin", "*.pth")
HUB_WEIGHTS = ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]

IMAGE_KEYS = ("mean", "std", "interpolation", "resize_mode")


class Preprocess(Keys):
    """How a picture becomes a model's input, in open_clip's words."""

    mean: tuple[float, float, float] | None = key(None, "Mean of each colour.")
    std: tuple[float, float, float] | None = key(None, "Deviation of each colour.")
    interpolation: Literal["bicubic", "bilinear"] | None = key(None, "How pictures are resized.")
    resize_mode: Literal["shortest", "squash", "longest"] | None = key(
        None, "`shortest` side and centre crop, `squash` into a square, or `longest` side with a border."
    )


class Options(Keys):
    """Options of the encoder `open_clip`."""

    pretrained: str | None = key(None, "open_clip's tag of published weights, or a local weights file.")
    preprocess: Preprocess | str | None = key(
        None, "With a weights file: how pictures are prepared, or the tag of published weights that says it."
    )
    quick_gelu: bool | None = key(
        None, "With a weights file: whether it was trained with QuickGELU, as OpenAI's, MetaCLIP's and DFN's are."
    )
    untrained: bool = key(False, "Random weights, as a control; the tables say so.")
    seed: int = key(0, "Seed of random weights.", **SEEDS)


def check(encoding: Encoding) -> None:
    """Refuse what is known to fail; nothing is fetched.

    Raises:
        RewindError: for an unknown architecture or tag, an absent file or folder or package, weights whose activation
            or preprocessing nobody said.
    """
    options = options_of(encoding)
    if encoding.frames == "model":
        raise RewindError("frames: model: open_clip's models see single pictures; set frames: rewind.")
    if options.untrained and options.pretrained:
        raise RewindError("encoder_options.untrained: there are pretrained weights too; keep one of both.")
    folder = local_folder(encoding)
    if folder is not None:
        _check_folder(encoding, options, folder)
    elif on_hub(encoding):
        _no_pretrained(options, "a name on the hub")
        if not options.untrained:
            remedy = f"copy the folder here and give it as name: {LOCAL}FOLDER"
            hub.check_cached(encoding, repository(encoding), HUB_WEIGHTS, remedy)
    else:
        _check_architecture(encoding, options)


def options_of(encoding: Encoding) -> Options:
    """The checked ``encoder_options``."""
    return read_options(Options, encoding.encoder_options, "encoder_options", "open_clip")


def on_hub(encoding: Encoding) -> bool:
    """Whether ``name`` is a repository of the hub."""
    return encoding.name.startswith(HUB) or "/" in encoding.name


def repository(encoding: Encoding) -> str:
    """``owner/name`` on the hub."""
    return encoding.name.removeprefix(HUB)


def _check_folder(encoding: Encoding, options: Options, folder: Path) -> None:
    _no_pretrained(options, "a local folder")
    if encoding.revision:
        raise RewindError("revision: a local folder has none; remove the key.")
    if not (folder / CONFIG).is_file():
        raise RewindError(
            f"name: {folder}/{CONFIG}: no such file. Copy it from the model's page on the hub, beside its weights."
        )
    content = read_json(folder / CONFIG)
    if not isinstance(content, dict) or "model_cfg" not in content:
        raise RewindError(f"name: {folder}/{CONFIG}: has no model_cfg; copy the file from the model's page on the hub.")
    if not options.untrained and not any(found for pattern in WEIGHTS for found in folder.glob(pattern)):
        raise RewindError(
            f"name: {folder}: has no weights (a file .safetensors, .bin or .pth); put them there, for example as "
            f"{HUB_WEIGHTS[0]}."
        )
    text = content["model_cfg"].get("text_cfg", {})
    if text.get("hf_tokenizer_name") or text.get("hf_model_name"):
        hub.package("transformers")
        tokens = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "*.model")
        if text.get("hf_tokenizer_name") and not any(found for name in tokens for found in folder.glob(name)):
            raise RewindError(
                f"name: {folder}: has no tokenizer; put tokenizer.json and tokenizer_config.json of "
                f"{text['hf_tokenizer_name']} there."
            )


def _no_pretrained(options: Options, source: str) -> None:
    for name in ("pretrained", "quick_gelu"):
        if getattr(options, name) is not None:
            raise RewindError(f"encoder_options.{name}: {source} says this itself; remove the key.")
    if isinstance(options.preprocess, str):
        raise RewindError(f"encoder_options.preprocess: {source} has no tags; give mean, std and the like.")


def _check_architecture(encoding: Encoding, options: Options) -> None:
    library, name = compat.open_clip(), encoding.name
    known = library.list_models()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has {len(known)}, for example ViT-B-16-SigLIP."
        raise RewindError(f"name: {name}: neither an architecture of open_clip nor a folder; {hint}")
    if encoding.revision:
        raise RewindError(
            "revision: weights that open_clip publishes under a tag have none; name the model's repository instead "
            "(name: hf-hub:OWNER/NAME)."
        )
    tags = library.list_pretrained_tags_by_model(name)
    if options.pretrained is None and not options.untrained:
        shown = f"its tags: {', '.join(tags)}" if tags else "it has no tags, so name a weights file"
        raise RewindError(f"encoder_options.pretrained: name the weights of {name} ({shown}), or set untrained: true.")
    if isinstance(options.preprocess, str) and options.preprocess not in tags:
        raise RewindError(f"encoder_options.preprocess: {name} has no tag {options.preprocess!r}; tags: {_list(tags)}.")
    _check_text(encoding)
    if options.pretrained in tags:
        _check_tag(encoding, options)
    elif options.pretrained is not None:
        _check_file(encoding, options, tags)


def _check_text(encoding: Encoding) -> None:
    """Text towers and tokenizers that come from another library, and from the hub."""
    text = compat.open_clip().get_model_config(encoding.name)["text_cfg"]
    named = [text[name] for name in ("hf_tokenizer_name", "hf_model_name") if text.get(name)]
    if not named and "siglip" not in encoding.name.lower():
        return
    hub.package("transformers")
    for source in dict.fromkeys(named):
        files = ["tokenizer_config.json", "tokenizer.json", "config.json"]
        remedy = f"copy the model with its tokenizer into a folder and give it as name: {LOCAL}FOLDER"
        hub.check_cached(encoding.model_copy(update={"revision": None}), source, files, remedy)


def _check_tag(encoding: Encoding, options: Options) -> None:
    library, name = compat.open_clip(), encoding.name
    published = library.get_pretrained_cfg(name, options.pretrained)
    for key_name in ("preprocess", "quick_gelu"):
        if getattr(options, key_name) is not None:
            raise RewindError(f"encoder_options.{key_name}: a tag says this itself; remove the key.")
    trained = bool(published.get("quick_gelu"))
    other = f"{name}-quickgelu" if trained else name.removesuffix("-quickgelu")
    if trained != _quick(name) and other in library.list_models():
        activation = "QuickGELU" if trained else "GELU"
        raise RewindError(f"name: {options.pretrained} of {name} was trained with {activation}: take name: {other}.")
    place = published.get("hf_hub", "")
    if place:
        owner, file = os.path.split(place)
        files = [f"{Path(file).stem}.safetensors", file] if file else HUB_WEIGHTS
        remedy = "give the file itself as encoder_options.pretrained, with preprocess: " + str(options.pretrained)
        hub.check_cached(encoding, owner, files, remedy)


def _check_file(encoding: Encoding, options: Options, tags: list[str]) -> None:
    name, path = encoding.name, Path(str(options.pretrained))
    if not path.is_file():
        near = difflib.get_close_matches(path.name, tags, n=2, cutoff=0.4)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise RewindError(
            f"encoder_options.pretrained: {path}: neither a tag of {name}{hint} nor a file; tags: {_list(tags)}. Put "
            "the weights there, or correct the key."
        )
    published = {tag: compat.open_clip().get_pretrained_cfg(name, tag) for tag in tags}
    other = [tag for tag in tags if image_keys(published[tag]) != _clip()]
    if options.preprocess is None and other:
        shown = ", ".join(f"{key_name} {value}" for key_name, value in image_keys(published[other[0]]).items())
        raise RewindError(
            f"encoder_options.preprocess: {path} does not say how its pictures were prepared, and published weights of "
            f"{name} differ from CLIP's ({other[0]}: {shown}); set preprocess to the tag that the file comes from "
            f"({_list(tags)}), or to mean, std, interpolation and resize_mode."
        )
    if options.quick_gelu is None and not isinstance(options.preprocess, str) and not _quick(name):
        trained = {bool(one.get("quick_gelu")) for one in published.values()}
        if True in trained or f"{name}-quickgelu" in compat.open_clip().list_models():
            raise RewindError(
                f"encoder_options.quick_gelu: {path} does not say with which activation it was trained; set true for "
                "weights of OpenAI, MetaCLIP and DFN, false for those of open_clip."
            )


def _quick(name: str) -> bool:
    return bool(compat.open_clip().get_model_config(name).get("quick_gelu", False))


def image_keys(published: dict[str, Any]) -> dict[str, Any]:
    """What published weights say of pictures, completed with CLIP's."""
    given = {name: published[name] for name in IMAGE_KEYS if published.get(name) is not None}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in (_clip() | given).items()}


def _clip() -> dict[str, Any]:
    default = compat.open_clip("transform").PreprocessCfg()
    return {name: getattr(default, name) for name in IMAGE_KEYS}


def _list(tags: list[str]) -> str:
    return ", ".join(tags) or "none"
