"""The page "Bring your model" as its reader follows it: the CSV, the vectors, the command, and what the tables say."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import yaml

from checkout import ROOT
from mini_study import Workflow
from rewind.config import Method

PAGE = (ROOT / "docs/bring-your-model.md").read_text()


def block(language: str) -> str:
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.S)[1]


class Checkout(Workflow):
    """A checkout with the page's files."""

    def evaluate(self, *arguments: str) -> subprocess.CompletedProcess:
        return self.rewind(*arguments, "--cores", "2")

    def rewind(self, *arguments: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "rewind", *arguments]
        return subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Checkout:
    """The page followed to the end of its first section, with a matrix and a model without twins besides."""
    made = Checkout(tmp_path_factory.mktemp("brought"))
    (made.folder / "clips.csv").write_text(block("csv"))
    subprocess.run([sys.executable, "-c", block("python")], cwd=made.folder, env=made.env, check=True)
    return made


@pytest.fixture(scope="module")
def finished(checkout: Checkout) -> Checkout:
    folder = checkout.folder
    with np.load(folder / "items.npz") as items, np.load(folder / "captions.npz") as captions:
        one, two = captions["vectors"], items["vectors"]
        cosines = (one / np.linalg.norm(one, axis=1)[:, None]) @ (two / np.linalg.norm(two, axis=1)[:, None]).T
        with (folder / "theirs.run").open("w") as stream:
            for caption, row in zip(captions["ids"], cosines, strict=True):
                for place, column in enumerate(np.argsort(-row)[:5], start=1):
                    stream.write(f"{caption} Q0 {items['ids'][column]} {place} {np.float32(row[column]):.9g} theirs\n")
        for name, part in (("captions", captions), ("items", items)):
            (folder / "alone").mkdir(exist_ok=True)
            np.savez(folder / f"alone/{name}.npz", ids=part["ids"][:4], vectors=part["vectors"][:4])
    printed = re.search(r"^rewind (evaluate .*)$", PAGE, re.M)[1].split()
    more = ["--scores", "theirs.run", "--vectors", "alone/captions.npz", "alone/items.npz", "--study", "doors"]
    done = checkout.evaluate(*printed, *more)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Table Binary" in done.stdout and "Every query: results/doors/report.html" in done.stdout
    return checkout


@pytest.mark.workflow
def test_every_door_has_its_row(finished: Checkout) -> None:
    table = pd.read_csv(finished.folder / "results/doors/metrics.csv").set_index(["method", "setting", "direction"])
    mine, theirs = (table.loc[(name, "hard", "text_to_item")] for name in ("items", "theirs"))
    assert mine["R@1"] == theirs["R@1"] and mine["R@5"] == theirs["R@5"], "the truth is among the first five"
    settings = table.loc["alone"].index.get_level_values(0)
    assert set(settings) == {"origin"}
    notes = "".join((finished.folder / f"results/doors/tables/{n}.md").read_text() for n in ("table_B_hard", "notes"))
    assert "their vectors" in notes or "no time-reversed twins" in notes
    assert "of 64 pairs have no score; they rank below all others, tied" in notes
    assert "Scored with vectors from files: items, alone" in notes
    assert "frames per second" not in notes and "clips usable" not in notes, "no clip is there"


@pytest.mark.workflow
def test_nothing_runs_again_and_changed_vectors_do(finished: Checkout) -> None:
    assert "Nothing to be done" in finished.run("-n", "--config", "studies=[doors]")
    with np.load(finished.folder / "items.npz") as archive:
        arrays = dict(archive)
    file, long_ago = finished.folder / "items.npz", 1_500_000_000
    before, size = file.read_bytes(), file.stat().st_size
    np.savez(file, **arrays | {"vectors": arrays["vectors"] * 1.5})
    os.utime(file, (long_ago, long_ago))
    assert file.stat().st_size == size, "neither its size nor a newer time says that it is another file"
    planned = finished.run("-n", "--config", "studies=[doors]")
    assert re.search(r"^untrained_run +1$", planned, re.M), planned[-2000:]
    why = finished.rewind("why", "doors").stdout
    assert "items.npz: another file took its place" in why, why
    file.write_bytes(before)
    os.utime(file, (long_ago, long_ago))
    assert "Nothing to be done" in finished.run("-n", "--config", "studies=[doors]"), "the first one came back"


@pytest.mark.workflow
def test_a_model_that_is_added_runs_alone(finished: Checkout) -> None:
    with np.load(finished.folder / "items.npz") as archive:
        np.save(finished.folder / "second.npy", archive["vectors"] * 2)
        (finished.folder / "second.txt").write_text("\n".join(archive["ids"]))
    more = ["--vectors", "captions.npz", "second.npy", "--label", "Second", "--study", "doors", "--add", "-n"]
    done = finished.evaluate("evaluate", "--data", "clips.csv", *more)
    said = done.stdout + done.stderr
    assert re.search(r"^untrained_run +1$", said, re.M) and not re.search(r"^(train|similarity|ranks) ", said, re.M), (
        said
    )


@pytest.mark.workflow
def test_faults_are_told_before_the_first_job(checkout: Checkout) -> None:
    with np.load(checkout.folder / "captions.npz") as archive:
        vectors = archive["vectors"].copy()
        vectors[2, 0] = np.nan
        np.savez(checkout.folder / "nan.npz", ids=archive["ids"], vectors=vectors)
    arguments = ["evaluate", "--data", "clips.csv", "--vectors", "nan.npz", "items.npz", "--study", "nan"]
    done = checkout.evaluate(*arguments)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "NaN or infinity in 1 id: 'stairs#0'" in said and "Job stats" not in said
    done = checkout.evaluate("evaluate", "--data", "clips.csv", "--scores", "no.npz", "--study", "none")
    assert "no.npz: no such file" in done.stdout + done.stderr and done.returncode == 1
    done = checkout.evaluate("evaluate", "--data", "clips.csv", "--encoder", "open_clip", "--name", "RN50")
    assert "--encoder looks at clips: say where they are with --videos FOLDER" in done.stderr


def test_the_page_s_study_keys_are_valid(checkout: Checkout) -> None:
    """Its YAML blocks name methods as the reader of studies takes them."""
    for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.S):
        for keys in yaml.safe_load(text)["methods"].values():
            # A model of one's own gets its seed from the study.
            assert Method(**keys).seeds == (None if "." in keys["model"] else [0])
    rows = list(csv.DictReader(block("csv").splitlines()))
    assert len(rows) == 4 and json.dumps(rows)
