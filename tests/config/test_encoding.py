"""Methods that name an encoder: defaults of the study, folders, what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from messages import refusal
from rewind.config import load_study
from rewind.errors import ConfigErrors, RewindError
from rewind.io.cache import JsonCache
from rewind.workflow.preflight import models

STUDY = """
dataset: shapes
frames: {{max_frames: 6, sampling: head}}
methods:
  named:
    model: vectors
    options: {options}
  chance: {{model: chance}}
"""


def study(tmp_path: Path, options: str):
    (tmp_path / "named.yaml").write_text(STUDY.format(options=options))
    return load_study("named", tmp_path)


def test_what_is_left_out_is_the_studys(tmp_path: Path) -> None:
    found = study(tmp_path, "{encoder: open_clip, name: RN50, rate: 2}").encodings()
    assert list(found) == ["named"]
    keys = found["named"]
    assert (keys.max_frames, keys.sampling, keys.rate, keys.frames, keys.precision) == (6, "head", 2, "rewind", "fp32")
    own = study(tmp_path, "{encoder: open_clip, name: RN50, rate: 2, max_frames: 3, sampling: uniform}")
    assert own.encodings()["named"].max_frames == 3


def test_the_method_is_scored_by_the_files_that_the_rule_makes(tmp_path: Path) -> None:
    made = study(tmp_path, "{encoder: open_clip, name: a/B c, score: dot}")
    keys, method = made.encodings()["named"], made.methods["named"]
    assert keys.folder().startswith("open_clip.B-c.") and "/" not in keys.folder()
    place = f"results/data/shapes/vectors/{keys.folder()}"
    assert method.precomputed_files(0) == [f"{place}/captions.npz", f"{place}/items.npz"]
    assert method.precomputed_options().score == "dot" and method.seeds == [0]
    spec = made.run_spec("named", seed=0)
    assert set(spec.method.options) == {"captions", "items", "score"}, "a run depends on nothing else"
    assert list(made.encodings()) == ["named"], "chance has no vectors"


SEEDED = "{encoder: video_llm, name: q, encoder_options: {prompts: {0: ['{caption}?'], 2: ['{caption}!']}, fps: 2}}"


def judge(tmp_path: Path, more: str = ""):
    text = STUDY.replace("  chance:", f"    rerank: {{{{first: chance, binary_only: true}}}}\n{more}  chance:")
    (tmp_path / "named.yaml").write_text(text.format(options=SEEDED))
    return load_study("named", tmp_path)


def test_an_option_of_a_judge_may_have_a_value_for_each_seed(tmp_path: Path) -> None:
    found = judge(tmp_path)
    assert found.seeds_of("named") == [0, 2]
    options = {seed: keys.encoder_options for seed, keys in found.seed_encodings("named").items()}
    assert options == {0: {"prompts": ["{caption}?"], "fps": 2}, 2: {"prompts": ["{caption}!"], "fps": 2}}
    with refusal("methods.named.options.encoder_options.prompts"):
        judge(tmp_path, more="    seeds: [0, 1]\n").seed_encodings("named")
    with refusal("named.yaml: methods.named.options.encoder_options.prompts", error=ConfigErrors):
        study(tmp_path, SEEDED)


@pytest.mark.parametrize("change", ["revision: x", "precision: bf16", "encoder_options: {pretrained: y}", "rate: 3"])
def test_whatever_vectors_depend_on_has_a_folder_of_its_own(tmp_path: Path, change: str) -> None:
    plain = study(tmp_path, "{encoder: open_clip, name: RN50}").encodings()["named"]
    other = study(tmp_path, f"{{encoder: open_clip, name: RN50, {change}}}").encodings()["named"]
    same = study(tmp_path, "{encoder: open_clip, name: RN50, batch_size: 5, score: dot}").encodings()["named"]
    assert plain.folder() != other.folder() and plain.folder() == same.folder()


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("{encoder: open_clip}", "named.yaml: methods.named.options.name"),
        ("{encoder: open_clip, name: x, sampler: y}", "named.yaml: methods.named.options.sampler"),
        ("{encoder: open_clip, name: x, max_frames: 0}", "named.yaml: methods.named.options.max_frames"),
        ("{encoder: open_clip, name: x, captions: mine.npz}", "named.yaml: methods.named.options.captions"),
    ],
)
def test_options_are_refused_by_their_path(tmp_path: Path, given: str, place: str) -> None:
    with refusal(place, error=ConfigErrors):
        study(tmp_path, given)


def test_noise_is_refused(tmp_path: Path) -> None:
    made = study(tmp_path, "{encoder: open_clip, name: x}")
    noisy = made.methods["named"].model_copy(update={"noise": True})
    with refusal("methods.named.noise"):
        made.model_copy(update={"methods": {"named": noisy}}).encodings()


def test_local_files_are_those_of_the_model(tmp_path: Path) -> None:
    model = tmp_path / ".cache/model"  # where the hub keeps its files
    (model / ".cache").mkdir(parents=True)
    for name in ("weights.bin", "config.json", ".cache/lock"):
        (model / name).write_text("x")
    keys = study(tmp_path, f"{{encoder: open_clip, name: {model}}}").encodings()["named"]
    assert keys.files() == [str(model / "config.json"), str(model / "weights.bin")]
    weights = model / "weights.bin"
    named = study(tmp_path, f"{{encoder: open_clip, name: RN50, encoder_options: {{pretrained: {weights}}}}}")
    keys = named.encodings()["named"]
    assert keys.files() == [str(weights)]


def test_what_is_known_to_fail_is_said_and_what_is_sound_remembered(tmp_path: Path, monkeypatch) -> None:
    memory, asked = tmp_path / "marks.json", []

    def check(keys) -> None:
        asked.append(keys.name)
        if keys.name == "bad":
            raise RewindError("name: bad: is not there.")

    interface = SimpleNamespace(check_encoder=check)
    monkeypatch.setattr(models, "importlib", SimpleNamespace(import_module=lambda name: interface))
    good, bad = (study(tmp_path, f"{{encoder: open_clip, name: {name}}}") for name in ("good", "bad"))
    for _ in range(2):
        passed = JsonCache(memory)
        assert not models.encoder_faults(good, None, passed)
        assert models.encoder_faults(bad, None, passed) == ["methods.named.options.name: bad: is not there"]
        passed.save()
    assert asked == ["good", "bad", "bad"], "only what is sound is remembered"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    models.encoder_faults(good, None, JsonCache(memory))
    assert asked[-1] == "good"


def test_a_data_set_of_vectors_has_nothing_to_encode(tmp_path: Path) -> None:
    made = study(tmp_path, "{encoder: open_clip, name: RN50}")
    assert "holds vectors" in models.encoder_faults(made, SimpleNamespace(name="shapes", vectors=True), JsonCache())[0]
