"""What the files of a study decide is refused when the workflow is read: everything at once, each with its key."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from checkout import ROOT
from messages import refusal
from rewind.config.load import load_study, merge_config
from rewind.errors import ConfigErrors
from rewind.workflow.config import load_checked_config, load_config
from rewind.workflow.preflight import checks

STUDY = {
    "dataset": "shapes",
    "backbone": {"architecture": "config/models/tiny.json"},
    "frames": {"max_frames": 4, "size": 32},
    "text": {"tokenizer": "words", "max_words": 24},
    "training": {"batch": {"size": 16}},
    "methods": {"meanP": {"head": "meanP"}, "chance": {"model": "chance"}},
}
TOWERS = {"backbone.kind": "towers", "backbone.architecture": "ViT-B-32-quickgelu"}  # which read no architecture
FILE = "config/studies/s.yaml"
VIDEO, IMAGE, VECTORS = "shapes", "stamps", "vectors"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("datasets", "models"):
        (tmp_path / "config").mkdir(exist_ok=True)
        (tmp_path / "config" / name).symlink_to(ROOT / "config" / name)
    (tmp_path / "config/studies").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, change: dict) -> None:
    Path(f"config/studies/{name}.yaml").write_text(yaml.safe_dump(merge_config(STUDY, change), sort_keys=False))


def refused(change: dict, *places: str, datasets: dict | None = None, varying: str = "") -> str:
    """What is said of these places."""
    write("s", change)
    if "methods" in change:
        Path("config/studies/s.yaml").write_text(
            yaml.safe_dump(merge_config({**STUDY, "methods": {}}, {"sanity": None, **change}))
        )
    config = {"studies": ["s"], "overrides": {"datasets": datasets or {}}}
    with refusal(*places, error=ConfigErrors, varying=varying) as caught:
        load_checked_config(config)
    return str(caught.value)


def test_a_sound_study_is_not_refused(checkout: Path) -> None:
    write("s", {})
    studies, datasets = load_checked_config({"studies": ["s"]})
    assert list(studies) == ["s"] and list(datasets) == ["shapes"]


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "config/studies").glob("*.yaml")))
def test_shipped_studies_lack_files_at_most(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    try:
        load_checked_config({"studies": [name]})
    except ConfigErrors as error:
        lines = [line for lines in error.files.values() for line in lines if not line.startswith("  ")]
        absent = ("these files are missing", "no such file", "no such folder", "no test_batch", "need the package")
        assert all(any(words in line for words in absent) for line in lines), error


def test_faults_of_two_studies_and_their_data_set_come_in_one_message(checkout: Path) -> None:
    write("one", {"methods.meanP.head": "meanp", "training.lrr": 1, "figures.method": "meanQ", "seeds": [-1]})
    twice = ["test", "test"]
    write("two", {"backbone.weights": "gone.pt", "training.objective": "infonc", "evaluation.settings": twice})
    over = {"datasets.shapes.video.fps": 1e-9, "datasets.shapes.reverse": False}
    faults = {
        "studies/one": ["training.lrr", "seeds", "figures.method", "evaluation.settings", "methods.meanP.head"],
        "studies/two": ["evaluation.settings", "backbone.weights: gone.pt", "training.objective"],
    }
    places = [f"config/{file}.yaml: {key}" for file, keys in faults.items() for key in keys]
    places += ["config/studies/three.yaml", "config/datasets/shapes.yaml: video.fps"]
    with refusal(*places, error=ConfigErrors) as caught:
        load_checked_config({"studies": ["one", "two", "three"], "overrides": over})
    lines = caught.value.files["config/studies/one.yaml"]
    assert sum(line.startswith("evaluation.settings: ") for line in lines) == 3, "origin, hard and binary without twins"


@pytest.mark.parametrize(
    ("change", "places"),
    [
        ({"methods.meanP.seeds": [1, 1]}, ["methods.meanP.seeds"]),
        ({"seeds": [2**32]}, ["seeds"]),
        ({"statistics.seed": -1}, ["statistics.seed"]),
        ({"pretraining": {"seed": 2**32}}, ["pretraining.seed"]),
        ({"statistics.pairs": [["meanP", "chance"], ["chance", "meanP"]]}, ["statistics.pairs"]),
        ({"statistics.pairs": [["meanP", "meanP"]]}, ["statistics.pairs"]),
        ({"tables.columns": ["R@1", "R@5", "R@1"]}, ["tables.columns"]),
        ({"tables.columns": ["R@1", "text_to_item R@1"]}, ["tables.columns"]),
        ({"evaluation.directions": ["text_to_item"] * 2}, ["evaluation.directions"]),
        ({"sweep": {"max_frames": [2, 2], "method": "meanP"}}, ["sweep.max_frames"]),
        ({"sweep": {"max_frames": [2], "method": "chance"}}, ["sweep.method"]),
        ({"sanity.method": "chance"}, ["sanity.method"]),
        ({"training.lr": float("nan")}, ["training.lr"]),
        ({"text.max_vocabulary": 100}, ["text.max_vocabulary: tokenizer"]),
        ({"training.clip_norm": float("inf")}, ["training.clip_norm"]),
        ({"training.betas": [0.9, 1.0]}, ["training.betas"]),
        ({"frames.rate": 1e-9}, ["frames.rate"]),
        ({"training.objective_options": {"temperature": float("inf")}}, ["training.objective_options.temperature"]),
        ({"training.objective_options": {"temprature": 1}}, ["training.objective_options.temprature: objective"]),
        ({"methods.meanP.training.objective_options": {"x": 1}},
         ["methods.meanP.training.objective_options.x: objective"]),
        ({"training.batch.sampler_options": {"x": 1}}, ["training.batch.sampler_options.x"]),
        ({"training.batch": {"sampler": "pk", "sampler_options": {"captions": 3}}},
         ["training.batch.sampler_options.captions"]),
        ({"training.batch": {"sampler": "topical", "twins_together": True}}, ["training.batch.twins_together"]),
        ({"methods.meanP.head": "tightTransf", "methods.meanP.head_start": "random", "training.objective": "hnac"},
         ["methods.meanP.head"]),
        ({"methods.meanP.head": "seqTransf"}, ["methods.meanP.head_start"]),
        ({"methods.meanP.head": "nolab.heads.First"}, ["methods.meanP.head"]),
        ({"methods.meanP.model": "nolab.retriever"}, ["methods.meanP.model"]),
        ({"methods.meanP.model": "clip5clip"}, ["methods.meanP.model"]),
        ({"methods.chance.options": {"a": 1}}, ["methods.chance.options.a"]),
        ({"methods.d": {"model": "dual_encoder", "options": {"heads": 5, "cross_attention": True}}},
         ["methods.d.options.heads"]),
        ({"methods.r": {"model": "ridge"}}, ["methods.r.training.freeze", "methods.r"]),
        ({"methods.n": {"noise": True, "training": {"freeze": ["visual"]}}}, ["methods.n.noise"]),
        ({"methods.t": {"model": "translator", "head": "mlp9"}}, ["backbone.kind: clip"]),
        ({"methods.z": {"model": "zero_shot"}}, ["methods.z.model: zero_shot"]),
        ({"methods.z": {"model": "clip_zero_shot"}}, ["methods.z.options: model"]),
        ({"backbone.architecture": "ViT-B-33"}, ["backbone.architecture"]),
        ({"backbone": {"kind": "viclip", "architecture": "viclip-x"}}, ["backbone.architecture: 'viclip-x': kind"]),
        ({"backbone.kind": "clop"}, ["backbone.kind"]),
        ({"text.max_words": 30}, ["text.max_words"]),
        ({"training.freeze_layers": 4}, ["training.freeze_layers"]),
        ({**TOWERS, "training.freeze_layers": 0}, ["training.freeze_layers"]),
        ({**TOWERS, "training.compile": True}, ["training.compile"]),
        ({**TOWERS, "pretraining": {}}, ["pretraining: kind", "backbone.weights"]),
        ({"figures.embedding": "umap"}, ["figures.embedding"]),
        ({"tracking": "comet"}, ["tracking"]),
        ({"resources.gpus": 3}, ["training.batch.size"]),
        ({"evaluation.zero_shot": {"folder": "nowhere"}}, ["evaluation.zero_shot.folder: nowhere"]),
        ({"methods": {"chance": {"model": "chance"}}, "evaluation.zero_shot": {"folder": "x"}},
         ["evaluation.zero_shot", "evaluation.zero_shot.folder: x"]),
        ({"evaluation": {"settings": ["hard"], "order": ["reversed"]}}, ["evaluation.order"]),
        ({"methods": {"chance": {"model": "chance"}}, "evaluation.order": ["single"]}, ["evaluation.order"]),
        ({"evaluation.order": ["reversed", "reversed"]}, ["evaluation.order"]),
        ({"evaluation": {"directions": ["item_to_text"], "order": ["single"]}}, ["evaluation.order"]),
        ({"backbone": {"kind": "viclip", "architecture": "viclip-l"}, "training.freeze": ["visual"], "frames.size": 224,
          "evaluation.order": ["single"]}, ["evaluation.order"]),
        ({"dataset": "stamps", "evaluation": {"settings": ["test"], "order": ["reversed"]}}, ["evaluation.order"]),
        ({"evaluation": {"settings": ["origin"], "transductive": ["qb_norm"]}}, ["evaluation.transductive"]),
        ({"methods": {"chance": {"model": "chance"}}, "evaluation.transductive": ["dual_softmax"]},
         ["evaluation.transductive"]),
        ({"evaluation": {"directions": ["item_to_text"], "transductive": ["qb_norm"]}}, ["evaluation.transductive"]),
        ({"methods.tight": {"rerank": {"first": "meanQ"}}}, ["methods.tight.rerank.first"]),
        ({"methods.tight": {"rerank": {"first": "tight"}}}, ["methods.tight.rerank.first"]),
        ({"methods": {"a": {}, "b": {"rerank": {"first": "a"}}, "c": {"rerank": {"first": "b"}}}},
         ["methods.c.rerank.first"]),
        ({"methods": {"a": {"seeds": [0, 1]}, "b": {"seeds": [0, 2], "rerank": {"first": "a"}}}},
         ["methods.b.rerank.first"]),
        ({"methods": {"a": {}, "c": {"model": "chance", "rerank": {"first": "a"}}}}, ["methods.c.rerank"]),
        ({"methods": {"a": {}, "b": {"rerank": {"first": "a"}}}, "figures.method": "b"}, ["figures.method"]),
        ({"methods": {"a": {}, "b": {"rerank": {"first": "a", "top": 1}}}}, ["methods.b.rerank.top"]),
        ({"methods": {"a": {}, "b": {"rerank": {"first": "a", "binary_only": True}}}, "evaluation.settings": ["hard"]},
         ["methods.b.rerank.binary_only"]),
        ({"methods.a": {"model": "vectors", "options": {"encoder": "open_clip", "name": "RN50", "sampler": "y"}},
          "methods.b": {"model": "vectors", "options": {"encoder": "open_clip", "name": "RN50"}}},
         ["methods.a.options.sampler"]),
        ({"dataset": "../shapes"}, ["dataset"]),
        ({"frames.size": 64}, ["frames.size"]),
    ],
)  # fmt: skip
def test_each_fault_is_told_with_its_key(checkout: Path, change: dict, places: list[str]) -> None:
    if places == ["figures.embedding"] and importlib.util.find_spec("umap"):
        pytest.skip("it is installed here")
    refused(change, *(f"{FILE}: {place}" for place in places))


def test_a_softmax_over_captions_needs_the_unit_of_scores(checkout: Path) -> None:
    vectors, asked = {"captions": "c.npz", "items": "c.npz"}, {"evaluation.transductive": ["dual_softmax"]}
    scored, dotted = {"file": "b.npz"}, vectors | {"score": "dot"}
    missing = [f"{FILE}: {name}" for name in ("b.npz", "c.npz")]  # which is all that is wrong where the unit is known
    refused(
        asked | {"methods.b": {"model": "scores", "options": scored}}, f"{FILE}: evaluation.transductive", missing[0]
    )
    refused(
        asked | {"methods.c": {"model": "vectors", "options": dotted}}, f"{FILE}: evaluation.transductive", missing[1]
    )
    refused(asked | {"methods.b": {"model": "scores", "options": scored | {"inverse_temperature": 20}}}, missing[0])
    refused(asked | {"methods.c": {"model": "vectors", "options": vectors}}, missing[1])
    wrong = {"methods.b": {"model": "scores", "options": scored | {"inverse_temperature": 0}}}
    refused(wrong, f"{FILE}: methods.b.options.inverse_temperature")


def test_a_tracker_that_is_not_installed_is_refused(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "wandb" else find(name, *rest))
    refused({"tracking": "wandb"}, f"{FILE}: tracking")


@pytest.mark.parametrize("name", ["../../../../x/m", "", "{x}", "a.seed1", "a b", "a/b"])
def test_a_methods_name_is_that_of_a_folder(checkout: Path, name: str) -> None:
    methods = {"meanP": {}, name: {"model": "chance"}}
    Path("config/studies/s.yaml").write_text(yaml.safe_dump({**STUDY, "methods": methods}))
    with refusal(f"{FILE}: methods" if " " in name else f"{FILE}: methods: {name!r}"):
        load_config({"studies": ["s"]})


def test_what_a_data_set_cannot_serve(checkout: Path) -> None:
    plain = {"shapes": {"reverse": False}}
    keys = ("evaluation.settings", "training.select_setting", "training.batch.twins_together")
    change = {"training.select_setting": "hard", "training.batch.twins_together": True}
    text = refused(change, *(f"{FILE}: {key}" for key in keys), datasets=plain)
    assert text.count("training.select_setting: ") == 1, "the study's own key, once"
    keys = ("evaluation.settings", "methods.meanP.training.select_setting", "methods.meanP.training.hard_negatives")
    change = {
        "dataset": "stamps",
        "methods.meanP.training": {"select_setting": "hard", "objective": "negclip", "hard_negatives": "twins"},
    }
    refused(change, *(f"{FILE}: {key}" for key in keys))
    text = refused(
        {},
        f"{FILE}: dataset: config/datasets/shapes.yaml",
        datasets={"shapes": {"source.clips": {"train": 8, "valid": 0, "test": 0}}},
    )
    assert text.count("source.clips.valid ") == text.count("source.clips.test ") == 1
    change = {"dataset": "stamps_vectors", "evaluation.settings": ["test"], "frames.noise": True}
    refused(change, f"{FILE}: backbone.kind", f"{FILE}: frames.noise")
    keys = ("evaluation.settings", "backbone.kind", "evaluation.zero_shot", "evaluation.zero_shot.folder: x")
    change = {"dataset": "stamps_vectors", "evaluation.zero_shot": {"folder": "x"}}
    refused(change, *(f"{FILE}: {key}" for key in keys))


def test_parts_of_a_data_set_that_cannot_be_found(checkout: Path) -> None:
    (checkout / "config/datasets").unlink()
    (checkout / "config/datasets").mkdir()
    encoders = {"dataset": "base", "text": {"name": "minilmm"}, "image": {"name": "clip", "weights": "gone.pt"}}
    sources = {"own": {"format": "nolab.reader"}, "made": {"format": "embeddings", "made_from": encoders}}
    for name, source in (*sources.items(), ("base", {"format": "shapes"})):
        Path(f"config/datasets/{name}.yaml").write_text(yaml.safe_dump({"source": source}))
    keys = {"evaluation.settings": ["test"]}
    refused({"dataset": "own", **keys}, "config/datasets/own.yaml: source.format")
    change = {"dataset": "made", **TOWERS, "backbone.kind": "embeddings", **keys}
    places = [f"config/datasets/made.yaml: source.made_from.{key}" for key in ("text.name", "image.weights: gone.pt")]
    refused(change, *places)


def test_a_json_of_sizes_is_looked_into(checkout: Path) -> None:
    for content, further in (
        ("{", []),
        ("[]", []),
        ("[" * 100_000, [f"{FILE}: a.json"]),
        ('{"embed_dim": 8, "embed_dim": 9}', []),
        ('{"embed_dim": NaN}', []),
        (json.dumps({"embed_dim": 8}), []),
    ):
        Path("a.json").write_text(content)
        places = [f"{FILE}: backbone.architecture: a.json", *further]
        words = r"Expecting .*|\(maximum .*?\)"  # of Python's
        text = refused({"backbone.architecture": "a.json"}, *places, varying=words)
        assert text.count("backbone.architecture: ") == 1
    refused({"backbone.architecture": "gone/a.json"}, f"{FILE}: backbone.architecture: gone/a.json")


def test_a_file_of_opposites_is_looked_into(checkout: Path) -> None:
    change = {"methods.meanP.training": {"objective": "negclip", "hard_negatives": "opposites.csv"}}
    key = f"{FILE}: methods.meanP.training.hard_negatives"
    refused(change, f"{key}: opposites.csv")
    Path("opposites.csv").write_text("word,opposite,confirmed\nopens,closes,perhaps\n")
    refused(change, f"{key}: opposites.csv: row 2")
    Path("opposites.csv").write_text("caption_id,opposite\nc1,\n")
    refused(change, f"{key}: opposites.csv: row 2")


def test_a_vocabulary_is_looked_into(checkout: Path) -> None:
    for name, raw in (
        ("v.txt", "caf\u00e9\n".encode("latin-1")),
        ("v.txt", b""),
        ("v.json", b'[{"caption": "a"},\n{"caption": "\\ud800"}]'),
    ):
        Path(name).write_bytes(raw)
        change = {"text": {"tokenizer": "miniclip", "vocabulary": name}, "backbone.kind": "miniclip_towers"}
        refused(change, f"{FILE}: text.vocabulary: {name}", f"{FILE}: backbone.architecture")


def test_every_check_is_in_the_list_and_needs_something_that_is_known() -> None:
    written = {
        value for value in vars(checks).values() if inspect.isfunction(value) and value.__module__ == checks.__name__
    }
    own = {check for check in written if list(inspect.signature(check).parameters) == ["inputs"]}
    assert own == {check.run for check in checks.CHECKS}
    inputs = checks.Preflight({})
    assert all(hasattr(inputs, check.needs) for check in checks.CHECKS)


def test_just_before_the_first_job_the_first_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    studies = {"demo": SimpleNamespace(resources=SimpleNamespace(gpus=8))}
    lost = ["results/data/d/videos/shards/0-of-1.tar"]
    planned = [("video_shard", lost, "origin"), ("videos", ["results/data/d/videos/report.csv"], "")]
    monkeypatch.setattr(checks, "count_visible_gpus", lambda: 2)
    with refusal("config/studies/demo.yaml: resources.gpus", error=ConfigErrors):
        checks.run_checks("start", checks.Preflight(studies, lost=lost, planned=planned, local=True))
    with refusal("results/data/d/videos/shards/0-of-1.tar"):
        checks.run_checks("start", checks.Preflight(studies, lost=lost, planned=planned))
    monkeypatch.setattr(checks, "count_visible_gpus", lambda: 0)
    checks.run_checks("start", checks.Preflight(studies, lost=lost, planned=planned[:1], local=True))


def test_an_ffmpeg_without_the_encoder_is_told_before_the_first_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "ffmpeg"
    fake.write_text("#!/bin/sh\necho ' V....D mpeg4'\n")
    fake.chmod(0o755)
    monkeypatch.setattr("rewind.video.ffmpeg.executable", lambda: str(fake))
    monkeypatch.setattr(checks, "count_visible_gpus", lambda: 0)
    clips, pictures = (SimpleNamespace(items=items, vectors=False) for items in ("videos", "images"))
    planned = [("video_shard", ["results/data/d/videos/shards/0-of-1.tar"], "")]
    with refusal(str(fake)):
        checks.run_checks("start", checks.Preflight({}, {"d": clips}, planned=planned, local=True))
    checks.run_checks("start", checks.Preflight({}, {"d": clips}, planned=[("train", [], "")], local=True))
    checks.run_checks("start", checks.Preflight({}, {"d": pictures}, planned=planned, local=True))
    checks.run_checks("start", checks.Preflight({}, {"d": clips}, planned=planned))  # on nodes with an ffmpeg of theirs


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"methods.meanP.head_layers": 2}, "methods.meanP.head_layers: head"),
        ({"methods.meanP.head_start": "random"}, "methods.meanP.head_start: head"),
        ({"methods.chance.head": "seqTransf"}, "methods.chance.head: model"),
        ({"methods.chance.training.lora": {"rank": 4}}, "methods.chance.training.lora"),
        ({"methods.chance.training.lr": 0.5}, "methods.chance.training.lr"),
        ({"methods.chance.noise": True}, "methods.chance.noise"),
        ({"training.optimiser": "bert_adam", "training.lr_floor": 0.1}, "training.lr_floor: optimiser"),
        ({"text.vocabulary": "words.txt"}, "text.vocabulary: tokenizer"),
        ({"backbone.token_mask": 0.5}, "backbone.token_mask: kind"),
        ({"backbone.width": 64}, "backbone.width: kind"),
        ({"pretraining": {"method": {"rerank": {"first": "meanP"}}}}, "pretraining.method.rerank"),
        ({"pretraining": {"method": {"training": {"lr": 0.5}}}}, "pretraining.method.training"),
        ({"pretraining": {"method": {"noise": True}}}, "pretraining.method.noise"),
        (
            {"evaluation.directions": ["text_to_item"], "evaluation.item_to_text": "best_caption"},
            "evaluation.item_to_text",
        ),
    ],
)
def test_a_key_that_nothing_reads_where_it_stands_is_refused(checkout: Path, change: dict, place: str) -> None:
    write("s", change)
    with refusal(f"{FILE}: {place}", error=ConfigErrors):
        load_study("s", "config/studies")


@pytest.mark.slow
def test_only_what_was_found_sound_is_remembered(checkout: Path) -> None:
    write("s", {})
    probe = (
        "import sys; from pathlib import Path; from rewind.workflow.config import load_checked_config\n"
        "slow = {'torch', 'torch._dynamo', 'sympy', 'scipy.special'}\n"  # imports of a second and more
        "try: load_checked_config({'studies': ['s']}, Path('sound.json')); print('sound', *slow & set(sys.modules))\n"
        "except Exception as error: print(error)\n"
    )

    def ask(code: str) -> list[str]:
        command, env = [sys.executable, "-c", code], os.environ | {"PYTHONPATH": str(ROOT / "src")}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()

    assert ask(probe) == ["sound torch"] and ask(probe) == ["sound"], "the second time no part is tried again"
    write("s", {"methods.meanP.head": "foo"})
    found = "\n".join(ask(f"{probe}Path('sound.json').write_text('torn')\n{probe}"))
    assert found.count("methods.meanP.head: ") == found.count("'foo'") == 2 and "sound" not in found


def test_a_study_without_training_needs_no_seed_and_no_check(checkout: Path) -> None:
    methods = {"bow": {"model": "bow"}, "chance": {"model": "chance"}}
    Path("config/studies/s.yaml").write_text(yaml.safe_dump({"dataset": "shapes", "methods": methods}))
    study = load_study("s")
    assert study.runs() == [("bow", 0), ("chance", 0)] and study.sanity is None and study.pictured() == ("bow", 0)
    for keys, where in (
        ({"sanity": {"clips": 4}}, "sanity"),
        ({"sweep": {"max_frames": [2], "method": "bow"}}, "sweep.method"),
        ({"evaluation": {"zero_shot": {"folder": "x"}}}, "evaluation.zero_shot"),
    ):
        Path("config/studies/s.yaml").write_text(yaml.safe_dump({"dataset": "shapes", "methods": methods, **keys}))
        with refusal(f"{FILE}: {where}"):
            load_study("s")


def test_a_submission_that_cannot_be_written_is_refused_where_it_is_asked_for(checkout: Path) -> None:
    write("s", {})
    load_checked_config({"studies": ["s"]}, targets=["--cores", "1", "results/s/tables"])
    with refusal("config/datasets/shapes.yaml: source.test: empty", error=ConfigErrors):
        load_checked_config({"studies": ["s"]}, targets=["results/s/submission/meanP.seed0.csv"])
    write("t", {})
    targets = [f"results/{name}/submission/meanP.seed0.csv" for name in ("s", "t")]
    with refusal("config/datasets/shapes.yaml: source.test: empty", error=ConfigErrors) as both:  # of one data set
        load_checked_config({"studies": ["s", "t"]}, targets=targets)
    assert all(f" study {name} " in str(both.value) for name in ("s", "t"))


@pytest.mark.workflow
def test_gpus_that_this_machine_has_not_are_refused_before_the_first_job(checkout: Path) -> None:
    """With the real command; which GPUs there are is what the driver's program says."""
    program = checkout / "bin/nvidia-smi"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho GPU-one\n")
    program.chmod(0o755)
    for name in ("workflow", "src", "profiles", "Snakefile"):
        (checkout / name).symlink_to(ROOT / name)
    write("s", {"resources.gpus": 2})
    (checkout / "config/config.yaml").write_text("studies: [s]\n")
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PATH": f"{program.parent}:{os.environ['PATH']}"}
    env.pop("CUDA_VISIBLE_DEVICES", None)
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "results/data/shapes/source/ready.json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    text = done.stdout + done.stderr
    assert done.returncode and "resources.gpus: 2, but this machine has 1" in text and "Traceback" not in text
    assert not (checkout / "results/data/shapes/source/ready.json").exists()


def test_a_study_has_no_name_of_the_workflows_own_folders(checkout: Path) -> None:
    Path("config/studies/rehearsal.yaml").write_text(yaml.safe_dump(STUDY))
    with refusal("config/studies/rehearsal.yaml: name"):
        load_config({"studies": ["rehearsal"]})
