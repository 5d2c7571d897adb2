"""Every command in README, docs and the other pages is run: with `-n`, with `--help` or on its smallest input.

Commands are found by a parser, in blocks of code and in sentences, so that a new one is tested without an edit here.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from checkout import ROOT
from rewind.cli.main import _build_parser
from rewind.errors import RewindError
from rewind.workflow.config import load_config

PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "results/README.md", "config/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "src/rewind/cli/templates/README.md",
]
PROGRAMS = ("rewind", "snakemake", "python", "make")  # pip and docker download
PLACEHOLDER = re.compile(r"[<>…]|\.\.\.|\b[A-Z]{4,}\b(?!_)")

# Programs that a test cannot run to the end, each with the reason; all print their `--help` nevertheless.
NEEDS_MORE = {
    "benchmarks/brought.py": "runs whole workflows",
    "benchmarks/golden.py": "runs the tests that are marked golden",
    "benchmarks/reranking.py": "trains",
    "benchmarks/s3_check.py": "needs a server of S3",
    "benchmarks/sampling.py": "trains",
    "benchmarks/sigkill.py": "kills workflows for hours",
    "benchmarks/slurm_check.py": "needs Slurm",
    "benchmarks/translator_load.py": "writes vectors of the challenge's size",
    "tools/golden": "runs studies at two commits",
    "tools/publish": "rewrites the documents, or needs finished studies",
    "tests/support/undeclared.py": "runs a whole workflow",
    "workflow/scripts/train.py": "needs a job that was started before",
    "workflow/lint.py": "runs Snakemake's linter, as `make lint` does",
}
SMALLEST = {
    "benchmarks/annotations.py": ["4"],
    "benchmarks/calibration.py": [
        *("--replicates", "2", "--seeds", "3", "--clusters", "1", "--queries", "40", "--seed-sd", "0"),
        *("--difference", "2", "--out", "calibration.csv"),
    ],
    "benchmarks/artefacts.py": ["--clips", "10", "--formats", "MPEG-2", "--out", "artefacts.csv"],
    "benchmarks/damage.py": ["--formats", "GIF"],
    "benchmarks/direction_probe.py": ["--studies", "1", "--out", "direction_probe.csv"],
    "benchmarks/evaluation.py": ["--heads", "xpool", "--queries", "4", "--out", "evaluation.csv"],
    "benchmarks/families.py": ["--only", "answer", "--seeds", "3", "--studies", "2", "--out", "families.csv"],
    "benchmarks/seeded_faults.py": ["--list"],
    "benchmarks/step_kernels.py": ["--architecture", "ViT-S-32-alt", "--clips", "1", "--frames", "1"],
    "benchmarks/task_ranks.py": ["--repeats", "2"],
    "workflow/unlock.py": [],
}
# Modules of others, which print what they can do; what they do with these arguments is not ours.
OTHER_MODULES = ("http.server", "pdb", "pip", "pytest", "venv")
OTHER_MAKEFILES = ("setup", "run-baseline", "run-debias", "run-bandpass", "run-all-seeds")  # of those who wrote SANW


class Command(NamedTuple):
    """A command of a page; ``whole``: from a block of code, and not a part of a sentence."""

    page: str
    line: int
    words: tuple[str, ...]
    whole: bool

    @property
    def text(self) -> str:
        return " ".join(self.words)


def documented() -> list[Command]:
    return [command for page in PAGES for command in commands_of(page)]


def commands_of(page: Path) -> list[Command]:
    """The commands of one page, in order."""
    found, fence, language, pending = [], "", "", ""
    name = page.relative_to(ROOT).as_posix()
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if mark := re.match(r"\s*(```+)(\w*)", line):
            fence, language = ("", "") if fence else (mark[1], mark[2])
            continue
        if fence:
            if language not in ("", "bash", "sh", "console"):
                continue
            text, pending = pending + line.strip().removeprefix("$ "), ""
            if text.endswith("\\"):
                pending = text[:-1]
                continue
            found += [Command(name, number, words, True) for words in split_line(text)]
        else:
            found += [
                Command(name, number, words, False)
                for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", line)
                for words in split_line(code)
            ]
    return found


def split_line(text: str) -> list[tuple[str, ...]]:
    """The commands of a line, without variables before them and comments behind; after a pipe there is another one."""
    parts = re.split(r"\s(?:&&|\|)\s", re.sub(r"\s#\s.*|\s{2,}#.*", "", text))
    commands = []
    for part in parts:
        try:
            words = shlex.split(part)
        except ValueError:  # a quote that only the sentence closes
            continue
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        program = Path(words[0]).name if words else ""
        if program in PROGRAMS and len(words) > 1 and not re.search(r"[.:;,]$", words[-1]):
            commands.append((program, *words[1:]))
    return commands


COMMANDS = documented()


def of(program: str) -> list[Command]:
    """Commands of a program, each text once."""
    return list({command.text: command for command in COMMANDS if command.words[0] == program}.values())


def run(words: list[str], folder: Path = ROOT, timeout: int = 100) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{shlex.join(words)}\n{(done.stdout + done.stderr)[-3000:]}"
    return done.stdout


def test_commands_are_found():
    assert {program: len(of(program)) > 3 for program in ("rewind", "snakemake", "python", "make")} == dict.fromkeys(
        ("rewind", "snakemake", "python", "make"), True
    )
    assert len(COMMANDS) > 250
    assert {command.words[0] for command in COMMANDS} <= set(PROGRAMS)


def id_of(command: Command) -> str:
    return f"{command.page}:{command.line}"


@pytest.mark.parametrize("command", of("rewind"), ids=id_of)
def test_rewind_commands_are_understood(command):
    words, parser = [word for word in command.words[1:]], _build_parser()
    subcommands = []
    while actions := [action for action in parser._actions if hasattr(action, "choices") and action.nargs == "A..."]:
        names = actions[0].choices
        if not words or (words[0] not in names and words[0].startswith("-")):
            break
        assert words[0] in names or PLACEHOLDER.search(words[0]), f"{command.text}: no command {words[0]!r}"
        if words[0] not in names:
            break
        subcommands.append(words[0])
        parser, words = names[words[0]], words[1:]
    options = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    assert not set(options) - parser._option_string_actions.keys(), f"{command.text}: unknown options"
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), pytest.raises(SystemExit) as ended:
        _build_parser().parse_args([*subcommands, "--help"])
    assert ended.value.code == 0 and shown.getvalue().startswith("usage: rewind")
    if command.whole and not PLACEHOLDER.search(command.text):
        parser.parse_args(words)


@pytest.mark.parametrize("command", of("make"), ids=id_of)
def test_make_has_the_target(command):
    words = [word for word in command.words[1:] if not PLACEHOLDER.search(word) and word not in OTHER_MAKEFILES]
    if words:
        run(["make", "-n", *words])


@pytest.mark.parametrize("command", of("snakemake"), ids=id_of)
def test_snakemake_commands_are_understood(command):
    """The options are Snakemake's, the studies are there, the overrides are valid, and the targets are of a rule."""
    from snakemake.cli import get_argument_parser

    if PLACEHOLDER.search(command.text) and not command.whole:
        pytest.skip("a part of a sentence")
    given = get_argument_parser().parse_args([*command.words[1:], *([] if "--cores" in command.words else ["-n"])])
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    for part in given.config or []:
        name, _, value = part.partition("=")
        config[name] = yaml.safe_load(value)
    if config["studies"] == ["my_heads"]:
        return  # a study of the page
    try:
        load_config({"overrides": {}} | config, typed=config)
    except RewindError as error:
        if not re.search(r"my_clips|there is no such file|no such file|not there", str(error)):
            raise
    rules = "\n".join(path.read_text() for path in [ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")])
    for target in given.targets:
        if not PLACEHOLDER.search(target):
            assert re.search(rf"^(?:rule|checkpoint) {re.escape(target)}:", rules, re.M) or target.startswith(
                "results/"
            )


@pytest.mark.slow
@pytest.mark.parametrize("program", sorted({c.words[1] for c in of("python") if "/" in c.words[1]}))
def test_programs_run_on_their_smallest_input(program, tmp_path):
    path = ROOT / program
    assert path.exists(), f"{program} is not there"
    assert (program in SMALLEST) != (program in NEEDS_MORE), f"say how {program} is run, or why it is not"
    words = SMALLEST.get(program, ["--help"])
    run([sys.executable, str(path), *words], tmp_path if program in SMALLEST else ROOT)


@pytest.mark.parametrize("command", [c for c in of("python") if "/" in c.words[1]], ids=id_of)
def test_options_of_programs_are_theirs(command):
    """What the parser of the program declares; its file need not be imported."""
    path = ROOT / command.words[1]
    files = path.glob("*.py") if path.is_dir() else [path]
    text = "\n".join(file.read_text() for file in files)
    for option in (word.partition("=")[0] for word in command.words[2:] if word.startswith("--")):
        assert f'"{option}"' in text or (path.name == "train.py" and option == "--mock"), f"{command.text}: {option}"


def test_modules_are_ours_or_known():
    for command in of("python"):
        if command.words[1] == "-m":
            top = command.words[2]
            assert top in OTHER_MODULES or top.partition(".")[0] == "rewind", command.text


@pytest.mark.workflow
@pytest.mark.parametrize("target", ["all", "prepared", "board", "results/demo/trec"])
def test_snakemake_plans_what_the_pages_ask_for(target):
    assert "job" in run([sys.executable, "-m", "snakemake", "-n", "--nolock", "--cores", "1", target])
