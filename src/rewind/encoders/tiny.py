"""Tiny models with random weights, written as folders, to try the encoders without a download.

``python -m rewind.encoders.tiny FOLDER`` writes ``open_clip`` (for the encoder `open_clip`), ``clip`` (for
`sentence_transformers` and `transformers`), ``siglip``, ``xclip`` and ``videoprism`` (for `transformers`; the last two
see the order of frames), and ``qwen3_vl`` (for `video_llm`). Their retrieval is at chance.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rewind import optional_packages
from rewind.io.files import write_json, write_text

IMAGE_SIZE = 32  # pixels
WIDTH = 32
FRAMES = 8  # of a clip, that models of clips see
CLIP_CONTEXT, SIGLIP_CONTEXT = 77, 128  # tokens of a caption; a letter is one, so SigLIP's own 64 cut many captions
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
TEXT_CONFIG = {"context_length": 32, "vocab_size": 49408, "width": WIDTH, "heads": 2, "layers": 2}
VISION_CONFIG = {"image_size": IMAGE_SIZE, "layers": 2, "width": WIDTH, "head_width": 16, "patch_size": 8}
PREPROCESS_CONFIG = {"mean": [0.5] * 3, "std": [0.25] * 3, "interpolation": "bilinear", "resize_mode": "squash"}


def write_open_clip(folder: Path, seed: int = 0, image_size: int = IMAGE_SIZE, resize_mode: str = "squash") -> Path:
    """Write a folder as open_clip publishes models: configuration, its own preprocessing, weights.

    Args:
        image_size: side of its pictures in pixels, which are cut into at most 8 × 8 patches.
        resize_mode: how its pictures become square, ``squash`` or ``shortest``, as open_clip calls it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    vision = VISION_CONFIG
    if image_size != IMAGE_SIZE:
        patch = next(size for size in range(-(-image_size // 8), image_size + 1) if image_size % size == 0)
        vision = VISION_CONFIG | {"image_size": image_size, "patch_size": patch}
    config = {"embed_dim": WIDTH, "vision_cfg": vision, "text_cfg": TEXT_CONFIG}
    torch.manual_seed(seed)
    model = optional_packages.open_clip("model").CLIP(**config)
    torch.save(model.state_dict(), folder / "open_clip_pytorch_model.bin")
    preprocess = PREPROCESS_CONFIG | {"resize_mode": resize_mode}
    write_json(folder / "open_clip_config.json", {"model_cfg": config, "preprocess_cfg": preprocess})
    return folder


@dataclass(frozen=True)
class Size:
    """Sizes of a model of transformers; all but the defaults are for stand-ins and benchmarks.

    >>> Size(image=224, patch=32).vision()["image_size"]
    224
    """

    width: int = WIDTH
    layers: int = 2
    image: int = IMAGE_SIZE
    patch: int = 8
    frames: int = FRAMES

    def tower(self) -> dict[str, int]:
        """Keys of a text tower."""
        heads = max(2, self.width // 64)
        shape = {"hidden_size": self.width, "intermediate_size": 2 * self.width, "num_attention_heads": heads}
        return shape | {"num_hidden_layers": self.layers, "projection_dim": self.width}

    def vision(self) -> dict[str, int]:
        """Keys of a visual tower."""
        return self.tower() | {"image_size": self.image, "patch_size": self.patch}

    @property
    def square(self) -> dict[str, int]:
        """The size of an image processor."""
        return {"height": self.image, "width": self.image}


def write_transformers(folder: Path, kind: str, seed: int = 0, size: Size = Size()) -> Path:
    """Write a folder as ``save_pretrained`` does, with a model whose tokens are letters.

    Args:
        kind: ``clip``, ``siglip``, or of clips, whose frames are encoded together, ``xclip`` or ``videoprism``; or a
            language model that sees clips, ``qwen3_vl``.
    """
    torch.manual_seed(seed)
    library = optional_packages.transformers()
    model, processor = _WRITERS[kind](folder, library, size)
    processor.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


def _clip(folder: Path, library: Any, size: Size) -> tuple[Any, Any]:
    tokenizer = _letters_of_clip(folder, library)
    config = library.CLIPConfig(
        text_config=_text_of_clip(tokenizer, size), vision_config=size.vision(), projection_dim=size.width
    )
    image = library.CLIPImageProcessor(size={"shortest_edge": size.image}, crop_size=size.square)
    return library.CLIPModel(config), library.CLIPProcessor(image, tokenizer)


def _xclip(folder: Path, library: Any, size: Size) -> tuple[Any, Any]:
    tokenizer = _letters_of_clip(folder, library)
    frames = {"mit_hidden_size": size.width, "mit_intermediate_size": 2 * size.width, "num_frames": size.frames}
    frames |= {"mit_num_hidden_layers": 1, "mit_num_attention_heads": 2}
    config = library.XCLIPConfig(
        text_config=_text_of_clip(tokenizer, size), vision_config=size.vision() | frames, projection_dim=size.width
    )
    image = library.VideoMAEImageProcessor(size={"shortest_edge": size.image}, crop_size=size.square)
    return library.XCLIPModel(config), library.XCLIPProcessor(image, tokenizer)


def _siglip(folder: Path, library: Any, size: Size) -> tuple[Any, Any]:
    tokenizer = _sentence_piece_letters(library)
    config = library.SiglipConfig(text_config=_text_of_siglip(tokenizer, size), vision_config=size.vision())
    processor = library.SiglipProcessor(library.SiglipImageProcessor(size=size.square), tokenizer)
    model = library.SiglipModel(config)
    model.logit_scale.data.fill_(math.log(10))  # as SigLIP starts; the library leaves it at 1
    return model, processor


def _videoprism(folder: Path, library: Any, size: Size) -> tuple[Any, Any]:
    tokenizer = _sentence_piece_letters(library)
    layers = {f"num_{name}_layers": size.layers for name in ("spatial", "temporal", "auxiliary")}
    vision = size.vision() | layers | {"num_frames": size.frames, "tubelet_size": [1, size.patch, size.patch]}
    config = library.VideoPrismConfig(text_config=_text_of_siglip(tokenizer, size), vision_config=vision)
    video = library.LlavaOnevisionVideoProcessor(size=size.square)
    return library.VideoPrismClipModel(config), library.VideoPrismProcessor(video, tokenizer)


_QWEN_WORDS = ["<|endoftext|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
_QWEN_CHAT = (
    "{% for message in messages %}{{ message.role }}: {% for part in message.content %}{% if part.type == 'text' %}"
    "{{ part.text }}{% else %}<|vision_start|><|{{ part.type }}_pad|><|vision_end|>{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)


def _qwen3_vl(folder: Path, library: Any, size: Size) -> tuple[Any, Any]:
    tokenizer = _bytes(library)
    ids = tokenizer.convert_tokens_to_ids(_QWEN_WORDS)
    heads = 4
    each = size.width // heads
    # Parts of a head's half that turn with time, height and width.
    rope = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [each // 2 - 2 * (each // 8), each // 8, each // 8],
    }
    common = {"hidden_size": size.width, "intermediate_size": 2 * size.width}
    text: dict[str, Any] = {**common, "vocab_size": len(tokenizer), "num_hidden_layers": size.layers}
    text |= {"num_attention_heads": heads}
    text |= {"num_key_value_heads": heads // 2, "head_dim": each, "rope_parameters": rope, "tie_word_embeddings": False}
    text |= {"pad_token_id": ids[0], "bos_token_id": None, "eos_token_id": ids[1]}
    vision: dict[str, Any] = {**common, "depth": size.layers, "num_heads": heads, "patch_size": size.patch}
    vision |= {"out_hidden_size": size.width, "num_position_embeddings": 16, "deepstack_visual_indexes": [0]}
    places = dict(zip(("vision_start", "vision_end", "image", "video"), ids[2:], strict=True))
    config = library.Qwen3VLConfig(
        text_config=text, vision_config=vision, **{f"{name}_token_id": number for name, number in places.items()}
    )
    patches = {"patch_size": size.patch, "merge_size": 2, "size": {"shortest_edge": 256, "longest_edge": 10**6}}
    video = library.Qwen3VLVideoProcessor(**patches, do_sample_frames=False, cap_pixels_per_frame=False)
    images = library.Qwen2VLImageProcessor(**patches)
    processor = library.Qwen3VLProcessor(images, tokenizer, video, chat_template=_QWEN_CHAT)
    return library.AutoModelForImageTextToText.from_config(config), processor


def _bytes(library: Any) -> Any:
    """A tokenizer of Qwen's kind whose words are bytes, and Yes and No."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_special_tokens(_QWEN_WORDS)
    inner.add_tokens(["Yes", "No"])  # published models have each as one token
    ends = {"pad_token": _QWEN_WORDS[0], "eos_token": _QWEN_WORDS[1]}
    return library.PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=_QWEN_CHAT, **ends)


_WRITERS: Mapping[str, Callable[[Path, Any, Size], tuple[Any, Any]]] = {
    "clip": _clip,
    "xclip": _xclip,
    "siglip": _siglip,
    "videoprism": _videoprism,
    "qwen3_vl": _qwen3_vl,
}


def _text_of_clip(tokenizer: Any, size: Size) -> dict[str, Any]:
    text = size.tower() | {"vocab_size": len(tokenizer), "max_position_embeddings": CLIP_CONTEXT}
    # CLIP pools at the end token, whose id it reads from the configuration.
    return text | {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}


def _text_of_siglip(tokenizer: Any, size: Size) -> dict[str, Any]:
    text = size.tower() | {"vocab_size": len(tokenizer), "max_position_embeddings": SIGLIP_CONTEXT}
    ends = {"bos_token_id": tokenizer.eos_token_id, "eos_token_id": tokenizer.eos_token_id}
    return text | ends | {"pad_token_id": tokenizer.pad_token_id, "projection_size": size.width}


def _letters_of_clip(folder: Path, library: Any) -> Any:
    """CLIP's tokenizer with only letters as its vocabulary: it has no merges, so no vocabulary must be fetched."""
    words = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS)]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "vocab.json", {word: index for index, word in enumerate(words)})
    write_text(folder / "merges.txt", "#version: 0.2\n")
    return library.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=CLIP_CONTEXT)


def _sentence_piece_letters(library: Any) -> Any:
    """A tokenizer of SigLIP's kind with only letters as its vocabulary; like SigLIP's, it gives no mask."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["<pad>", "</s>", "<unk>", *LETTERS, "▁"]
    inner = Tokenizer(models.Unigram([(word, -1.0) for word in words], unk_id=words.index("<unk>")))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", words.index("</s>"))]
    )
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return library.PreTrainedTokenizerFast(
        tokenizer_object=inner, model_max_length=SIGLIP_CONTEXT, model_input_names=["input_ids"], **names
    )


def main(folder: Path) -> None:
    """Write all models, except those that are there already."""
    if not (folder / "open_clip").is_dir():
        write_open_clip(folder / "open_clip")
    for kind in _WRITERS:
        if not (folder / kind).is_dir():
            write_transformers(folder / kind, kind)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
