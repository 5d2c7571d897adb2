"""Paraphrases: shares of items that each, every or any of their captions finds first."""

from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest

from messages import expect_message, refusal
from rewind.analyses.paraphrases import compare, paraphrase_values
from rewind.config import load_study
from rewind.evaluation.ranking import rank_table
from rewind.job_values import Job, NamedList, Outputs
from rewind.report.answer import study_findings
from rewind.report.tables import build_tables
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import MARKUPS
from rewind.tables.spec import TableInputs
from table_numbers import FACTS, results
from table_texts import markdown_rows

ITEMS = pd.DataFrame({"item_id": ["a", "b", "c"], "cluster_id": ["a", "b", "c"], "reversed": 0})
CAPTIONS = pd.DataFrame(
    {
        "caption_id": ["a#0", "a#1", "a#2", "b#0", "b#1", "c#0"],
        "video_id": ["a", "a", "a", "b", "b", "c"],
        "caption": ["It runs.", "One runs.", "it  runs.", "A ball falls.", "Something falls.", "Alone."],
    }
)


def ranks_of(scores: np.ndarray) -> pd.DataFrame:
    return rank_table(scores, CAPTIONS, ITEMS, ["test"], ["text_to_item"])


def by_hand(scores: np.ndarray) -> dict[tuple[str, str], float]:
    """The definition: every order of tied items, drawn for each caption by itself."""
    asked = {"a": [0, 1], "b": [3, 4]}  # a#2 repeats a#0; c has one caption
    found = {}
    for item, rows in asked.items():
        own = list(ITEMS["item_id"]).index(item)
        outcomes = [
            [order[np.argmax(scores[row][list(order)])] == own for order in permutations(range(3))] for row in rows
        ]
        draws = np.array(list(product(*outcomes)), dtype=float)
        every, any_ = draws.min(axis=1).mean(), draws.max(axis=1).mean()
        found |= {(item, "mean"): draws.mean(), (item, "every"): every, (item, "any"): any_}
    return {key: 100 * value for key, value in found.items()}


@pytest.mark.parametrize("seed", range(5))
def test_shares_are_those_of_the_definition(seed):
    scores = np.random.default_rng(seed).integers(0, 3, (6, 3)).astype(float)  # many ties
    values = paraphrase_values(ranks_of(scores), CAPTIONS).set_index(["query_id", "metric"])["value"]
    assert values.to_dict() == pytest.approx(by_hand(scores))


def job(folder, captions, scores_by_seed) -> Job:
    (folder / "ranks/meanP").mkdir(parents=True)
    captions.to_csv(folder / "captions.csv", index=False)
    files = []
    for seed, scores in scores_by_seed.items():
        files.append(str(folder / f"ranks/meanP/seed{seed}.parquet"))
        rank_table(scores, captions, ITEMS, ["test"], ["text_to_item"]).to_parquet(files[-1])
    inputs = {"ranks": files, "captions": str(folder / "captions.csv")}
    outputs = {"intervals": str(folder / "paraphrases.csv"), "pairs": str(folder / "pairs.csv")}
    params = {
        "runs": [("meanP", seed) for seed in scores_by_seed],
        "pairs": [],
        "confidence": 0.95,
        "random": {"fixed": [], "exact": [], "paired": []},
    }
    given = NamedList([*files, inputs["captions"]], inputs)
    named = NamedList(list(params.values()), params)
    return Job("paraphrases", given, Outputs(list(outputs.values()), outputs), named, {}, 1, {}, "log")


def test_a_job_writes_intervals_which_tables_and_the_answer_show(tmp_path):
    right = np.array([[3, 1, 0], [0, 1, 0], [3, 0, 0], [0, 2, 1], [0, 2, 1], [1, 0, 0]], dtype=float)
    compare(job(tmp_path, CAPTIONS, {0: right, 1: right, 2: right}))
    table = pd.read_csv(tmp_path / "paraphrases.csv")
    assert table.set_index("metric")["estimate"].to_dict() == {"mean": 75.0, "every": 50.0, "any": 100.0}
    assert table[["queries", "fewest", "most", "captions"]].drop_duplicates().values.tolist() == [[2, 2, 2, 2.0]]
    given = results(setting="test", analyses={"paraphrases": table})
    built = {one.name: one for one in build_tables(TableInputs(given, ["test"], Footnotes.from_json(FACTS), "Data"))}
    rows = markdown_rows(MARKUPS[".md"](built["table_paraphrases"]))
    assert rows[0] == ["Method", "mean ↑", "every ↑", "any ↑"] and rows[3][0] == "meanP"
    assert [cell.split(" ")[0] for cell in rows[3][1:]] == ["75.0", "50.0", "100.0"]
    expect_message("\n".join(built["table_paraphrases"].notes))
    expect_message("\n".join(study_findings(given, ["test"])[-2].sentences))


def test_items_with_one_caption_each_have_no_paraphrases(tmp_path):
    alone = CAPTIONS.drop_duplicates("video_id").reset_index(drop=True)
    with refusal("evaluation.paraphrases"):
        compare(job(tmp_path, alone, {0: np.eye(3)}))


def test_captions_must_search():
    study = load_study("msvd")
    asked = study.evaluation.model_copy(update={"directions": ["item_to_text"]})
    faults = study.model_copy(update={"evaluation": asked}).faults()
    assert any(fault.startswith("evaluation.paraphrases") for fault in faults)
