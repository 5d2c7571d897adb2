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
from rewind.errors import ConfigErrors, RewindError
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


def said(change: dict, datasets: dict | None = None) -> dict[str, list[str]]:
    """File → lines of what is refused."""
    write("s", change)
    if "methods" in change:
        Path("config/studies/s.yaml").write_text(
            yaml.safe_dump(merge_config({**STUDY, "methods": {}}, {"sanity": None, **change}))
        )
    config = {"studies": ["s"], "overrides": {"datasets": datasets or {}}}
    with pytest.raises(ConfigErrors) as caught:
        load_checked_config(config)
    return caught.value.files


def refused(change: dict, datasets: dict | None = None) -> str:
    return "\n".join(line for lines in said(change, datasets).values() for line in lines)


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
    with pytest.raises(ConfigErrors) as caught:
        load_checked_config({"studies": ["one", "two", "three"], "overrides": over})
    files = {Path(path).stem: "\n".join(lines) for path, lines in caught.value.files.items()}
    assert list(files) == ["one", "two", "three", "shapes"]
    assert "training.lrr: unknown key; did you mean 'lr'?" in files["one"] and "seeds: -1 is not a seed" in files["one"]
    assert "figures.method: no method 'meanQ'; available: meanP, chance; did you mean 'meanP'?" in files["one"]
    assert "methods.meanP.head: cannot find 'meanp': no such head. Did you mean meanP?" in files["one"]
    assert files["one"].count("evaluation.settings: ") == 3, "origin, hard and binary without twins"
    assert "backbone.weights: gone.pt: no such file" in files["two"] and "'test' is listed twice" in files["two"]
    assert "training.objective: cannot find 'infonc'" in files["two"] and "no such file" in files["three"]
    assert files["shapes"].startswith("video.fps: Input should be greater than or equal to 0.01")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods.meanP.seeds": [1, 1]}, "methods.meanP.seeds: seed 1 is listed twice"),
        ({"seeds": [2**32]}, "seeds: 4294967296 is not a seed: give whole numbers from 0 to 4,294,967,295"),
        ({"statistics.seed": -1}, "statistics.seed: Input should be greater than or equal to 0"),
        ({"pretraining": {"seed": 2**32}}, "pretraining.seed: Input should be less than or equal to 4294967295"),
        ({"statistics.pairs": [["meanP", "chance"], ["chance", "meanP"]]}, "[chance, meanP] is listed twice"),
        ({"statistics.pairs": [["meanP", "meanP"]]}, "compares a method with itself"),
        ({"tables.columns": ["R@1", "R@5", "R@1"]}, "tables.columns: 'R@1' is listed twice"),
        ({"tables.columns": ["R@1", "text_to_item R@1"]}, "are the same column"),
        ({"evaluation.directions": ["text_to_item"] * 2}, "evaluation.directions: 'text_to_item' is listed twice"),
        ({"sweep": {"max_frames": [2, 2], "method": "meanP"}}, "sweep.max_frames: 2 is listed twice"),
        ({"sweep": {"max_frames": [2], "method": "chance"}}, "sweep.method: 'chance' is not trained"),
        ({"sanity.method": "chance"}, "sanity.method: 'chance' is not trained, so there is nothing to over-fit"),
        ({"training.lr": float("nan")}, "training.lr: Input should be a finite number"),
        ({"text.max_vocabulary": 100}, "text.max_vocabulary: tokenizer: words does not read it; remove the key"),
        ({"training.clip_norm": float("inf")}, "training.clip_norm: Input should be a finite number"),
        ({"training.betas": [0.9, 1.0]}, "training.betas: 1 is not a number from 0 to below 1"),
        ({"frames.rate": 1e-9}, "frames.rate: Input should be greater than or equal to 0.01"),
        ({"training.objective_options": {"temperature": float("inf")}}, "temperature: Input should be a finite number"),
        ({"training.objective_options": {"temprature": 1}}, "training.objective_options.temprature: objective"),
        ({"methods.meanP.training.objective_options": {"x": 1}}, "methods.meanP.training.objective_options.x: "),
        ({"training.batch.sampler_options": {"x": 1}}, "training.batch.sampler_options.x: uniform has no options"),
        ({"training.batch": {"sampler": "pk", "sampler_options": {"captions": 3}}}, "captions: 3 does not divide"),
        ({"training.batch": {"sampler": "topical", "twins_together": True}}, "combined with sampler: topical"),
        ({"methods.meanP.head": "tightTransf", "methods.meanP.head_start": "random", "training.objective": "hnac"},
         "methods.meanP.head: TightTransf scores pairs"),
        ({"methods.meanP.head": "seqTransf"}, "methods.meanP.head_start: seqTransf cannot start from"),
        ({"methods.meanP.head": "nolab.heads.First"}, "looked for in the folders of PYTHONPATH"),
        ({"methods.meanP.model": "nolab.retriever"}, "methods.meanP.model: cannot find 'nolab.retriever'"),
        ({"methods.meanP.model": "clip5clip"}, "methods.meanP.model: cannot find 'clip5clip'"),
        ({"methods.chance.options": {"a": 1}}, "methods.chance.options.a: the baseline 'chance' has no such option"),
        ({"methods.d": {"model": "dual_encoder", "options": {"heads": 5, "cross_attention": True}}}, "into 5 heads"),
        ({"methods.r": {"model": "ridge"}}, "methods.r.training.freeze: a closed-form baseline needs cached features"),
        ({"methods.n": {"noise": True, "training": {"freeze": ["visual"]}}}, "methods.n.noise: cached features"),
        ({"methods.t": {"model": "translator", "head": "mlp9"}}, "this needs a dataset of vectors"),
        ({"methods.z": {"model": "zero_shot"}}, "methods.z.model: zero_shot: its backbone has no trained weights"),
        ({"methods.z": {"model": "clip_zero_shot"}}, "methods.z.options: model: clip_zero_shot needs weights"),
        ({"backbone.architecture": "ViT-B-33"}, "backbone.architecture: open_clip knows no 'ViT-B-33'"),
        ({"backbone": {"kind": "viclip", "architecture": "viclip-x"}}, "kind: viclip has viclip-b"),
        ({"backbone.kind": "clop"}, "backbone.kind: cannot find 'clop'"),
        ({"text.max_words": 30}, "text.max_words: 30 is more than the architecture's context length 24"),
        ({"training.freeze_layers": 4}, "training.freeze_layers: 4, but a tower has only 3 blocks"),
        ({"backbone.kind": "towers", "training.freeze_layers": 0}, "this backbone has no transformer blocks to freeze"),
        ({"backbone.kind": "towers", "training.compile": True}, "training.compile: this backbone has no towers"),
        ({"backbone.kind": "towers", "pretraining": {}}, "pretraining: kind: towers cannot start from a backbone"),
        ({"figures.embedding": "umap"}, "figures.embedding: umap needs a package that is not installed"),
        ({"resources.gpus": 3}, "training.batch.size: 16 pairs cannot be divided equally among resources.gpus: 3"),
        ({"evaluation.zero_shot": {"folder": "nowhere"}}, "evaluation.zero_shot.folder: nowhere: no test_batch.bin"),
        ({"methods": {"chance": {"model": "chance"}}, "evaluation.zero_shot": {"folder": "x"}}, "no method here has"),
        ({"dataset": "../shapes"}, "dataset: no name of a file"),
    ],
)  # fmt: skip
def test_each_fault_is_told_with_its_key(checkout: Path, change: dict, message: str) -> None:
    if "umap" in message and importlib.util.find_spec("umap"):
        pytest.skip("it is installed here")
    assert message in refused(change)


@pytest.mark.parametrize("name", ["../../../../x/m", "", "{x}", "a.seed1", "a b", "a/b"])
def test_a_methods_name_is_that_of_a_folder(checkout: Path, name: str) -> None:
    methods = {"meanP": {}, name: {"model": "chance"}}
    Path("config/studies/s.yaml").write_text(yaml.safe_dump({**STUDY, "methods": methods}))
    with pytest.raises(RewindError, match="a method's name also names its folders: use only letters, digits, - and _"):
        load_config({"studies": ["s"]})


def test_what_a_data_set_cannot_serve(checkout: Path) -> None:
    plain = {"shapes": {"reverse": False}}
    text = refused({"training.select_setting": "hard", "training.batch.twins_together": True}, plain)
    assert text.count("training.select_setting: 'hard' needs time-reversed twins") == 1, "the study's own key, once"
    assert "training.batch.twins_together: true needs time-reversed twins" in text and "says reverse: false" in text
    text = refused({"dataset": "stamps", "methods.meanP.training.select_setting": "hard"})
    assert "config/datasets/stamps.yaml holds images; use [test]" in text
    assert "methods.meanP.training.select_setting: 'hard' needs" in text
    lines = refused({}, {"shapes": {"source.clips": {"train": 8, "valid": 0, "test": 0}}})
    assert "source.clips.valid is 0 or missing, but method meanP chooses its checkpoint on it" in lines
    assert "source.clips.test is 0 or missing" in lines
    text = refused({"dataset": "stamps_vectors", "evaluation.settings": ["test"], "frames.noise": True})
    assert (
        "backbone.kind: clip reads clips or images" in text and "frames.noise: cached features and a dataset's" in text
    )
    assert "evaluation.zero_shot: prompts" in refused(
        {"dataset": "stamps_vectors", "evaluation.zero_shot": {"folder": "x"}}
    )


def test_parts_of_a_data_set_that_cannot_be_found(checkout: Path) -> None:
    (checkout / "config/datasets").unlink()
    (checkout / "config/datasets").mkdir()
    encoders = {"dataset": "base", "text": {"name": "minilmm"}, "image": {"name": "clip", "weights": "gone.pt"}}
    sources = {"own": {"format": "nolab.reader"}, "made": {"format": "embeddings", "made_from": encoders}}
    for name, source in (*sources.items(), ("base", {"format": "shapes"})):
        Path(f"config/datasets/{name}.yaml").write_text(yaml.safe_dump({"source": source}))
    keys = {"evaluation.settings": ["test"]}
    assert "source.format: cannot find 'nolab.reader'" in refused({"dataset": "own", **keys})
    text = refused({"dataset": "made", "backbone": {"kind": "embeddings"}, **keys})
    assert "source.made_from.text.name: no encoder 'minilmm'; available: minilm, clip" in text
    assert "source.made_from.image.weights: gone.pt: no such file" in text


def test_a_json_of_sizes_is_looked_into(checkout: Path) -> None:
    for content, message in (
        ("{", "not valid JSON"),
        ("[]", "a JSON object with embed_dim"),
        ("[" * 100_000, "backbone.architecture: a.json: lists and objects are nested too deeply"),
        ('{"embed_dim": 8, "embed_dim": 9}', "a.json: row 1, character 18: the key 'embed_dim' is given twice"),
        ('{"embed_dim": NaN}', "a.json: row 1, character 15: NaN is no JSON"),
        (json.dumps({"embed_dim": 8}), "vision_cfg is missing"),
    ):
        Path("a.json").write_text(content)
        text = refused({"backbone.architecture": "a.json"})
        assert message in text and text.count("backbone.architecture: ") == 1
    assert "a.json: no such file" in refused({"backbone.architecture": "gone/a.json"})


def test_a_vocabulary_is_looked_into(checkout: Path) -> None:
    for name, raw, message in (
        ("v.txt", "caf\u00e9\n".encode("latin-1"), "v.txt: not UTF-8: row 1, character 4 is the byte 0xE9"),
        ("v.txt", b"", "v.txt: the file is empty"),
        ("v.json", b'[{"caption": "a"},\n{"caption": "\\ud800"}]', "v.json: row 2, character 14: \\ud800 is half"),
    ):
        Path(name).write_bytes(raw)
        change = {"text": {"tokenizer": "miniclip", "vocabulary": name}}
        assert f"text.vocabulary: {message}" in refused({**change, "backbone.kind": "miniclip_towers"})


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
    planned = [("video_shard", lost), ("videos", ["results/data/d/videos/report.csv"])]
    monkeypatch.setattr(checks, "count_visible_gpus", lambda: 2)
    with refusal("config/studies/demo.yaml: resources.gpus", error=ConfigErrors):
        checks.run_checks("start", checks.Preflight(studies, lost=lost, planned=planned, local=True))
    with refusal("results/data/d/videos/shards/0-of-1.tar"):
        checks.run_checks("start", checks.Preflight(studies, lost=lost, planned=planned))
    monkeypatch.setattr(checks, "count_visible_gpus", lambda: 0)
    checks.run_checks("start", checks.Preflight(studies, lost=lost, planned=planned[:1], local=True))


def test_only_what_was_found_sound_is_remembered(checkout: Path) -> None:
    write("s", {})
    probe = (
        "import sys; from pathlib import Path; from rewind.workflow.config import load_checked_config\n"
        "try: load_checked_config({'studies': ['s']}, Path('sound.json')); print('sound', 'torch' in sys.modules)\n"
        "except Exception as error: print(error)\n"
    )

    def ask(code: str) -> list[str]:
        command, env = [sys.executable, "-c", code], os.environ | {"PYTHONPATH": str(ROOT / "src")}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.splitlines()

    assert ask(probe) == ["sound True"] and ask(probe) == ["sound False"], "the second time no part is tried again"
    write("s", {"methods.meanP.head": "foo"})
    found = "\n".join(ask(f"{probe}Path('sound.json').write_text('torn')\n{probe}"))
    assert found.count("methods.meanP.head: cannot find 'foo'") == 2 and "sound" not in found


def test_a_study_without_training_needs_no_seed_and_no_check(checkout: Path) -> None:
    methods = {"bow": {"model": "bow"}, "chance": {"model": "chance"}}
    Path("config/studies/s.yaml").write_text(yaml.safe_dump({"dataset": "shapes", "methods": methods}))
    study = load_study("s")
    assert study.runs() == [("bow", 0), ("chance", 0)] and study.sanity is None and study.pictured() == ("bow", 0)
    for keys, where in (
        ({"sanity": {"clips": 4}}, "sanity"),
        ({"sweep": {"max_frames": [2], "method": "bow"}}, "sweep"),
        ({"evaluation": {"zero_shot": {"folder": "x"}}}, "evaluation.zero_shot"),
    ):
        Path("config/studies/s.yaml").write_text(yaml.safe_dump({"dataset": "shapes", "methods": methods, **keys}))
        with pytest.raises(
            RewindError, match=rf"{where}.*(no method here (is trained|has towers)|'bow' is not trained)"
        ):
            load_study("s")


def test_a_submission_that_cannot_be_written_is_refused_where_it_is_asked_for(checkout: Path) -> None:
    write("s", {})
    load_checked_config({"studies": ["s"]}, targets=["--cores", "1", "results/s/tables"])
    with refusal("config/datasets/shapes.yaml: source.test: empty", error=ConfigErrors):
        load_checked_config({"studies": ["s"]}, targets=["results/s/submission/meanP.seed0.csv"])
    write("t", {})
    targets = [f"results/{name}/submission/meanP.seed0.csv" for name in ("s", "t")]
    with pytest.raises(ConfigErrors) as both:  # of one data set
        load_checked_config({"studies": ["s", "t"]}, targets=targets)
    assert all(f"a submission of study {name} needs" in str(both.value) for name in ("s", "t"))


@pytest.mark.slow
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
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    text = done.stdout + done.stderr
    assert done.returncode and "resources.gpus: 2, but this machine has 1" in text and "Traceback" not in text
    assert not (checkout / "results/data/shapes/source/ready.json").exists()


def test_a_study_has_no_name_of_the_workflows_own_folders(checkout: Path) -> None:
    Path("config/studies/rehearsal.yaml").write_text(yaml.safe_dump(STUDY))
    with refusal("config/studies/rehearsal.yaml: name"):
        load_config({"studies": ["rehearsal"]})
