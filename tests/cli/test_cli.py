"""The command ``rewind``: the doctor, and exporting a run."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest
import torch

from checkout import ROOT
from messages import expect_error, expect_message
from rewind.cli import doctor
from rewind.cli.doctor import Finding, format_findings
from rewind.cli.main import COMMAND_GROUPS, _build_parser, main
from rewind.config import Backbone, Frames, Method, RunSpec, Text
from rewind.config.evaluation import Evaluation
from rewind.errors import RewindError
from rewind.io.files import write_json
from rewind.models.checkpoint import save_model
from rewind.models.clip import ClipTowers
from rewind.models.clip4clip import Clip4Clip
from rewind.models.clip4clip_checkpoint import CLIP4CLIP_HEADS, read_clip4clip
from rewind.models.heads import head_class
from rewind.optional_packages import open_clip
from rewind.provenance import environment, hardware
from rewind.video import readers

CONFIG = {
    "embed_dim": 64,
    "quick_gelu": True,
    "vision_cfg": {"image_size": 16, "layers": 1, "width": 64, "patch_size": 8},
    "text_cfg": {"context_length": 8, "vocab_size": 30, "width": 64, "heads": 1, "layers": 1},
}


class Tokens:
    vocabulary = 30


def _options(parser: argparse.ArgumentParser, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Every option of every command, with the command's words."""
    found = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found += [option for name, one in action.choices.items() for option in _options(one, (*path, name))]
        else:
            found.append((path, action))
    return found


def test_no_option_takes_what_is_not_finite(capsys):
    types = {(*path, action.dest): action.type for path, action in _options(_build_parser())}
    assert [at for at, kind in types.items() if kind is float] == [], "type=float takes nan and inf"
    assert {("power", "seed_sd"), ("power", "r1"), ("power", "alike"), ("rehearse", "gpu_tflops")} <= types.keys()
    for command in (["power", "demo", "--seed-sd"], ["rehearse", "demo", "--gpu-tflops"]):
        for value in ("nan", "inf", "-inf", "1e999", "x"):
            with pytest.raises(SystemExit):
                main([*command[:-1], f"{command[-1]}={value}"])
            said = capsys.readouterr().err.splitlines()[-1].partition(": error: ")[2]
            assert command[-1] in said and f"'{value}'" in said
            expect_message(said)


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (commands,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return commands.choices


def test_help_lists_every_command_under_one_heading_with_a_sentence(capsys, monkeypatch):
    grouped = [name for names in COMMAND_GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(_commands(_build_parser())) and len(set(grouped)) == len(grouped)
    for columns in ("60", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        with pytest.raises(SystemExit) as stopped:
            main(["--help"])
        page = capsys.readouterr().out
        assert stopped.value.code == 0 and max(map(len, page.splitlines())) <= int(columns)
        headings = [line[:-1] for line in page.splitlines() if re.fullmatch(r"[a-z]+:", line)]
        assert headings == ["start", "run", "inspect", "share", "maintain", "options"]
        listed = re.findall(r"^    ([a-z][\w-]*)(?:$\n {16}| +)([A-Z]\w+ )", page, re.M)
        assert [name for name, _ in listed] == grouped, "each with the beginning of a sentence"
    expect_message("\n".join(line for line in page.splitlines() if line.startswith("    why ")))


def test_every_command_describes_itself():
    parsers = list(_commands(_build_parser()).items())
    for name, parser in parsers:  # which grows by commands of commands
        assert re.match(r"[A-Z].*\.$", parser.description, re.S), name
        if any(isinstance(action, argparse._SubParsersAction) for action in parser._actions):
            parsers += [(f"{name} {inner}", one) for inner, one in _commands(parser).items()]


def test_help_of_accept_says_what_is_written_and_whose_claim_it_is(capsys):
    with pytest.raises(SystemExit):
        main(["accept", "--help"])
    said = capsys.readouterr().out.partition("\n\n")[2].partition("\n\npositional arguments:")[0]
    assert "results/<study>/accepted.json" in said and ".snakemake/metadata" in said and " claim" in said
    expect_message(" ".join(said.split()))


def test_the_doctor_shows_what_a_run_records(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    here = environment()
    for name in ("torch", "open-clip-torch", here["frame_reader"].split()[0]):
        assert f"{name} " in text and here["packages"][name] in text
    assert f"frames are read by {here['frame_reader']}" in " ".join(text.split())
    assert here["ffmpeg"].startswith("ffmpeg version") and here["ffmpeg"] in text
    assert (here["git"]["commit"] or "no git checkout") in text
    for subject in ("Python", "CUDA", "cuDNN", "driver", "GPUs", "cores", "memory", "free disk"):
        assert f" {subject} " in text
    assert text.splitlines()[-1].startswith(("Rewind can run", "Everything that is needed is installed."))


def part(text: str, *beginnings: str) -> str:
    """The lines that begin so, behind their mark."""
    kept = re.compile(rf"(?:\w+ +)?(?:{'|'.join(beginnings)})")
    return "\n".join(line for line in text.splitlines() if kept.match(line))


@pytest.mark.slow
def test_the_doctor_names_studies_that_lack_their_weights(tmp_path):
    folder = tmp_path / "config/studies"
    folder.mkdir(parents=True)
    towers = {
        "random": "{kind: miniclip_towers, architecture: resnet18}",
        "absent": "{weights: data/none.safetensors}",
        "small": "{architecture: config/models/tiny.json}",
        "packaged": "{kind: miniclip_towers, architecture: efficientnet_lite0}",
    }
    for name, backbone in towers.items():
        text = "text: {tokenizer: miniclip}\n" if "miniclip" in backbone else ""
        (folder / f"{name}.yaml").write_text(f"dataset: d\nbackbone: {backbone}\n{text}methods: {{a: {{}}}}\n")
    (folder / "broken.yaml").write_text("dataset: [\n")
    command = [sys.executable, "-m", "rewind", "doctor", *sorted([*towers, "broken"])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    last = done.stdout.splitlines()[-1]
    assert done.returncode == 0 and last.endswith("study absent, study broken, study random."), "as said above it"
    expect_message(part(done.stdout, "study (absent|random)"))
    assert "study broken" in done.stdout and "study small" not in done.stdout and "study packaged" not in done.stdout


@pytest.mark.slow
def test_a_reader_who_leaves_gets_no_traceback():
    command = f"{sys.executable} -u {ROOT / 'tools/publish'} --check | head -n 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert "Traceback" not in done.stderr and done.stdout.count("\n") == 1


def test_without_a_gpu_the_doctor_is_content_but_says_so(capsys, monkeypatch):
    monkeypatch.setattr(
        "rewind.provenance.hardware", lambda: {"devices": ["CPU"], "gpus": 0, "cuda": None, "cudnn": None}
    )
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "\nnone    GPUs " in text
    expect_message(part(text, "GPUs"))


def test_a_missing_ffmpeg_fails_the_doctor(capsys, monkeypatch):
    def absent():
        raise RewindError("no ffmpeg")

    monkeypatch.setattr("rewind.video.ffmpeg.executable", absent)
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "MISSING ffmpeg" in text and "pip install imageio-ffmpeg" in text
    expect_message(part(text, "ffmpeg:|1 of"))


def test_an_ffmpeg_without_the_encoder_fails_the_doctor(capsys, monkeypatch, tmp_path):
    fake = tmp_path / "ffmpeg"
    fake.write_text("#!/bin/sh\necho 'ffmpeg version 6.1 Copyright'\n")
    fake.chmod(0o755)
    monkeypatch.setattr("rewind.video.ffmpeg.executable", lambda: str(fake))
    assert main(["doctor"]) == 1
    assert "without libx264" in capsys.readouterr().out


def test_requirements_that_are_not_met_are_named(capsys, monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: ["torch>=99", "no-such-package>=2", "ruff; extra == 'dev'"])
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert f" {metadata.version('torch')} (>=99 " in text and "MISSING no-such-package" in text and "ruff" not in text
    expect_message(part(text, ".*no-such-package|2 of"))


def test_a_package_that_does_not_load_is_named(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["doctor"]) == 1
    assert "MISSING pyarrow" in capsys.readouterr().out


def test_the_doctor_says_what_reads_frames_or_what_to_install(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(readers, "_is_installed", lambda name: False)
    assert main(["doctor"]) == 1
    expect_message(part(capsys.readouterr().out, "frames"))

    (tmp_path / "av.py").write_text("raise ImportError('libavcodec.so.62: cannot open shared object file')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "av", raising=False)
    monkeypatch.setattr(readers, "_is_installed", lambda name: name == "av")
    assert main(["doctor"]) == 1
    expect_message(part(capsys.readouterr().out, "av"))


def test_without_an_installation_the_doctor_says_how(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "DISTRIBUTION_NAME", "no-such-distribution")
    assert main(["doctor"]) == 1
    text = part(capsys.readouterr().out, "packages")
    assert text.startswith("MISSING ")
    expect_message(text, varying=r"\(No .*?\)")  # Python's words


def test_optional_findings_do_not_count():
    text = format_findings([Finding("a", "1"), Finding("b", "none", False, "get b", needed=False)])
    assert text.splitlines()[:2] == ["ok      a  1", "none    b  none"] and "b: get b" in text
    expect_message(text)
    expect_message(format_findings([Finding("a", "1")]))
    expect_message(format_findings([Finding("a", "1", False, "get a"), Finding("b", "", False, "", needed=False)]))


def test_the_record_of_a_run_names_the_machine():
    here = hardware()
    assert {"devices", "gpus", "cuda", "cudnn"} <= here.keys() and here["gpus"] == torch.cuda.device_count()
    assert {"ffmpeg", "driver"} <= environment().keys()
    json.dumps(here | environment())


def test_the_command_starts_without_torch():
    code = "import sys; from rewind.cli.main import _build_parser; _build_parser(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.fixture
def run(tmp_path):
    """A finished run's folder, and its model."""

    def make(config=CONFIG, model="clip4clip", kind="clip", head="seqTransf"):
        torch.manual_seed(0)
        folder = tmp_path / "results/s/runs/m/seed0"
        folder.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tiny.json").write_text(json.dumps(config))
        clip = open_clip("model").CLIP(**config)
        retriever = Clip4Clip(ClipTowers(clip, Tokens(), 8), head_class(head)(64, layers=2, positions=77))
        save_model(folder / "model.safetensors", retriever, {})
        spec = RunSpec(
            backbone=Backbone(kind=kind, architecture=str(tmp_path / "tiny.json")),
            frames=Frames(),
            text=Text(),
            evaluation=Evaluation(),
            method=Method(model=model, head=head),
        )
        write_json(folder / "run.json", {"spec": spec.model_dump(mode="json")})
        return folder, retriever

    return make


@pytest.mark.parametrize("head", CLIP4CLIP_HEADS)
def test_a_run_is_exported(run, tmp_path, head, capsys):
    folder, retriever = run(head=head)
    out = tmp_path / "out/pytorch_model.bin.4"
    assert main(["export-clip4clip", str(folder), str(out)]) == 0
    assert f"{out}: written" in capsys.readouterr().out
    found, state = read_clip4clip(out)
    own = retriever.state_dict()
    assert found == head and state.keys() == own.keys() and all(torch.equal(state[n], own[n]) for n in own)


@pytest.mark.parametrize(
    "changes", [{"config": CONFIG | {"quick_gelu": False}}, {"model": "ridge"}, {"kind": "towers"}]
)
def test_a_run_that_upstream_cannot_compute_is_refused(run, tmp_path, capsys, changes):
    folder, _ = run(**changes)
    assert main(["export-clip4clip", str(folder), str(tmp_path / "out.bin")]) == 1
    expect_error(capsys.readouterr().err, "results/s/runs/m/seed0")
    assert not (tmp_path / "out.bin").exists()


def test_a_folder_without_a_run_is_refused(tmp_path, capsys):
    assert main(["export-clip4clip", str(tmp_path), str(tmp_path / "out.bin")]) == 1
    expect_error(capsys.readouterr().err, "run.json")
