"""Commands that messages print run as they stand, for a study that is not the default one."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from checkout import ROOT
from own_study import make_own_study
from rewind.cli.clips import find_data_folder
from rewind.commands import prepare_command, rewind_command, snakemake_command
from rewind.errors import RewindError
from rewind.search.run import open_run
from rewind.video import frame_store, frames, shards
from rewind.workflow.checksums import how_to_remake, how_to_restore
from rewind.workflow.what_ran import find_study

WRITERS = ("snakemake_command", "prepare_command", "how_to_remake")
VIDEOS = "results/data/mylab/videos"
STORE = "results/own/frames/frames3/index.json"
SHARD = f"{VIDEOS}/shards/0-of-1.tar"


def refused(call, *arguments) -> str:
    with pytest.raises(RewindError) as caught:
        call(*arguments)
    return str(caught.value)


def unfinished_run() -> str:
    Path("results/own/runs/meanP/seed0").mkdir(parents=True)
    return refused(open_run, "results/own/runs/meanP/seed0")


def tables_of_shards(shard_rows: str, files: tuple[str, ...] = ()) -> str:
    """What is said of an index of one clip beside this table of shards."""
    for name in files:
        (Path(VIDEOS) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(VIDEOS) / name).write_text("")
    Path(VIDEOS).mkdir(parents=True, exist_ok=True)
    (Path(VIDEOS) / "clips.csv").write_text("name,shard,offset,bytes,sha256\n")
    (Path(VIDEOS) / "shards.csv").write_text(f"shard,files,bytes,sha256\n{shard_rows}")
    return refused(shards.verify_shards, Path(VIDEOS))


# Module → function → its message, or the command alone where it takes a whole run to get the message.
MESSAGES = {
    "cli/clips.py": {
        "_read_items": lambda: how_to_remake("results/data/mylab/items.csv"),
        "find_data_folder": lambda: refused(find_data_folder, "own"),
    },
    "cli/evaluate.py": {
        "run_evaluation": lambda: f"`{snakemake_command('results/data/mylab/items.csv', study='own')}`",
    },
    "cli/init/command.py": {"_print_next_steps": lambda: f"`{snakemake_command(study='own')}`"},
    "cli/init/study_files.py": {"files_to_write": lambda: f"`{snakemake_command(study='own')}`"},
    "cli/opposites.py": {"write_opposites": lambda: f"`{prepare_command('results/data/mylab')}`"},
    "commands.py": {"prepare_command": lambda: f"`{prepare_command('results/data/mylab/videos/a.mp4')}`"},
    "exports/mteb.py": {"export_tasks": lambda: f"`{prepare_command(Path('results/data/mylab'))}`"},
    "exports/share.py": {"_files_to_pack": lambda: f"`{snakemake_command('results/own/statistics/intervals.csv')}`"},
    "report/board/studies.py": {"_read_numbers": lambda: f"`{snakemake_command('results/own/metrics.csv')}`"},
    "search/run.py": {
        "_check_finished": unfinished_run,
        "_data_root": lambda: f"`{prepare_command('results/data/mylab/items.csv')}`",
    },
    "search/searcher.py": {
        "load_query_encoder": lambda: "",  # of a data set of vectors
        "_check_vocabulary": lambda: f"`{snakemake_command('results/own/runs/meanP/seed0/model.safetensors')}`",
    },
    "video/frame_store.py": {
        "store_remedy": lambda: frame_store.store_remedy(Path("results/own/frames/frames3/index.json"))
    },
    "video/frames.py": {"open_file_frames": lambda: refused(frames.open_file_frames, f"{VIDEOS}/a.mp4")},
    "video/shards.py": {
        "shard_remedy": lambda: shards.shard_remedy(Path(SHARD)),
        "extract_clip": lambda: refused(shards.extract_clip, f"{VIDEOS}/a.mp4", Path("a.mp4")),
        "verify_shards": lambda: refused(shards.verify_shards, Path(VIDEOS)),
        "_check_counts": lambda: tables_of_shards(f"shards/0-of-1.tar,3,10,{'a' * 64}\n"),
        "how_to_restore_shards": lambda: shards.how_to_restore_shards([SHARD]),
    },
    "workflow/checksums.py": {
        "how_to_restore": lambda: how_to_restore(["results/own/metrics.csv"]),
        "how_to_remake": lambda: how_to_remake("results/own/metrics.csv"),
        "verify_file": lambda: how_to_remake("results/own/ranks/meanP/seed0.parquet"),
        "explain_failure": lambda: how_to_remake("results/own/similarity/attention/seed1.npz"),
    },
    "workflow/job.py": {
        "_job_by_hand": lambda: f"`{snakemake_command('results/own/metrics.csv')}`",
        "_record_of_file": lambda: f"`{snakemake_command('results/own/metrics.csv', force=True)}`",
    },
    "workflow/what_ran.py": {
        "find_study": lambda: refused(find_study, "own"),
        "_read_record": lambda: how_to_remake("results/own/tables"),
        "study_that_ran": lambda: f"`{snakemake_command('results/own/tables')}`",
    },
}
CASES = [(module, function) for module, functions in MESSAGES.items() for function in functions]


def functions_that_print() -> set[tuple[str, str]]:
    found = set()
    for path in (ROOT / "src/rewind").rglob("*.py"):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef):
                called = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
                if {name.id for name in called if isinstance(name, ast.Name)} & set(WRITERS):
                    found.add((path.relative_to(ROOT / "src/rewind").as_posix(), function.name))
    return found


def test_every_printed_command_is_tested():
    assert functions_that_print() == set(CASES)


def test_no_message_spells_a_command_of_snakemake_out():
    """But for those that are about no study in particular."""
    general = {"cli/main.py", "cli/new.py", "config/docs.py", "commands.py"}
    general |= {"workflow/staleness/reasons.py"}
    command, spelt = re.compile(r"snakemake (-|prepared|all|results)"), set()
    for path in (ROOT / "src/rewind").rglob("*.py"):
        tree = ast.parse(path.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings]
        if any(command.search(node.value) for node in texts if isinstance(node.value, str)):
            spelt.add(path.relative_to(ROOT / "src/rewind").as_posix())
    assert spelt <= general


def test_words_are_quoted_and_other_folders_are_entered(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = snakemake_command("a b/results/own/runs/x/seed0/run.json", force=True)
    assert shlex.split(command)[:3] == ["cd", "a b", "&&"] and "'studies=[own]'" in command
    assert rewind_command("board", "it's.zip") == "rewind board 'it'\"'\"'s.zip'"


def test_a_job_repeats_what_its_user_selected(tmp_path, monkeypatch):
    from rewind.provenance import record_command

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REWIND_COMMAND", "")
    typed = ["-s", "a b/Snakefile", "--configfile", "x.yaml", "--config", "overrides={a: 'b'}"]
    record_command(["snakemake", "--cores", "2", *typed, "--", "all"], first=True)
    words = shlex.split(snakemake_command("results/own/metrics.csv"))
    assert words == ["snakemake", "--cores", "all", "results/own/metrics.csv", "--snakefile", *typed[1:]]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return make_own_study(tmp_path_factory.mktemp("printed") / "work")


@pytest.mark.workflow
def test_printed_commands_run(home, monkeypatch):
    """All at once where they differ in their targets alone: Snakemake plans them in one go."""
    monkeypatch.chdir(home)
    monkeypatch.delenv("REWIND_COMMAND", raising=False)
    commands = set()
    for module, function in CASES:
        commands |= set(re.findall(r"`((?:cd [^`]* && )?snakemake [^`]*)`", MESSAGES[module][function]()))
    assert len(commands) >= 12
    targets: dict[tuple[str, ...], list[str]] = {}
    for command in sorted(commands):
        words = shlex.split(command)
        files = [word for word in words if word.startswith("results/")]
        targets.setdefault(tuple(word for word in words if word not in files), []).extend(files)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "REWIND_ONLY_KEYS": "yes"}
    for (program, *options), files in targets.items():
        assert program == "snakemake"
        command = [sys.executable, "-m", "snakemake", "-n", "--nolock", *files, *options]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{shlex.join(command)}\n{(done.stdout + done.stderr)[-2000:]}"
