"""``rewind evaluate --probes`` on somebody's vectors and scores, from the command to the tables."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from brought_files import COUNT, caption_ids, item_ids, write_captions, write_vectors
from mini_study import Workflow
from rewind.evaluation.foils import pair_scores
from rewind.evaluation.geometry import measure_geometry
from undeclared import jobs, undeclared

FOILS = [(f"v{n}#0", f"somebody {verb} door {n}", verb) for n in range(COUNT) for verb in ("paints", "sells")]


def unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


class Probed(Workflow):
    """A checkout with vectors of a model, the scores of another, and one without vectors of twins."""

    def made(self) -> None:
        folder, originals = self.folder, slice(0, COUNT)
        write_captions(folder / "doors.csv")
        self.text, self.items = map(unit, write_vectors(folder / "mine"))
        foils = np.repeat(self.text[originals], 2, axis=0)
        self.foils = unit(foils + 0.3 * np.random.default_rng(7).normal(size=foils.shape))
        foil_ids = [f"{caption}~{n % 2}" for n, (caption, _, _) in enumerate(FOILS)]
        for name, kept in (("mine", slice(0, 2 * COUNT)), ("alone", originals)):
            (folder / name).mkdir(exist_ok=True)
            ids, text = [*caption_ids()[kept], *foil_ids], np.concatenate([self.text[kept], self.foils])
            np.savez(folder / name / "captions.npz", ids=np.array(ids), vectors=text)
            np.savez(folder / name / "items.npz", ids=np.array(item_ids()[kept]), vectors=self.items[kept])
        self.scores = np.float32(self.text @ -self.items.T)
        np.savez(folder / "theirs.npz", similarity=self.scores, query_ids=caption_ids(), item_ids=item_ids())
        pd.DataFrame(FOILS, columns=["caption_id", "foil", "kind"]).to_csv(folder / "foils.csv", index=False)
        answers = pd.DataFrame({"caption_id": caption_ids(), "item_id": item_ids()})
        answers.to_csv(folder / "answers.csv", index=False)

    def rewind(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "rewind", *arguments, "--cores", "2"]
        done = subprocess.run(command, cwd=self.folder, env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        return done.stdout


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Probed:
    checkout = Probed(tmp_path_factory.mktemp("probed"))
    checkout.made()
    models = ["--vectors", "mine/captions.npz", "mine/items.npz", "--vectors", "alone/captions.npz", "alone/items.npz"]
    questions = ["--answers", "answers.csv", "--foils", "foils.csv"]
    checkout.said = checkout.rewind("evaluate", "--data", "doors.csv", *models, "--scores", "theirs.npz", *questions)
    assert not (found := undeclared(jobs(checkout.opened))), f"looked at, but not declared: {found}"
    return checkout


@pytest.fixture
def measured(finished: Probed) -> pd.Series:
    """The estimate of every measure."""
    table = pd.read_csv(finished.folder / "results/doors/statistics/probes.csv", keep_default_na=False)
    keys = ["method", "probe", "part", "direction", "metric"]
    return table.astype({"estimate": float}).set_index(keys)["estimate"].sort_index()


@pytest.mark.workflow
def test_pairs_are_those_of_the_matrix(finished: Probed, measured: pd.Series) -> None:
    for method, scores in (("mine", np.float32(finished.text @ finished.items.T)), ("theirs", finished.scores)):
        of_pairs = np.stack([scores[np.ix_([n, n + COUNT], [n, n + COUNT])].T for n in range(COUNT)])
        for metric, values in pair_scores(of_pairs)._asdict().items():
            assert measured[method, "pairs", "", "", metric] == pytest.approx(100 * values.mean())
    assert "pairs" not in measured["alone"].index.get_level_values("probe"), "its files have no twins"


@pytest.mark.workflow
def test_geometry_is_that_of_the_vectors(finished: Probed, measured: pd.Series) -> None:
    for method, part, rows in (("mine", "", 2 * COUNT), ("alone", "without twins", COUNT)):
        wanted = measure_geometry(finished.text[:rows], finished.items[:rows], np.arange(rows))
        found = measured[method, "geometry", part, ""]
        assert found.to_dict() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.workflow
def test_foils_and_answers_are_those_of_the_vectors(finished: Probed, measured: pd.Series) -> None:
    clips = np.repeat(finished.items[:COUNT], 2, axis=0)
    above = (np.repeat(finished.text[:COUNT], 2, axis=0) * clips).sum(axis=1) > (finished.foils * clips).sum(axis=1)
    for kind, right in (("paints", above[::2]), ("sells", above[1::2])):
        assert 0 < right.mean() < 1, "otherwise the numbers below would say nothing"
        assert measured["mine", "foils", kind, "", "accuracy"] == pytest.approx(100 * right.mean())
        assert measured["alone", "foils", f"{kind} without twins", "", "accuracy"] == pytest.approx(100 * right.mean())
    ranks = pd.read_csv(finished.folder / "results/doors/metrics.csv").set_index(["method", "setting", "direction"])
    for method in ("mine", "theirs"):  # each caption has one right clip, as in Hard
        hard = ranks.loc[(method, "hard", "text_to_item"), "R@1"]
        assert measured[method, "answers", "all", "text_to_item", "R@1"] == pytest.approx(hard)


@pytest.mark.workflow
def test_only_what_can_be_said_has_a_row(finished: Probed, measured: pd.Series) -> None:
    asked = {method: set(rows.index.get_level_values("probe")) for method, rows in measured.groupby(level="method")}
    assert asked == {
        "mine": {"pairs", "answers", "foils", "direction", "geometry"},
        "alone": {"answers", "foils", "geometry"},
        "theirs": {"pairs", "answers"},
    }
    assert "order: clips are needed" in finished.said and "geometry of theirs: scores have no vectors" in finished.said
    summary = (finished.folder / "results/doors/tables/summary.txt").read_text()
    tables = dict(re.findall(r"^(Pairs|Answers|Foils|Direction|Geometry)\. (.*?)\n\n", summary, re.M | re.S))
    assert {name: [m for m in asked if re.search(rf"^{m} ", table, re.M)] for name, table in tables.items()} == {
        "Pairs": ["mine", "theirs"],
        "Answers": ["alone", "mine", "theirs"],
        "Foils": ["alone", "mine"],
        "Direction": ["mine"],
        "Geometry": ["alone", "mine"],
    }
    page = (finished.folder / "results/doors/report.html").read_text()
    assert all(f"{name}." in page for name in tables)
    assert "Nothing to be done" in finished.run("-n", "--config", "studies=[doors]")
