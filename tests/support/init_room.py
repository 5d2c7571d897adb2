"""Twelve captioned clips in a folder where ``rewind init`` runs: a plugin of the tests that need its fixtures."""

from __future__ import annotations

import csv
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from checkout import ROOT
from messages import expect_error
from rewind.cli.init.sizes import Machine
from rewind.cli.main import main
from rewind.config import load_dataset, load_study
from rewind.data.annotations import read_annotations
from rewind.platform import ffmpeg_path
from rewind.workflow.config import load_checked_config

CLIPS = 12
COLOURS = [f"0x{shade:02x}{255 - shade:02x}{shade // 2:02x}" for shade in range(0, 240, 20)]
LAPTOP = Machine(gpus=0, cores=2, memory=8.0, towers=False)
PACKAGED = Machine(gpus=0, cores=2, memory=8.0, towers=True)
SERVER = Machine(gpus=4, cores=32, memory=256.0, towers=True)


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve clips of a second, each of another colour."""
    folder = tmp_path_factory.mktemp("clips")
    for number, colour in enumerate(COLOURS):
        graph = f"color={colour}:size=32x24:rate=6:duration=1"
        command = [ffmpeg_path(), "-loglevel", "error", "-f", "lavfi", "-i", graph, "-pix_fmt", "yuv420p"]
        subprocess.run([*command, str(folder / f"clip{number}.mp4")], check=True)
    return folder


@pytest.fixture
def here(tmp_path: Path, clips: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the workflow could run, with the clips in ``mine/videos``."""
    (tmp_path / "Snakefile").touch()
    shutil.copytree(ROOT / "config/models", tmp_path / "config/models")
    shutil.copytree(clips, tmp_path / "mine/videos")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rewind.cli.init.command.this_machine", lambda: LAPTOP)
    return tmp_path


@pytest.fixture
def init(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command, and give what it printed. ``places``: of what is refused; ``look``: clips decoded."""

    def run(*arguments: str, places: Sequence[str] | None = None, varying: str = "", look: int | None = 1) -> str:
        code = main(["init", *arguments, *(["--look", str(look)] if look else [])])
        said = capsys.readouterr()
        assert code == (0 if places is None else 1), said.out + said.err
        if places is not None:
            expect_error(said.err, *places, varying=varying)
        return said.out if places is None else said.err

    return run


def table(path: str, header: str, rows: list[tuple]) -> str:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with Path(path).open("w", newline="") as stream:
        csv.writer(stream).writerows([header.split(","), *rows])
    return path


def told(numbers: range | list[int] = range(CLIPS)) -> list[tuple]:
    return [(f"clip{n}", f"colour {n} grows", f"colour {n} shrinks") for n in numbers]


def both_ways(path: str = "mine/clips.csv") -> str:
    return table(path, "item_id,caption,reverse_caption", told())


def sound(name: str = "clips") -> tuple:
    """Study, data set and annotations, after every check that the workflow makes before its first job."""
    load_checked_config({"studies": [name]})
    study = load_study(name)
    dataset = load_dataset(study.dataset)
    return study, dataset, read_annotations(dataset, "")


def splits(name: str = "clips") -> dict[str, str]:
    items = sound(name)[2].items
    return dict(zip(items["item_id"], items["split"], strict=True))


def files() -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(Path("config").rglob("*.*")) if "models" not in path.parts}


def about(said: str, *words: str) -> str:
    """The lines with one of these words, each with those indented below it."""
    blocks = re.findall(r"^\S.*(?:\n +.*)*", said, re.M)
    return "\n".join(block for block in blocks if any(word in block.partition("\n")[0] for word in words))
