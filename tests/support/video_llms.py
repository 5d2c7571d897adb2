"""Tiny video language models of four families with random weights, as folders, and their scores by a plain loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from rewind import optional_packages
from rewind.encoders import tiny

TEXT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT |= {"num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": None}
LLAVA_CHAT = tiny._QWEN_CHAT.replace("<|vision_start|><|{{ part.type }}_pad|><|vision_end|>", "<video>\\n")
TEXT_FIRST_CHAT = (
    "{% for message in messages %}{% for part in message.content if part.type == 'text' %}{{ part.text }}{% endfor %}"
    "{% for part in message.content if part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>{% endfor %}"
    "{% endfor %}assistant: "
)


def qwen3_vl(folder: Path) -> Path:
    tiny.write_transformers(folder, "qwen3_vl")
    return folder


def qwen2_5_vl(folder: Path) -> Path:
    library = optional_packages.transformers()
    tokenizer = tiny._bytes(library)
    ids = tokenizer.convert_tokens_to_ids(tiny._QWEN_WORDS)
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "patch_size": 8}
    vision |= {"out_hidden_size": 32, "window_size": 32, "fullatt_block_indexes": [1]}
    places = dict(zip(("vision_start", "vision_end", "image", "video"), ids[2:], strict=True))
    config = library.Qwen2_5_VLConfig(
        text_config=TEXT | {"vocab_size": len(tokenizer), "eos_token_id": ids[1], "rope_parameters": rope},
        vision_config=vision,
        **{f"{name}_token_id": number for name, number in places.items()},
    )
    patches = {"patch_size": 8, "merge_size": 2, "size": {"shortest_edge": 256, "longest_edge": 10**6}}
    video = library.Qwen2VLVideoProcessor(**patches, do_sample_frames=False, cap_pixels_per_frame=False)
    images = library.Qwen2VLImageProcessor(**patches)
    processor = library.Qwen2_5_VLProcessor(images, tokenizer, video, chat_template=tiny._QWEN_CHAT)
    return _saved(folder, library, config, processor)


def _bytes(library: Any, words: list[str], **more: Any) -> tuple[Any, list[int]]:
    """A tokenizer of bytes with an answer in two spellings, and the numbers of its special words; two ends first."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer, inner.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    inner.add_special_tokens(words)
    inner.add_tokens(["Yes", "No", " no"])
    ends = {"pad_token": words[0], "eos_token": words[1]}
    tokenizer = library.PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=LLAVA_CHAT, **ends, **more)
    return tokenizer, tokenizer.convert_tokens_to_ids(words)


def internvl(folder: Path) -> Path:
    library, words = optional_packages.transformers(), ["<|endoftext|>", "<|im_end|>", "<img>", "</img>", "<context>"]
    special = ("start_image_token", "end_image_token", "context_image_token", "video_token")
    names = dict(zip(special, [*words[2:], "<video>"], strict=True))
    tokenizer, ids = _bytes(library, [*words, "<video>"], extra_special_tokens=names)
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = library.InternVLConfig(
        text_config=TEXT | {"model_type": "qwen2", "vocab_size": len(tokenizer), "eos_token_id": ids[1]},
        vision_config=vision | {"image_size": [32, 32], "patch_size": [8, 8]},
        image_token_id=ids[4],
        image_seq_length=4,  # 4 × 4 patches, joined by twos in either direction
    )
    side = {"size": {"height": 32, "width": 32}}
    images, video = library.GotOcr2ImageProcessor(**side), library.InternVLVideoProcessor(**side)
    processor = library.InternVLProcessor(images, tokenizer, video, image_seq_length=4, chat_template=LLAVA_CHAT)
    return _saved(folder, library, config, processor)


def llava_onevision(folder: Path) -> Path:
    library, words = optional_packages.transformers(), ["<|endoftext|>", "<|im_end|>", "<image>", "<video>"]
    tokenizer, ids = _bytes(library, words)
    vision = TEXT | {"model_type": "siglip_vision_model", "image_size": 32, "patch_size": 8, "vision_use_head": False}
    whole = {"vision_feature_select_strategy": "full"}
    config = library.LlavaOnevisionConfig(
        text_config=TEXT | {"model_type": "qwen2", "vocab_size": len(tokenizer), "eos_token_id": ids[1]},
        vision_config={name: vision[name] for name in vision if name not in ("num_key_value_heads", "pad_token_id")},
        image_token_id=ids[2],
        video_token_id=ids[3],
        image_grid_pinpoints=[[32, 32]],
        vision_feature_layer=-1,
        **whole,
    )
    side = {"size": {"height": 32, "width": 32}}
    images = library.LlavaOnevisionImageProcessor(**side, image_grid_pinpoints=[[32, 32]])
    video = library.LlavaOnevisionVideoProcessor(**side)
    processor = library.LlavaOnevisionProcessor(
        images, tokenizer, video, num_image_tokens=16, chat_template=LLAVA_CHAT, **whole
    )
    return _saved(folder, library, config, processor)


def smolvlm(folder: Path) -> Path:
    library, words = optional_packages.transformers(), ["<|endoftext|>", "<end_of_utterance>", "<image>", "<video>"]
    tokenizer, ids = _bytes(library, [*words, "<fake_token_around_image>", "<global-img>"])
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = library.SmolVLMConfig(
        text_config=TEXT | {"model_type": "llama", "vocab_size": len(tokenizer), "eos_token_id": ids[1]},
        vision_config=vision | {"model_type": "smolvlm_vision", "image_size": 32, "patch_size": 8},
        image_token_id=ids[2],
    )
    side = {"size": {"longest_edge": 32}, "max_image_size": {"longest_edge": 32}}
    images, video = library.SmolVLMImageProcessor(**side), library.SmolVLMVideoProcessor(**side)
    return _saved(folder, library, config, library.SmolVLMProcessor(images, tokenizer, video, image_seq_len=4))


def _saved(folder: Path, library: Any, config: Any, processor: Any) -> Path:
    torch.manual_seed(0)
    model = library.AutoModelForImageTextToText.from_config(config)
    processor.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder


FAMILIES = {"qwen3_vl": qwen3_vl, "qwen2_5_vl": qwen2_5_vl, "llava_onevision": llava_onevision, "internvl": internvl}
if optional_packages.is_installed("num2words"):  # which its processor writes the number of frames with
    FAMILIES["smolvlm"] = smolvlm


@torch.inference_mode()
def plain_scores(folder: Path, prompt: str, texts: list[str], clips: list[np.ndarray]) -> np.ndarray:
    """Scores (texts, clips): for each pair one call of processor and model, and the logits that it returns."""
    library = optional_packages.transformers()
    model = library.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    processor = library.AutoProcessor.from_pretrained(folder)
    words = {name: [] for name in ("yes", "no")}
    for number in processor.tokenizer.get_vocab().values():
        words.get(processor.tokenizer.decode([number]).strip().lower(), []).append(number)
    found = np.zeros((len(texts), len(clips)))
    for row, text in enumerate(texts):
        asked = [{"type": "video"}, {"type": "text", "text": prompt.format(caption=text)}]
        chat = processor.apply_chat_template(
            [{"role": "user", "content": asked}], tokenize=False, add_generation_prompt=True
        )
        for column, clip in enumerate(clips):
            seen = {"fps": 2.0, "total_num_frames": len(clip), "frames_indices": list(range(len(clip)))}
            seen["duration"] = len(clip) / 2
            pictures = torch.tensor(clip.copy()).permute(0, 3, 1, 2)
            inputs = processor(
                text=[chat], videos=[pictures], video_metadata=[seen], do_sample_frames=False, return_tensors="pt"
            )
            logits = model(**inputs).logits[0, -1].double()
            yes, no = (torch.logsumexp(logits[words[name]], 0) for name in ("yes", "no"))
            found[row, column] = yes - no
    return found
