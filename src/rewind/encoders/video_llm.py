"""Video language models as scorers: asked whether a clip shows a caption, how much likelier is "yes" than "no"?

The score of a pair is the logarithm of the odds of the two words as the first token of the answer, which takes one
pass through the model: VQAScore (Lin et al., Evaluating Text-to-Visual Generation with Image-to-Text Generation, ECCV
2024) asks so and reads the probability of yes, RankVideo (arXiv 2602.02444) reads the odds. These do not saturate into
ties.

All captions of a clip share the clip's part of the prompt, which is read once, if the prompt shows the clip first.
Every clip, and its twin alike, is described to the model as frames at ascending times: some models read a frame's time
as text, and descending ones would tell them the direction.
"""

from __future__ import annotations

import copy
from typing import Any, Literal, NoReturn

import numpy as np
import torch

from rewind import optional_packages
from rewind.config.base import ConfigModel, config_field, read_options
from rewind.config.encoders import Encoding
from rewind.encoders import base
from rewind.encoders.base import EncoderOutput, PairEncoder
from rewind.encoders.frames import batched, default_device, torch_dtype
from rewind.encoders.transformers import (
    FRAMES_PER_SECOND,
    NO_FILES_REMEDY,
    find_config,
    frames_metadata,
    model_source,
    to_model_device,
)
from rewind.errors import RewindError
from rewind.hashing import content_key
from rewind.registry import ENCODERS

# ---- Options -------------------------------------------------------------------------------------------------------

CAPTION = "{caption}"
"""Where the caption stands in a prompt."""


class Options(ConfigModel):
    """Options of the encoder `video_llm`."""

    prompts: list[str] = config_field(
        [f'Does this video show "{CAPTION}"? Please answer Yes or No.'],
        f"What the model is asked, with `{CAPTION}` for the caption. Of several, a pair's score is the mean.",
        min_length=1,
    )
    system: str = config_field("", "The system message; none if empty.")
    yes: str = config_field(
        "yes", "The answer that counts for a pair, in any spelling that is one token.", min_length=1
    )
    no: str = config_field("no", "The answer against it.", min_length=1)
    sees: Literal["clip", "frame", "nothing"] = config_field(
        "clip",
        "What the model is shown: the `clip`; one `frame` from its middle, the same one for the twin; or `nothing`, so "
        "that it answers by the caption alone. The last two are baselines: what a language model knows without eyes.",
    )
    fps: float = config_field(FRAMES_PER_SECOND, "Frames per second that the model is told, for every clip.", gt=0)
    processor: dict[str, Any] = config_field(
        {}, "Further options of the model's own processor of clips, for example its `size`, a budget of pixels."
    )


def check(encoding: Encoding) -> None:
    """Refuse what is known to fail; nothing is fetched.

    Raises:
        RewindError: for a missing package, folder or file, or a prompt without a caption.
    """
    base.require_package("transformers")
    options = _options(encoding)
    for prompt in options.prompts:
        if prompt.count(CAPTION) != 1:
            raise RewindError(f"encoder_options.prompts: {prompt!r}: must have {CAPTION} once, for the caption.")
    if encoding.frames == "model":
        raise RewindError("frames: model: video_llm is given frames; set frames: rewind.")
    find_config(encoding)


def _options(encoding: Encoding) -> Options:
    return read_options(Options, encoding.encoder_options, "encoder_options", "video_llm")


@ENCODERS.register("video_llm", check=check)
def build(encoding: Encoding) -> VideoLanguageModel:
    """The scorer that ``encoding.name`` names: a video language model of transformers."""
    check(encoding)
    return VideoLanguageModel(encoding)


# ---- The scorer ----------------------------------------------------------------------------------------------------

AGREEMENT = {"fp32": 1e-4, "fp16": 2e-2, "bf16": 1e-1}
"""Largest difference of scores that rounding explains, as a part of their size, by precision."""
_UNFIT = (ValueError, TypeError, KeyError, AttributeError, IndexError, NotImplementedError, RuntimeError)
_PROBES = ("a man opens a door", "a cup")


class VideoLanguageModel(PairEncoder):
    """A video language model that is asked about pairs; see :func:`build`."""

    packages = ("transformers", "tokenizers", "huggingface_hub")

    def __init__(self, encoding: Encoding) -> None:
        library = optional_packages.transformers()
        self.encoding, self.options, self.device = encoding, _options(encoding), default_device()
        source, hub = model_source(encoding)
        keys = {"dtype": torch_dtype(encoding.precision), **hub}
        with base.collect_missing_weights() as missing:
            load = library.AutoModelForImageTextToText.from_pretrained
            model: Any = base.load_pretrained(encoding, lambda: load(source, **keys), NO_FILES_REMEDY)
        if missing:
            raise RewindError(
                f"name: {encoding.name}: its files have no {min(missing)}, which {type(model).__name__} needs and "
                f"would draw at random ({len(missing):,} in all); take the model that answers questions."
            )
        self.model: Any = model.eval().to(self.device)
        self.processor = base.load_pretrained(
            encoding, lambda: library.AutoProcessor.from_pretrained(source, **hub), NO_FILES_REMEDY
        )
        if getattr(self.processor, "video_processor", None) is None and self.options.sees != "nothing":
            raise RewindError(f"name: {encoding.name}: {type(model).__name__} takes no clips; take a model of videos.")
        self.processor.tokenizer.padding_side = "left"  # the last token is where the answer begins
        self.answers = [self._spellings(self.options.yes), self._spellings(self.options.no)]
        self.reads_logits, self.shares_clips = False, False
        self._probe()
        vocabulary = {number: token for token, number in self.processor.tokenizer.get_vocab().items()}
        self.facts = {
            "class": type(model).__name__,
            "commit": getattr(model.config, "_commit_hash", None),
            "answers": [sorted(vocabulary[number] for number in numbers) for numbers in self.answers],
            "logits": "as given by the model" if self.reads_logits else "of the last hidden state, in float32",
            "clip_read_once": self.shares_clips,
        }
        self.notes = [_SEEN_NOTES[self.options.sees]]
        if len(self.options.prompts) > 1:
            self.notes.append(f"the mean over {len(self.options.prompts)} prompts")

    def cut(self, texts: list[str]) -> int | None:
        return 0  # prompts are never shortened

    def encode_texts(self, texts: list[str]) -> EncoderOutput:
        self._refuse_vectors()

    def encode_clips(self, clips: list[np.ndarray]) -> EncoderOutput:
        self._refuse_vectors()

    def _refuse_vectors(self) -> NoReturn:
        raise RewindError(
            f"name: {self.encoding.name}: {type(self.model).__name__} is asked about a caption and a clip together, so "
            "no vectors represent them: take a model that compares two, such as CLIP or SigLIP."
        )

    def score(self, texts: list[str], clips: list[np.ndarray]) -> np.ndarray:
        return self.score_each(texts, clips).mean(axis=-1)

    @torch.inference_mode()
    def score_each(self, texts: list[str], clips: list[np.ndarray]) -> np.ndarray:
        by_prompt = [self._score_prompt(prompt, texts, clips) for prompt in self.options.prompts]
        return np.stack(by_prompt, axis=-1).astype(np.float32)

    def _score_prompt(self, prompt: str, texts: list[str], clips: list[np.ndarray]) -> np.ndarray:
        asked = [self._chat(prompt, text) for text in texts]
        if self.options.sees == "nothing":
            column = self._score_separately(asked, None)
            return np.repeat(column[:, None], len(clips), axis=1)
        score = self._score_together if self.shares_clips else self._score_separately
        return np.stack([score(asked, self._shown(clip)) for clip in clips], axis=1)

    def _shown(self, clip: np.ndarray) -> torch.Tensor:
        """What the model is shown of a clip, uint8 (T, 3, H, W).

        T is even, since some models take frames in twos: of an odd number the middle one is shown twice, which the
        twin mirrors.
        """
        if self.options.sees == "frame":
            clip = middle_frame(clip)[None]
        if len(clip) % 2:
            clip = np.insert(clip, len(clip) // 2, clip[len(clip) // 2], axis=0)
        return torch.from_numpy(np.ascontiguousarray(clip)).permute(0, 3, 1, 2)

    # ---- Prompts and answers

    def _chat(self, prompt: str, text: str) -> str:
        shown = [] if self.options.sees == "nothing" else [{"type": "video"}]
        question = {"type": "text", "text": prompt.replace(CAPTION, text)}
        system = [{"role": "system", "content": [{"type": "text", "text": self.options.system}]}]
        chat = [*(system if self.options.system else []), {"role": "user", "content": [*shown, question]}]
        return self.processor.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)

    def _spellings(self, word: str) -> list[int]:
        """Tokens that are a word but for case and the blank before it, which tokenizers write as Ġ or ▁."""
        vocabulary = self.processor.tokenizer.get_vocab()
        found = [number for token, number in vocabulary.items() if token.lstrip("Ġ▁ ").lower() == word.lower()]
        if not found:
            raise RewindError(
                f"encoder_options: the tokenizer of {self.encoding.name} has no token for {word!r}; choose other words "
                "for yes and no."
            )
        return sorted(found)

    def _log_odds(self, logits: torch.Tensor) -> torch.Tensor:
        """(n, spellings of yes, then of no) → (n,)."""
        yes, no = logits.double().split([len(numbers) for numbers in self.answers], dim=-1)
        return torch.logsumexp(yes, dim=-1) - torch.logsumexp(no, dim=-1)

    def _answer(self, inputs: dict[str, Any], keep: Any = 1) -> tuple[torch.Tensor, Any]:
        """Logits (n, K, spellings) of the answers at ``keep`` positions, and what the model returned."""
        numbers = torch.tensor(self.answers[0] + self.answers[1], device=self.device)
        head, states = self.model.get_output_embeddings(), []
        hook = head.register_forward_pre_hook(lambda _, given: states.append(given[0]))
        try:
            output = self.model(**inputs, logits_to_keep=keep)
        finally:
            hook.remove()
        if self.reads_logits:
            return output.logits[..., numbers].float(), output
        # In float32: a logit in bfloat16 is a multiple of 1/16, or of 1/8 from 16 on, and two scores often tie.
        bias = getattr(head, "bias", None)
        logits = states[-1].float() @ head.weight[numbers].float().T
        return (logits if bias is None else logits + bias[numbers].float()), output

    # ---- A pair on its own

    def _inputs(self, asked: list[str], clip: torch.Tensor | None) -> dict[str, Any]:
        """The model's inputs for prompts, each with the same clip, padded on the left."""
        clips: dict[str, Any] = {}
        if clip is not None:
            # Given frames are not sampled again; without this, and with times unknown, some processors leave out half.
            seen = frames_metadata(len(clip), self.options.fps)
            clips = {"videos": [clip] * len(asked), "video_metadata": [seen] * len(asked), "do_sample_frames": False}
            clips |= self.options.processor
        return to_model_device(self.model, self.processor(text=asked, padding=True, return_tensors="pt", **clips))

    def _score_separately(self, asked: list[str], clip: torch.Tensor | None) -> np.ndarray:
        scores = []
        for batch in batched(asked, self.encoding.batch_size):
            logits, _ = self._answer(self._inputs(batch, clip))
            scores.append(self._log_odds(logits[:, -1]))
        return torch.cat(scores).cpu().numpy()

    # ---- All captions of a clip, which is read once

    def _score_together(self, asked: list[str], clip: torch.Tensor) -> np.ndarray:
        first = self._inputs(asked[:1], clip)
        whole = self._expanded(asked, first["input_ids"][0].tolist())
        # The last token of each is its own, so that each has one to answer after.
        shared = whole[0][: _alike([tokens[:-1] for tokens in whole])]
        inputs = {
            name: value[:, : len(shared)] if value.shape[:2] == first["input_ids"].shape else value
            for name, value in first.items()
        }
        _, read = self._answer(inputs | {"use_cache": True})
        scores = np.zeros(len(asked))
        by_length = sorted(range(len(asked)), key=lambda n: len(whole[n]))
        for batch in batched(by_length, self.encoding.batch_size):
            rest = [whole[n][len(shared) :] for n in batch]
            # Padded on the right: no token sees those after it. The cache grows, so each batch has its own.
            cache = copy.deepcopy(read.past_key_values)
            cache.batch_repeat_interleave(len(rest))
            longest = max(map(len, rest))
            tokens = torch.tensor([part + [part[-1]] * (longest - len(part)) for part in rest], device=self.device)
            ends = sorted({len(part) - 1 for part in rest})
            # Without a mask: Qwen's models would take the places of all tokens from it, those in the cache included.
            more = {"input_ids": tokens, "past_key_values": cache, "use_cache": True}
            logits, _ = self._answer(more, torch.tensor(ends, device=self.device))
            place = torch.tensor([ends.index(len(part) - 1) for part in rest], device=self.device)
            scores[batch] = self._log_odds(logits[torch.arange(len(rest)), place]).cpu().numpy()
        return scores

    def _expanded(self, asked: list[str], first: list[int]) -> list[list[int]]:
        """Tokens of all prompts with the clip in them, which the processor has put into those of the ``first`` one.

        Raises:
            ValueError: the clip does not come before what differs.
        """
        plain = self.processor.tokenizer(asked, add_special_tokens=False)["input_ids"]
        after = _alike([plain[0][::-1], first[::-1]])
        before, clip = plain[0][: len(plain[0]) - after], first[: len(first) - after]
        if any(tokens[: len(before)] != before for tokens in plain):
            raise ValueError("captions come before the clip")
        return [clip + tokens[len(before) :] for tokens in plain]

    # ---- What this model can do

    @torch.inference_mode()
    def _probe(self) -> None:
        """Find out whether answers can be read from hidden states, and captions share a clip."""
        limit = AGREEMENT[self.encoding.precision]
        clip = None
        if self.options.sees != "nothing":
            noise = np.random.default_rng(0).integers(0, 256, (4, 64, 96, 3), dtype=np.uint8)
            clip = self._shown(noise)
        asked = [self._chat(self.options.prompts[0], text) for text in _PROBES]
        try:
            inputs = self._inputs(asked[:1], clip)
            own, output = self._answer(inputs)
        except torch.cuda.OutOfMemoryError:
            raise
        except _UNFIT as error:
            reason = " ".join(str(error).split())[:200]
            raise RewindError(
                f"name: {self.encoding.name}: {type(self.model).__name__} cannot be asked about a clip ({reason})."
            ) from error
        numbers = torch.tensor(self.answers[0] + self.answers[1], device=self.device)
        given = output.logits[..., numbers].float()
        # Some models squash their logits; then these count.
        self.reads_logits = bool((own - given).abs().max() > limit * max(1.0, float(given.abs().max())))
        if clip is None:
            return
        alone = np.concatenate([self._score_separately([text], clip) for text in asked])
        try:
            together = self._score_together(asked, clip)
        except torch.cuda.OutOfMemoryError:
            raise
        except _UNFIT:  # its cache, or its prompt, is of another kind: each pair gets a pass of its own
            return
        self.shares_clips = bool(np.abs(together - alone).max() <= limit * max(1.0, float(np.abs(alone).max())))


_SEEN_NOTES = {
    "clip": "the odds of yes against no, of a model that is asked whether the clip shows the caption",
    "frame": "the odds of yes against no, of a model that is shown one frame of each clip, the same for its twin",
    "nothing": "the odds of yes against no, of a model that is shown no clip",
}


def _alike(rows: list[list[int]]) -> int:
    """How many values rows have in common from their start."""
    places = enumerate(zip(*rows, strict=False))
    return next((place for place, values in places if len(set(values)) > 1), min(map(len, rows)))


def middle_frame(clip: np.ndarray) -> np.ndarray:
    """The middle frame (H, W, 3) of a clip (T, H, W, 3), the same for its twin.

    An even number of frames has two in the middle: the one is taken whose content comes first by its hash.

    >>> clip = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1)
    >>> bool((middle_frame(clip) == middle_frame(clip[::-1])).all())
    True
    """
    middle = clip[(len(clip) - 1) // 2 : len(clip) // 2 + 1]
    return min(middle, key=lambda frame: content_key(np.ascontiguousarray(frame).tobytes()))
