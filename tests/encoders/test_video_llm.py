"""Video language models as scorers, against a plain loop over pairs; what they are told, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from encoder_data import keys, moving, open_clip_folder
from rewind.cli.init.command import guess_encoder
from rewind.encoders.base import build_encoder, check_encoder
from rewind.encoders.video_llm import Options, VideoLanguageModel, middle_frame
from rewind.errors import RewindError
from video_llms import FAMILIES, TEXT_FIRST_CHAT, plain_scores, qwen3_vl

PROMPT = Options().prompts[0]
TEXTS = ["a man opens a door", "a cup", "a dog runs over the street, and back", "x", 'he says "no"']
CLIPS = [moving(4), moving(4)[::-1], moving(6, seed=1)]
TOLERANCE = 1e-6
"""Largest difference of scores in float32 that the size of a batch, or reading a clip once, may make."""


@pytest.fixture(autouse=True)
def offline(monkeypatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    return {name: write(tmp_path_factory.mktemp("models") / name) for name, write in FAMILIES.items()}


def asked(folder: Path, batch_size: int = 32, precision: str = "fp32", **options: object) -> VideoLanguageModel:
    encoder = build_encoder(
        keys("video_llm", folder, batch_size=batch_size, precision=precision, encoder_options=options)
    )
    assert isinstance(encoder, VideoLanguageModel)
    return encoder


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_those_of_a_plain_loop_whatever_the_batch(name: str, folders: dict[str, Path]) -> None:
    expected = plain_scores(folders[name], PROMPT, TEXTS, CLIPS)
    assert np.ptp(expected, axis=0).min() > 100 * TOLERANCE, "captions matter"
    assert np.abs(expected[:, 0] - expected[:, 1]).min() > 10 * TOLERANCE, "so does the order of frames"
    for batch_size in (1, 2, 32):
        encoder = asked(folders[name], batch_size)
        assert encoder.facts["clip_read_once"] and "float32" in encoder.facts["logits"]
        np.testing.assert_allclose(encoder.score(TEXTS, CLIPS), expected, rtol=0, atol=TOLERANCE)
        encoder.shares_clips = False
        np.testing.assert_allclose(encoder.score(TEXTS, CLIPS), expected, rtol=0, atol=TOLERANCE)


def test_an_answer_counts_in_all_its_spellings(folders: dict[str, Path]) -> None:
    assert asked(folders["llava_onevision"]).facts["answers"] == [["Yes"], [" no", "No"]]


def test_a_prompt_whose_caption_comes_before_the_clip_has_a_pass_for_each_pair(tmp_path: Path) -> None:
    folder = qwen3_vl(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(TEXT_FIRST_CHAT)
    encoder = asked(folder)
    assert not encoder.facts["clip_read_once"]
    expected = plain_scores(folder, PROMPT, TEXTS, CLIPS)
    np.testing.assert_allclose(encoder.score(TEXTS, CLIPS), expected, rtol=0, atol=TOLERANCE)


def test_of_several_prompts_the_mean_counts(folders: dict[str, Path]) -> None:
    prompts = [PROMPT, "Answer yes if this is shown: {caption}."]
    expected = np.mean([plain_scores(folders["qwen3_vl"], prompt, TEXTS, CLIPS) for prompt in prompts], axis=0)
    encoder = asked(folders["qwen3_vl"], prompts=prompts)
    np.testing.assert_allclose(encoder.score(TEXTS, CLIPS), expected, rtol=0, atol=TOLERANCE)
    assert "the mean over 2 prompts" in encoder.notes


def test_a_clip_and_its_twin_are_told_the_same_times_in_words(folders: dict[str, Path]) -> None:
    encoder = asked(folders["qwen3_vl"])
    chat = encoder._chat(PROMPT, "a cup")
    inputs = [encoder._inputs([chat], encoder._shown(clip)) for clip in (moving(4), moving(4)[::-1])]
    told = [encoder.processor.tokenizer.decode(each["input_ids"][0]) for each in inputs]
    assert told[0] == told[1]
    assert told[0].index("<0.2 seconds>") < told[0].index("<1.2 seconds>")
    assert not (inputs[0]["pixel_values_videos"] == inputs[1]["pixel_values_videos"]).all()


def test_an_odd_number_of_frames_is_mirrored_by_the_twin(folders: dict[str, Path]) -> None:
    encoder = asked(folders["qwen3_vl"])
    forward, backward = (encoder._shown(clip) for clip in (moving(5), moving(5)[::-1]))
    assert len(forward) == 6 and (forward == backward.flip(0)).all()
    assert len(encoder._shown(moving(1))) == 2


@pytest.mark.parametrize("length", [1, 4, 5])
@pytest.mark.parametrize("sees", ["frame", "nothing"])
def test_what_is_seen_without_the_order_ties_a_clip_with_its_twin(
    sees: str, length: int, folders: dict[str, Path]
) -> None:
    scores = asked(folders["qwen3_vl"], sees=sees).score(TEXTS, [moving(length), moving(length)[::-1]])
    assert (scores[:, 0] == scores[:, 1]).all() and np.ptp(scores[:, 0]) > 0
    assert (middle_frame(moving(length)) == middle_frame(moving(length)[::-1])).all()


def test_half_precision_does_not_make_ties(folders: dict[str, Path]) -> None:
    texts = [f"a man opens door {number}" for number in range(40)]
    encoder = asked(folders["qwen3_vl"], precision="bf16")
    fine = len(np.unique(encoder.score(texts, CLIPS[:1])))
    encoder.reads_logits = True
    assert fine > len(np.unique(encoder.score(texts, CLIPS[:1])))


# ---- What is refused ------------------------------------------------------------------------------------------------


def refused(encoding, *words: str, load: bool = False) -> None:
    with pytest.raises(RewindError) as error:
        (build_encoder if load else check_encoder)(encoding)
    text = str(error.value)
    assert all(word in text for word in words), text
    assert text.endswith(".") and "\n" not in text


def test_what_cannot_be_asked_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = folders["qwen3_vl"]

    def with_options(**options: object):
        return keys("video_llm", folder, encoder_options=options)

    refused(with_options(prompts=["Is it so?"]), "prompts", "{caption}")
    refused(with_options(prompts=[]), "prompts")
    refused(with_options(prompt="{caption}?"), "prompt")
    refused(with_options(sees="all"), "sees")
    refused(keys("video_llm", folder, frames="model"), "frames")
    refused(keys("video_llm", tmp_path), "config.json")
    refused(with_options(yes="certainly"), "'certainly'", load=True)


def test_models_that_do_not_answer_are_refused(tmp_path: Path) -> None:
    from encoder_families import FAMILIES as TWO_TOWERS

    refused(keys("video_llm", TWO_TOWERS["clip"](tmp_path / "clip")), "cannot be loaded", load=True)
    folder = qwen3_vl(tmp_path / "model")
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    save_file({name: weights[name] for name in weights if name != "lm_head.weight"}, folder / "model.safetensors")
    refused(keys("video_llm", folder), "lm_head.weight", "at random", load=True)


def test_vectors_are_refused(folders: dict[str, Path]) -> None:
    encoder = asked(folders["qwen3_vl"])
    for ask, given in ((encoder.encode_texts, TEXTS), (encoder.encode_clips, CLIPS)):
        with pytest.raises(RewindError, match="no vectors represent them"):
            ask(given)


def test_a_folder_of_such_a_model_is_recognised(folders: dict[str, Path], tmp_path: Path) -> None:
    assert {guess_encoder(str(folder)) for folder in folders.values()} == {"video_llm"}
    assert guess_encoder(str(open_clip_folder(tmp_path / "open_clip"))) == "open_clip"
    (tmp_path / "config.json").write_text(json.dumps(["not", "a model's"]))
    assert guess_encoder(str(tmp_path)) == "transformers"
