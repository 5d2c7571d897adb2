"""Models of open_clip: an architecture with published or local weights, a local folder, or a name on the hub.

Each model gets what it was trained with: its own tokenizer and context length, pooling, input size, mean, standard
deviation and resizing. Scale and bias of the logits are left out, since they change no rank. ``check`` loads and
fetches nothing.

What goes wrong without an error, and is therefore checked: a weights file does not state how its pictures were prepared
(mean 0.5 for SigLIP, CLIP's own otherwise) nor whether it was trained with QuickGELU or GELU.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from rewind import optional_packages
from rewind.config.base import SEED_BOUNDS, ConfigModel, config_field, read_options
from rewind.config.encoders import LOCAL_PREFIX, Encoding
from rewind.data.tokenizers import count_truncated
from rewind.encoders import base, padding
from rewind.encoders.base import Encoder, EncoderOutput, local_model_folder
from rewind.encoders.caption_text import prepare_captions
from rewind.encoders.frames import (
    FRAMES_AVERAGED_NOTE,
    batched,
    default_device,
    mean_frame_features,
    stack_in_threads,
    to_numpy,
    to_pil_images,
    torch_dtype,
)
from rewind.errors import RewindError
from rewind.io.files import read_json, require_regular_file
from rewind.models.backbone import Backbone
from rewind.models.encoder_backbone import EncoderBackbone, UnknownTowers, probe_pixel_input
from rewind.models.weights import SHAPES_ONLY
from rewind.registry import ENCODERS

# ---- Options, and checks before the first job (nothing is loaded or fetched) ---------------------------------------

HUB_PREFIX = "hf-hub:"
CONFIG_FILE = "open_clip_config.json"
WEIGHT_PATTERNS = ("*.safetensors", "*.bin", "*.pth")
HUB_WEIGHT_FILES = ["open_clip_model.safetensors", "open_clip_pytorch_model.bin"]

PREPROCESS_FIELDS = ("mean", "std", "interpolation", "resize_mode")


class Preprocess(ConfigModel):
    """How a picture becomes a model's input, under open_clip's names."""

    mean: tuple[float, float, float] | None = config_field(None, "Mean of each colour.")
    std: tuple[float, float, float] | None = config_field(None, "Deviation of each colour.")
    interpolation: Literal["bicubic", "bilinear"] | None = config_field(None, "How pictures are resized.")
    resize_mode: Literal["shortest", "squash", "longest"] | None = config_field(
        None, "`shortest` side and centre crop, `squash` into a square, or `longest` side with a border."
    )


class Options(ConfigModel):
    """Options of the encoder `open_clip`."""

    pretrained: str | None = config_field(None, "open_clip's tag of published weights, or a local weights file.")
    preprocess: Preprocess | str | None = config_field(
        None, "With a weights file: how pictures are prepared, or the tag of published weights that states it."
    )
    quick_gelu: bool | None = config_field(
        None, "With a weights file: whether it was trained with QuickGELU, as OpenAI's, MetaCLIP's and DFN's are."
    )
    untrained: bool = config_field(False, "Random weights, as a control; the tables state it.")
    seed: int = config_field(0, "Seed of random weights.", **SEED_BOUNDS)


def check(encoding: Encoding) -> None:
    """Refuse what is known to fail; nothing is fetched.

    Raises:
        RewindError: for an unknown architecture or tag, a missing file, folder or package, or weights whose activation
            or preprocessing is not stated.
    """
    options = read_open_clip_options(encoding)
    if encoding.frames == "model":
        raise RewindError("frames: model: open_clip's models see single pictures; set frames: rewind.")
    if options.untrained and options.pretrained:
        raise RewindError("encoder_options.untrained: there are pretrained weights too; keep only one of them.")
    folder = local_model_folder(encoding)
    if folder is not None:
        _check_folder(encoding, options, folder)
    elif is_hub_name(encoding):
        _refuse_redundant_options(options, "a name on the hub")
        if not options.untrained:
            remedy = f"copy the folder here and give it as name: {LOCAL_PREFIX}FOLDER"
            base.require_cached_repository(encoding, hub_repository(encoding), HUB_WEIGHT_FILES, remedy)
    else:
        _check_architecture(encoding, options)


def read_open_clip_options(encoding: Encoding) -> Options:
    """The validated ``encoder_options``."""
    return read_options(Options, encoding.encoder_options, "encoder_options", "open_clip")


def is_hub_name(encoding: Encoding) -> bool:
    """Whether ``name`` is a repository on the hub."""
    return encoding.name.startswith(HUB_PREFIX) or "/" in encoding.name


def hub_repository(encoding: Encoding) -> str:
    """``owner/name`` on the hub."""
    return encoding.name.removeprefix(HUB_PREFIX)


def _check_folder(encoding: Encoding, options: Options, folder: Path) -> None:
    _refuse_redundant_options(options, "a local folder")
    if encoding.revision:
        raise RewindError("revision: a local folder has none; remove the key.")
    require_regular_file(folder / CONFIG_FILE, missing_ok=True)
    if not (folder / CONFIG_FILE).is_file():
        raise RewindError(
            f"name: {folder}/{CONFIG_FILE}: no such file. Copy it from the model's page on the hub, next to its "
            "weights."
        )
    content = read_json(folder / CONFIG_FILE)
    if not isinstance(content, dict) or "model_cfg" not in content:
        raise RewindError(
            f"name: {folder}/{CONFIG_FILE}: has no model_cfg; copy the file from the model's page on the hub."
        )
    if not options.untrained and not any(path for pattern in WEIGHT_PATTERNS for path in folder.glob(pattern)):
        raise RewindError(
            f"name: {folder}: has no weights (a file .safetensors, .bin or .pth); put them there, for example as "
            f"{HUB_WEIGHT_FILES[0]}."
        )
    text = content["model_cfg"].get("text_cfg", {})
    if text.get("hf_tokenizer_name") or text.get("hf_model_name"):
        base.require_package("transformers")
        patterns = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "*.model")
        if text.get("hf_tokenizer_name") and not any(path for name in patterns for path in folder.glob(name)):
            raise RewindError(
                f"name: {folder}: has no tokenizer; put tokenizer.json and tokenizer_config.json of "
                f"{text['hf_tokenizer_name']} there."
            )


def _refuse_redundant_options(options: Options, source: str) -> None:
    for name in ("pretrained", "quick_gelu"):
        if getattr(options, name) is not None:
            raise RewindError(f"encoder_options.{name}: {source} sets this itself; remove the key.")
    if isinstance(options.preprocess, str):
        raise RewindError(f"encoder_options.preprocess: {source} has no tags; give mean, std and the like.")


def _check_architecture(encoding: Encoding, options: Options) -> None:
    library, name = optional_packages.open_clip(), encoding.name
    models = library.list_models()
    if name not in models:
        near = difflib.get_close_matches(name, models, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has {len(models)}, for example ViT-B-16-SigLIP."
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
        raise RewindError(
            f"encoder_options.preprocess: {name} has no tag {options.preprocess!r}; tags: {_join_tags(tags)}."
        )
    _check_text(encoding)
    if options.pretrained in tags:
        _check_tag(encoding, options)
    elif options.pretrained is not None:
        _check_file(encoding, options, tags)


def _check_text(encoding: Encoding) -> None:
    """Refuse text towers and tokenizers of transformers whose package or files are missing."""
    text = optional_packages.open_clip().get_model_config(encoding.name)["text_cfg"]
    repositories = [text[name] for name in ("hf_tokenizer_name", "hf_model_name") if text.get(name)]
    if not repositories and "siglip" not in encoding.name.lower():
        return
    base.require_package("transformers")
    for source in dict.fromkeys(repositories):
        files = ["tokenizer_config.json", "tokenizer.json", "config.json"]
        remedy = f"copy the model with its tokenizer into a folder and give it as name: {LOCAL_PREFIX}FOLDER"
        base.require_cached_repository(encoding.model_copy(update={"revision": None}), source, files, remedy)


def _check_tag(encoding: Encoding, options: Options) -> None:
    library, name = optional_packages.open_clip(), encoding.name
    published = library.get_pretrained_cfg(name, options.pretrained)
    for key_name in ("preprocess", "quick_gelu"):
        if getattr(options, key_name) is not None:
            raise RewindError(f"encoder_options.{key_name}: a tag sets this itself; remove the key.")
    # open_clip only warns about an activation other than the one trained with; the numbers are then silently wrong.
    trained_with_quick = bool(published.get("quick_gelu"))
    other = f"{name}-quickgelu" if trained_with_quick else name.removesuffix("-quickgelu")
    if trained_with_quick != _uses_quick_gelu(name) and other in library.list_models():
        activation = "QuickGELU" if trained_with_quick else "GELU"
        raise RewindError(f"name: {options.pretrained} of {name} was trained with {activation}: take name: {other}.")
    hub_path = published.get("hf_hub", "")  # "owner/name/" or "owner/name/file"
    if hub_path:
        repository, file = os.path.split(hub_path)
        files = [f"{Path(file).stem}.safetensors", file] if file else HUB_WEIGHT_FILES
        remedy = "give the file itself as encoder_options.pretrained, with preprocess: " + str(options.pretrained)
        base.require_cached_repository(encoding, repository, files, remedy)


def _check_file(encoding: Encoding, options: Options, tags: list[str]) -> None:
    name, path = encoding.name, Path(str(options.pretrained))
    if not path.is_file():
        near = difflib.get_close_matches(path.name, tags, n=2, cutoff=0.4)
        hint = f" (did you mean {' or '.join(near)}?)" if near else ""
        raise RewindError(
            f"encoder_options.pretrained: {path}: neither a tag of {name}{hint} nor a file; tags: {_join_tags(tags)}. "
            "Put the weights there, or correct the key."
        )
    published = {tag: optional_packages.open_clip().get_pretrained_cfg(name, tag) for tag in tags}
    unlike_clip = [tag for tag in tags if published_preprocessing(published[tag]) != _default_preprocessing()]
    if options.preprocess is None and unlike_clip:
        tag = unlike_clip[0]
        fields = ", ".join(f"{field} {value}" for field, value in published_preprocessing(published[tag]).items())
        raise RewindError(
            f"encoder_options.preprocess: {path} does not state how its pictures were prepared, and published weights "
            f"of {name} differ from CLIP's ({tag}: {fields}); set preprocess to the tag that the file comes from "
            f"({_join_tags(tags)}), or to mean, std, interpolation and resize_mode."
        )
    if options.quick_gelu is None and not isinstance(options.preprocess, str) and not _uses_quick_gelu(name):
        with_quick_gelu = any(weights.get("quick_gelu") for weights in published.values())
        if with_quick_gelu or f"{name}-quickgelu" in optional_packages.open_clip().list_models():
            raise RewindError(
                f"encoder_options.quick_gelu: {path} does not state with which activation it was trained; set true for "
                "weights of OpenAI, MetaCLIP and DFN, false for those of open_clip."
            )


def _uses_quick_gelu(name: str) -> bool:
    return bool(optional_packages.open_clip().get_model_config(name).get("quick_gelu", False))


def published_preprocessing(published: dict[str, Any]) -> dict[str, Any]:
    """How published weights want pictures prepared: their own fields, and CLIP's for those they leave out."""
    stated = {name: published[name] for name in PREPROCESS_FIELDS if published.get(name) is not None}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in (_default_preprocessing() | stated).items()
    }


def _default_preprocessing() -> dict[str, Any]:
    default = optional_packages.open_clip("transform").PreprocessCfg()
    return {name: getattr(default, name) for name in PREPROCESS_FIELDS}


def _join_tags(tags: list[str]) -> str:
    return ", ".join(tags) or "none"


# ---- The encoder ---------------------------------------------------------------------------------------------------


def backbone(encoding: Encoding) -> Backbone:
    """The model's towers, which can be trained; while the workflow is read, of tensors without numbers."""
    check(encoding)
    if not SHAPES_ONLY.get():
        with torch.inference_mode(False):  # a model that is built in inference mode cannot be trained
            encoder = OpenClip(encoding)
            return OpenClipTowers(encoder.model.cpu(), encoder.tokenizer, encoder.preprocess, encoding)
    if is_hub_name(encoding) and local_model_folder(encoding) is None:
        return UnknownTowers()  # nothing is fetched here
    model = _load_model(encoding, read_open_clip_options(encoding), torch.device("meta"), with_weights=False).eval()
    return OpenClipTowers(model, None, image_transform(model), encoding)


@ENCODERS.register("open_clip", check=check, backbone=backbone)
def build(encoding: Encoding) -> OpenClip:
    """The encoder of the model that ``encoding`` names, with its weights."""
    check(encoding)
    return OpenClip(encoding)


class OpenClip(Encoder):
    """A model of open_clip; see :func:`build`."""

    packages = ("open-clip-torch", "timm", "transformers")

    def __init__(self, encoding: Encoding) -> None:
        self.size, self.type, self.device = encoding.batch_size, torch_dtype(encoding.precision), default_device()
        options = read_open_clip_options(encoding)
        remedy = "Look for a network, or for a broken or wrong file; a folder on this disk works without a network."
        self.model = base.load_pretrained(encoding, lambda: _load_model(encoding, options, self.device), remedy).eval()
        self.tokenizer, text = base.load_pretrained(encoding, lambda: _tokenizer(encoding), remedy)
        keys = dict(self.model.visual.preprocess_cfg)
        self.preprocess = image_transform(self.model)
        context = getattr(self.tokenizer, "context_length", None)
        self.facts = {"preprocess": keys, "context": context, "caption_text": text}
        self.notes = [FRAMES_AVERAGED_NOTE]
        if options.untrained:
            self.notes.append(f"random weights (seed {options.seed}), never trained")

    @torch.inference_mode()
    def encode_texts(self, texts: list[str]) -> EncoderOutput:
        parts = []
        for batch in batched(texts, self.size):
            parts.append(to_numpy(self.model.encode_text(self.tokenizer(batch).to(self.device), normalize=True)))
        return np.concatenate(parts)

    def cut(self, texts: list[str]) -> int | None:
        context = getattr(self.tokenizer, "context_length", None)
        if context is None:
            return None
        counts = _token_counts(self.tokenizer, texts)
        return None if counts is None else count_truncated(counts, context)

    def encode_clips(self, clips: list[np.ndarray]) -> EncoderOutput:
        return mean_frame_features(clips, self.encode_pictures, self.size)

    @torch.inference_mode()
    def encode_pictures(self, frames: list[np.ndarray]) -> np.ndarray:
        """Features (n, D) of pictures uint8 (H, W, 3)."""
        pixels = stack_in_threads(self.preprocess, to_pil_images(frames)).to(self.device, self.type)
        return to_numpy(self.model.encode_image(pixels, normalize=True))


def image_transform(model: Any) -> Any:
    """A model's own preprocessing of a Pillow image → (3, S, S)."""
    transform = optional_packages.open_clip("transform")
    return transform.image_transform_v2(transform.PreprocessCfg(**dict(model.visual.preprocess_cfg)), is_train=False)


class OpenClipTowers(EncoderBackbone):
    """The towers of a model of open_clip; see :func:`backbone`. The tokenizer is None while the workflow is read."""

    def __init__(self, model: Any, tokenizer: Any, preprocess: Any, encoding: Encoding) -> None:
        pixels = probe_pixel_input(lambda picture: preprocess(to_pil_images([picture])[0]), encoding.name)
        super().__init__(model, pixels, encoding.name)
        self._tokenizer = tokenizer
        self.max_words = getattr(tokenizer, "context_length", None)
        self.logit_scale = torch.nn.Parameter(model.logit_scale.detach().float().reshape(()).clone())
        self.find_towers()

    def tokenise(self, captions: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = self._tokenizer(captions)
        return tokens, torch.ones_like(tokens)  # the model finds the end of a caption itself

    def token_counts(self, captions: list[str]) -> list[int] | None:
        return _token_counts(self._tokenizer, captions)

    def text_vectors(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.model.encode_text(tokens)

    def picture_vectors(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.model.encode_image(pixels)

    def checkpoint_towers(self) -> None:
        self.model.set_grad_checkpointing()


def _load_model(encoding: Encoding, options: Options, device: torch.device, with_weights: bool = True) -> Any:
    """The model with its weights, and with the preprocessing that belongs to them."""
    source, preprocess = _model_source(encoding), _preprocess_override(encoding, options)
    with torch.random.fork_rng(devices=[]):  # random weights come from their own seed and leave the job's numbers alone
        torch.manual_seed(options.seed)
        return optional_packages.open_clip().create_model(
            source,
            pretrained=options.pretrained,
            load_weights=with_weights and not options.untrained,
            require_pretrained=with_weights and not options.untrained,
            precision=encoding.precision,
            device=device,
            force_quick_gelu=_force_quick_gelu(encoding, options),
            force_preprocess_cfg=preprocess,
            pretrained_text=False,  # or a text tower of transformers would start from a language model's weights
        )


def _model_source(encoding: Encoding) -> str:
    """The model's name as open_clip takes it; a revision, which it does not take, is fetched into a folder first."""
    folder = local_model_folder(encoding)
    if folder is not None:
        return f"{LOCAL_PREFIX}{folder}"
    if not is_hub_name(encoding):
        return encoding.name
    if encoding.revision is None:
        return f"{HUB_PREFIX}{hub_repository(encoding)}"
    from huggingface_hub import snapshot_download

    return f"{LOCAL_PREFIX}{snapshot_download(hub_repository(encoding), revision=encoding.revision)}"


def _tokenizer(encoding: Encoding) -> tuple[Any, str]:
    """The model's tokenizer, and how it reads captions."""
    tokenizer = optional_packages.open_clip().get_tokenizer(_model_source(encoding))
    folder, family = local_model_folder(encoding), encoding.name
    if folder is not None:  # which may have any name
        family = read_json(folder / CONFIG_FILE)["model_cfg"].get("text_cfg", {}).get("hf_tokenizer_name") or ""
    return tokenizer, prepare_captions(family, tokenizer)


def _preprocess_override(encoding: Encoding, options: Options) -> dict[str, Any] | None:
    """Fields that replace the preprocessing which open_clip has for a model; None leaves it."""
    if isinstance(options.preprocess, str):
        return published_preprocessing(
            optional_packages.open_clip().get_pretrained_cfg(encoding.name, options.preprocess)
        )
    if options.preprocess is None:
        return None
    return {name: value for name, value in options.preprocess.model_dump().items() if value is not None}


def _force_quick_gelu(encoding: Encoding, options: Options) -> bool:
    """Whether to use QuickGELU although the architecture does not say so."""
    tag = options.preprocess if isinstance(options.preprocess, str) else options.pretrained
    published = optional_packages.open_clip().get_pretrained_cfg(encoding.name, tag) if tag else {}
    return bool(options.quick_gelu or published.get("quick_gelu"))


def _token_counts(tokenizer: Any, texts: list[str]) -> list[int] | None:
    """Tokens of each uncut text, according to one of open_clip's tokenizers; None if that is not known."""
    inner = getattr(tokenizer, "tokenizer", None)  # one of transformers
    if inner is not None and getattr(tokenizer, "tokenizer_mode", "") != "clips":
        return padding.token_counts(inner, texts)
    if hasattr(tokenizer, "sot_token_id"):
        return [len(tokenizer.encode(text)) + 2 for text in texts]  # + 2: the start and the end token
    return None
