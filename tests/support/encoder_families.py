"""Every family of transformers with a space of texts and pictures, as folders of a few thousand random weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rewind import optional_packages

WIDTH, SIZE, CONTEXT = 16, 32, 24
TOWER = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION = TOWER | {"image_size": SIZE, "patch_size": 16, "projection_dim": WIDTH}
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
FRAMES = 4
CAPTIONS = [
    "a dog",
    "a red square moves to the left",
    "two circles",
    "a very long caption that goes on and on until no context is left",
    "cat",
    "the sun goes up over a hill",
    *(f"{'slowly ' * (n // 10)}a {word} turns" for n, word in enumerate(LETTERS)),
]
"""32 different captions, one longer than the context; those of eights are of different lengths."""


def clip_tokenizer(folder: Path) -> Any:
    """CLIP's way to cut words, with letters alone as its vocabulary."""
    words = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(f"{letter}</w>" for letter in LETTERS)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.json").write_text(json.dumps({word: place for place, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    library = optional_packages.transformers()
    return library.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=CONTEXT)


def bert_tokenizer(folder: Path) -> Any:
    """BERT's way to cut words, with letters alone as its vocabulary."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    return optional_packages.transformers().BertTokenizer(str(folder / "vocab.txt"), model_max_length=CONTEXT)


def unigram_tokenizer(special: list[str], prefix: bool, inputs: list[str] | None = None) -> Any:
    """A tokenizer of letters as SentencePiece makes them: of XLM-R (``prefix``: <s> … </s>) or T5 (… </s>)."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = [*special, *LETTERS, "▁"]
    inner = Tokenizer(models.Unigram([(word, -1.0) for word in words], unk_id=special.index("<unk>")))
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    ends = [(name, words.index(name)) for name in ("<s>", "</s>") if name in words]
    single = "<s> $A </s>" if prefix else "$A </s>"
    inner.post_processor = processors.TemplateProcessing(single=single, special_tokens=ends)
    more = {"model_input_names": inputs} if inputs else {}
    return optional_packages.transformers().PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_max_length=CONTEXT,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        bos_token="<s>" if prefix else None,
        **more,
    )


def of_clip() -> dict[str, Any]:
    """A text tower that reads :func:`clip_tokenizer`."""
    ids = {"vocab_size": 54, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}
    return TOWER | ids | {"max_position_embeddings": CONTEXT, "projection_dim": WIDTH}


def of_bert() -> dict[str, Any]:
    """A text tower that reads :func:`bert_tokenizer`."""
    ids = {"vocab_size": 57, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
    return TOWER | ids | {"max_position_embeddings": CONTEXT, "projection_dim": WIDTH}


XLM = ["<s>", "<pad>", "</s>", "<unk>"]
T5 = ["<pad>", "</s>", "<unk>"]


def of_xlm() -> dict[str, Any]:
    """A text tower that reads XLM-R's tokens, whose places begin behind that of padding."""
    ids = {"vocab_size": 31, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    return TOWER | ids | {"max_position_embeddings": CONTEXT + 2, "project_dim": WIDTH, "projection_dim": WIDTH}


def of_t5() -> dict[str, Any]:
    """A text tower that reads T5's tokens."""
    ids = {"vocab_size": 30, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    return TOWER | ids | {"max_position_embeddings": CONTEXT, "projection_dim": WIDTH, "projection_size": WIDTH}


def _image(name: str = "CLIPImageProcessor", **more: Any) -> Any:
    square = {"height": SIZE, "width": SIZE}
    return getattr(optional_packages.transformers(), name)(size=square, crop_size=square, **more)


def _saved(folder: Path, model: Any, processor: Any, seed: int = 0) -> Path:
    torch.manual_seed(seed)
    with torch.no_grad():  # weights as far from zero as trained ones are: scores then differ
        for name, value in model.named_parameters():
            if value.ndim >= 2 and "position" not in name:
                value.normal_(0, value.shape[-1] ** -0.5)
            elif value.ndim == 1 and name.endswith("bias"):
                value.normal_(0, 0.1)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def _clip_like(kind: str, config: str, model: str, image: str = "CLIPImageProcessor", **more: Any) -> Callable:
    def write(folder: Path) -> Path:
        library = optional_packages.transformers()
        made = getattr(library, config)(text_config=of_clip(), vision_config=VISION, projection_dim=WIDTH, **more)
        processor = library.CLIPProcessor if image == "CLIPImageProcessor" else getattr(library, f"{kind}Processor")
        return _saved(folder, getattr(library, model)(made), processor(_image(image), clip_tokenizer(folder)))

    return write


def siglip(folder: Path) -> Path:
    library = optional_packages.transformers()
    config = library.SiglipConfig(text_config=of_t5(), vision_config=VISION)
    tokenizer = unigram_tokenizer(T5, prefix=False, inputs=["input_ids"])
    return _saved(
        folder, library.SiglipModel(config), library.SiglipProcessor(_image("SiglipImageProcessor"), tokenizer)
    )


def siglip2(folder: Path) -> Path:
    library = optional_packages.transformers()
    vision = VISION | {"num_patches": 4}
    config = library.Siglip2Config(text_config=of_t5() | {"max_position_embeddings": 64}, vision_config=vision)
    image = library.Siglip2ImageProcessor(patch_size=16, max_num_patches=4)
    tokenizer = unigram_tokenizer(T5, prefix=False)
    return _saved(folder, library.Siglip2Model(config), library.Siglip2Processor(image, tokenizer))


def metaclip2(folder: Path) -> Path:
    library = optional_packages.transformers()
    config = library.MetaClip2Config(text_config=of_xlm(), vision_config=VISION, projection_dim=WIDTH)
    tokenizer = unigram_tokenizer(XLM, prefix=True)
    return _saved(folder, library.MetaClip2Model(config), library.CLIPProcessor(_image(), tokenizer))


def groupvit(folder: Path) -> Path:
    library = optional_packages.transformers()
    vision = VISION | {"depths": [1, 1, 1], "num_group_tokens": [4, 2, 0], "num_output_groups": [4, 2, 0]}
    made = {"projection_dim": WIDTH, "projection_intermediate_dim": WIDTH}
    config = library.GroupViTConfig(text_config=of_clip(), vision_config=vision | {"patch_size": 8}, **made)
    return _saved(folder, library.GroupViTModel(config), library.CLIPProcessor(_image(), clip_tokenizer(folder)))


def aimv2(folder: Path) -> Path:
    library = optional_packages.transformers()
    config = library.Aimv2Config(text_config=of_clip(), vision_config=VISION, projection_dim=WIDTH)
    return _saved(folder, library.Aimv2Model(config), library.CLIPProcessor(_image(), clip_tokenizer(folder)))


def chinese_clip(folder: Path) -> Path:
    library = optional_packages.transformers()
    config = library.ChineseCLIPConfig(text_config=of_bert(), vision_config=VISION, projection_dim=WIDTH)
    processor = library.ChineseCLIPProcessor(_image("ChineseCLIPImageProcessor"), bert_tokenizer(folder))
    return _saved(folder, library.ChineseCLIPModel(config), processor)


def altclip(folder: Path) -> Path:
    library = optional_packages.transformers()
    config = library.AltCLIPConfig(text_config=of_xlm(), vision_config=VISION, projection_dim=WIDTH)
    processor = library.AltCLIPProcessor(_image(), unigram_tokenizer(XLM, prefix=True))
    return _saved(folder, library.AltCLIPModel(config), processor)


def align(folder: Path) -> Path:
    library = optional_packages.transformers()
    vision = {"image_size": SIZE, "width_coefficient": 0.1, "depth_coefficient": 0.1, "hidden_dim": WIDTH}
    text = of_bert() | {"max_position_embeddings": 64}
    config = library.AlignConfig(text_config=text, vision_config=vision, projection_dim=2 * WIDTH)
    image = library.EfficientNetImageProcessor(size={"height": SIZE, "width": SIZE}, do_center_crop=False)
    processor = library.AlignProcessor(image, bert_tokenizer(folder))
    return _saved(folder, library.AlignModel(config), processor)


def blip(folder: Path) -> Path:
    library = optional_packages.transformers()
    text = of_bert() | {"encoder_hidden_size": WIDTH, "is_decoder": False}
    config = library.BlipConfig(text_config=text, vision_config=VISION, projection_dim=WIDTH)
    processor = library.BlipProcessor(_image("BlipImageProcessor"), bert_tokenizer(folder))
    return _saved(folder, library.BlipModel(config), processor)


def blip2(folder: Path) -> Path:
    library = optional_packages.transformers()
    former = TOWER | {"encoder_hidden_size": WIDTH, "vocab_size": 57}
    language = {"model_type": "opt", "hidden_size": WIDTH, "word_embed_proj_dim": WIDTH, "ffn_dim": 32}
    language |= {"num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 60, "max_position_embeddings": CONTEXT}
    config = library.Blip2Config(
        vision_config=VISION, qformer_config=former, text_config=language, num_query_tokens=2, image_token_index=57
    )
    processor = library.Blip2Processor(_image("BlipImageProcessor"), bert_tokenizer(folder), num_query_tokens=2)
    return _saved(folder, library.Blip2Model(config), processor)


def flava(folder: Path) -> Path:
    library = optional_packages.transformers()
    config = library.FlavaConfig(
        text_config=of_bert(), image_config=VISION, multimodal_config=TOWER, projection_dim=WIDTH, hidden_size=WIDTH
    )
    processor = library.FlavaProcessor(_image("FlavaImageProcessor"), bert_tokenizer(folder))
    return _saved(folder, library.FlavaModel(config), processor)


def dual_encoder(folder: Path) -> Path:
    library = optional_packages.transformers()
    config = library.VisionTextDualEncoderConfig.from_vision_text_configs(
        library.ViTConfig(**VISION), library.BertConfig(**of_bert()), projection_dim=WIDTH
    )
    processor = library.VisionTextDualEncoderProcessor(_image("ViTImageProcessor"), bert_tokenizer(folder))
    return _saved(folder, library.VisionTextDualEncoderModel(config), processor)


def tipsv2(folder: Path) -> Path:
    library = optional_packages.transformers()
    text = of_t5() | {"max_position_embeddings": 64}
    config = library.Tipsv2Config(text_config=text, vision_config=VISION)
    processor = library.Tipsv2Processor(_image("Tipsv2ImageProcessor"), unigram_tokenizer(T5, prefix=False))
    return _saved(folder, library.Tipsv2Model(config), processor)


def xclip(folder: Path) -> Path:
    library = optional_packages.transformers()
    frames = {"mit_hidden_size": WIDTH, "mit_intermediate_size": 32, "num_frames": FRAMES}
    frames |= {"mit_num_hidden_layers": 1, "mit_num_attention_heads": 2}
    prompts = {"prompt_layers": 1, "prompt_num_attention_heads": 2, "prompt_alpha": 1.0}
    config = library.XCLIPConfig(text_config=of_clip(), vision_config=VISION | frames, projection_dim=WIDTH, **prompts)
    processor = library.XCLIPProcessor(_image("VideoMAEImageProcessor"), clip_tokenizer(folder))
    return _saved(folder, library.XCLIPModel(config), processor)


def videoprism(folder: Path) -> Path:
    library = optional_packages.transformers()
    vision = VISION | {"num_spatial_layers": 1, "num_temporal_layers": 1, "num_auxiliary_layers": 1}
    vision |= {"num_frames": FRAMES, "tubelet_size": [1, 16, 16]}
    text = of_t5() | {"max_position_embeddings": 64}
    config = library.VideoPrismConfig(text_config=text, vision_config=vision)
    video = library.LlavaOnevisionVideoProcessor(size={"height": SIZE, "width": SIZE})
    processor = library.VideoPrismProcessor(video, unigram_tokenizer(T5, prefix=False))
    return _saved(folder, library.VideoPrismClipModel(config), processor)


FAMILIES: dict[str, Callable[[Path], Path]] = {
    "clip": _clip_like("CLIP", "CLIPConfig", "CLIPModel"),
    "clipseg": _clip_like("CLIPSeg", "CLIPSegConfig", "CLIPSegModel"),
    "owlvit": _clip_like("OwlViT", "OwlViTConfig", "OwlViTModel", "OwlViTImageProcessor"),
    "owlv2": _clip_like("Owlv2", "Owlv2Config", "Owlv2Model", "Owlv2ImageProcessor"),
    "siglip": siglip,
    "siglip2": siglip2,
    "metaclip2": metaclip2,
    "groupvit": groupvit,
    "aimv2": aimv2,
    "chinese_clip": chinese_clip,
    "altclip": altclip,
    "align": align,
    "blip": blip,
    "vision_text_dual_encoder": dual_encoder,
    "tipsv2": tipsv2,
    "xclip": xclip,
    "videoprism": videoprism,
    "blip2": blip2,
    "flava": flava,
}
