"""Probes of vectors and scores from files: what is computed of them, and what has no rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from brought_files import caption_ids, item_ids, write_vectors
from brought_files import data as data
from rewind.config import Method, Study
from rewind.data.readers import MISSING_SCORE
from rewind.evaluation.answers import answer_values
from rewind.evaluation.probes import PROBES, ProbedRun, QuestionFiles, compute_probes
from rewind.io.files import write_csv, write_npz
from rewind.loading.run_data import RunData, build_untrained_model
from rewind.models.checkpoint import save_model

FOILS = [
    ("v0#0~0", "v0#0", "no door", "thing"),
    ("v0#0~1", "v0#0", "a cat", "subject"),
    ("v1_rev#0~0", "v1_rev#0", "no door", "thing"),
]
ANSWERS = [("all", "v0#0", "v0", 1), ("all", "v0#0", "v1", 1), ("all", "v2_rev#0", "v2_rev", 1)]
CLOSED = [
    ("closed", "v3#0", "v3", 1),
    ("closed", "v3#0", "v4", 0),
    ("closed", "v5_rev#0", "v5_rev", 1),
    ("closed", "v5_rev#0", "v5", 0),
]


def unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=1, keepdims=True)


class Files:
    """Vectors of one model, and the run that is made of a part of them."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder, self.data = folder, data
        text, self.items = write_vectors(folder)
        self.foils = np.random.default_rng(5).normal(size=(len(FOILS), text.shape[1])) + text[[0, 0, 25]]
        self.text = np.concatenate([text, self.foils])
        self.captions, self.ids = [*caption_ids(), *(row[0] for row in FOILS)], item_ids()
        write_csv(folder / "foils.csv", pd.DataFrame(FOILS, columns=["foil_id", "caption_id", "caption", "kind"]))
        answers = pd.DataFrame(ANSWERS + CLOSED, columns=["setting", "caption_id", "item_id", "right"])
        answers["gallery"] = answers["setting"].map({"all": "all", "closed": "judged"})
        write_csv(folder / "answers.csv", answers)

    def probed(self, method: Method, scores: np.ndarray, twins: bool = True) -> pd.DataFrame:
        """The values of all probes of a method whose matrix (captions, items) is known."""
        study = Study(name="s", dataset="doors", methods={"m": method}, sanity=None)
        data = RunData(self.data, "doors", study.run_spec("m", seed=0), 0)
        model, matrix, result = (self.folder / name for name in ("model.safetensors", "scores.npz", "probes.parquet"))
        save_model(model, build_untrained_model(data), {})
        write_npz(matrix, similarity=scores, query_ids=np.array(caption_ids(twins)), item_ids=np.array(item_ids(twins)))
        questions = QuestionFiles(answers=str(self.folder / "answers.csv"), foils=str(self.folder / "foils.csv"))
        run = ProbedRun(data, str(model), str(matrix), questions, ["text_to_item"])
        compute_probes(run, list(PROBES), str(result))
        return pd.read_parquet(result)


@pytest.fixture
def files(tmp_path: Path, data: Path) -> Files:
    return Files(tmp_path / "files", data)


def vectors(files: Files, score: str = "cosine", rows: slice = slice(None)) -> Method:
    captions = [n for n, name in enumerate(files.captions) if name.partition("#")[0] in files.ids[rows]]
    np.savez(files.folder / "c.npz", ids=np.array(files.captions)[captions], vectors=files.text[captions])
    np.savez(files.folder / "i.npz", ids=np.array(files.ids)[rows], vectors=files.items[rows])
    options = {"captions": str(files.folder / "c.npz"), "items": str(files.folder / "i.npz"), "score": score}
    return Method(model="vectors", options=options)


@pytest.mark.parametrize("score", ["cosine", "dot", "maxsim"])
def test_foils_are_compared_as_captions_are(files: Files, score: str) -> None:
    text, items = (unit(files.text), unit(files.items)) if score == "cosine" else (files.text, files.items)
    scores = (text @ items.T).astype(np.float32)
    found = files.probed(vectors(files, score), scores[:48])
    foils = found[(found["probe"] == "foils") & (found["metric"] == "accuracy")].set_index(["query_id", "part"])[
        "value"
    ]
    right = {
        ("v0#0", "thing"): scores[0, 0] > scores[48, 0],
        ("v0#0", "subject"): scores[0, 0] > scores[49, 0],
        ("v1_rev#0", "thing"): scores[25, 25] > scores[50, 25],
    }
    assert foils.to_dict() == {key: 100.0 * value for key, value in right.items()}
    assert ({"direction", "geometry"} <= set(found["probe"])) == (score == "cosine")


def test_a_model_without_vectors_of_twins_has_parts_of_its_own(files: Files) -> None:
    originals = slice(0, 24)
    scores = (unit(files.text[originals]) @ unit(files.items[originals]).T).astype(np.float32)
    found = files.probed(vectors(files, rows=originals), scores, twins=False)
    assert set(found["probe"]) == {"answers", "foils", "geometry"}
    assert set(found["part"]) == {"all without twins", "closed without twins", "thing without twins",
                                  "subject without twins", "without twins"}  # fmt: skip
    asked = found[found["probe"].isin(["answers", "foils"])]
    assert set(asked["query_id"]) == {"v0#0", "v3#0"}, "no caption of a twin"


def test_scores_answer_what_matrices_can(files: Files) -> None:
    scores = (unit(files.text[:48]) @ unit(files.items).T).astype(np.float32)
    np.savez(files.folder / "s.npz", similarity=scores, query_ids=caption_ids(), item_ids=files.ids)
    found = files.probed(Method(model="scores", options={"file": str(files.folder / "s.npz")}), scores)
    assert set(found["probe"]) == {"pairs", "answers"}, "foils, direction and geometry have no rows, and do not fail"
    captions = pd.DataFrame({"caption_id": caption_ids(), "video_id": item_ids()})
    items = pd.DataFrame({"item_id": item_ids(), "cluster_id": [name.removesuffix("_rev") for name in item_ids()]})
    answers = pd.DataFrame(ANSWERS, columns=["setting", "caption_id", "item_id", "right"]).assign(gallery="all")
    wanted = answer_values(scores, captions, items, answers, ["text_to_item"])
    here = found[found["part"] == "all"]
    assert here["value"].tolist() == wanted["value"].tolist() and len(wanted)


def test_scores_of_a_clip_and_its_twin_alone_answer_no_search(files: Files) -> None:
    scores = (unit(files.text[:48]) @ unit(files.items).T).astype(np.float32)
    own = np.arange(48)
    candidates = np.full_like(scores, MISSING_SCORE)
    for columns in (own, (own + 24) % 48):
        candidates[own, columns] = scores[own, columns]
    np.savez(files.folder / "s.npz", similarity=candidates, query_ids=caption_ids(), item_ids=files.ids)
    method = Method(model="scores", options={"file": str(files.folder / "s.npz")})
    found, whole = files.probed(method, candidates), files.probed(method, scores)
    # Of the closed setting's two captions, one is asked about its twin, and the other about a clip without a score.
    assert set(found.loc[found["probe"] == "answers", "part"]) == {"closed"}
    pairs, wanted = (table[table["probe"] == "pairs"]["value"].tolist() for table in (found, whole))
    assert pairs == wanted and len(wanted) == 3 * 24


def test_too_few_clips_have_no_geometry_and_no_direction(files: Files, capsys) -> None:
    items = pd.read_csv(files.data / "items.csv")
    few = items[items["cluster_id"].isin(["v0", "v1", "v2", "v5"])]
    few.to_csv(files.data / "items.csv", index=False)
    path = files.data / "captions/doors_test.csv"
    captions = pd.read_csv(path)
    captions[captions["video_id"].isin(few["item_id"])].to_csv(path, index=False)
    scores = (unit(files.text[:48]) @ unit(files.items).T).astype(np.float32)
    study = Study(name="s", dataset="doors", methods={"m": vectors(files)}, sanity=None)
    data = RunData(files.data, "doors", study.run_spec("m", seed=0), 0)
    save_model(files.folder / "m.safetensors", build_untrained_model(data), {})
    rows = few.index.to_numpy()
    ids = {"query_ids": np.array(caption_ids())[rows], "item_ids": np.array(item_ids())[rows]}
    write_npz(files.folder / "few.npz", similarity=scores[np.ix_(rows, rows)], **ids)
    run = ProbedRun(data, str(files.folder / "m.safetensors"), str(files.folder / "few.npz"), QuestionFiles(), [])
    compute_probes(run, ["pairs", "direction", "geometry"], str(files.folder / "few.parquet"))
    assert set(pd.read_parquet(files.folder / "few.parquet")["probe"]) == {"pairs"}
    assert "direction: clips with a twin in 4 clusters; 5 are needed" in capsys.readouterr().out
