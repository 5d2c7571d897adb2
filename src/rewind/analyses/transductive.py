"""Scores that are normalised over all captions of the test split, as some papers do: dual softmax and QB-Norm.

Both make clips that are near to many captions rarer among the results. They see the whole test set: the score of one
caption depends on all others, which a search engine does not have. Only captions search clips here. With z the score
times an inverse temperature:

- ``dual_softmax`` (Cheng et al. 2021, CAMoE): s′(q, v) = (z(q, v) − min z) · softmax over all captions q of z(q, v).
  CAMoE's own factor is z(q, v): it depends on where the scale has its zero, of which logits and log-likelihoods have
  none, and below zero it sorts backwards, since a larger share makes a negative score lower. Counted from the lowest
  score the order is the same wherever zero is, and nearly CAMoE's where all scores are positive.
- ``qb_norm`` (Bogolin et al. 2022, Querybank Normalisation) with the test captions as its bank:
  s′(q, v) = exp z(q, v) / Σ over all captions b of exp z(b, v). Every first result of a caption is then in the set of
  clips that activate the normalisation, so that its dynamic and its static form are one.

The inverse temperature is 1 for logits, which have a temperature of their own, and 100, the largest of CLIP, for
cosines. Of other scores nobody knows it: a study has to name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.analyses.base import Analysis, Result, Rule, analysis_table
from rewind.config import Study
from rewind.config.methods import CLIP_MAX_LOGIT_SCALE
from rewind.config.report import Statistics
from rewind.config.study import RunKey
from rewind.data.captions import load_split
from rewind.data.readers import MISSING_SCORE
from rewind.data.score_matrix import open_scores
from rewind.evaluation.ranking import rank_table, row_blocks
from rewind.io.files import write_csv
from rewind.job_values import Job, files_by_run, job_runs
from rewind.ranking_metrics import METRICS
from rewind.statistics.controls import CONTROL_COLUMNS, compare_with_controls
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import ranks_folder, read_ranks
from rewind.tables.footnotes import confidence_percent, seed_caution, table_notes
from rewind.tables.notes import key_text, unequal_budgets
from rewind.tables.paired import control_table
from rewind.tables.spec import TableInputs
from rewind.tables.table import Table

# ---- Which studies, and whose scores -------------------------------------------------------------------------------


def methods(study: Study) -> list[str]:
    """Methods whose scores are normalised over the test captions: those that have all scores."""
    return [
        name
        for name, method in study.methods.items()
        if not (method.rerank or method.blind or method.model == "chance")
    ]


def searched_setting(study: Study) -> str:
    """Where all captions search all clips, by scores that are normalised over all captions."""
    return "hard" if "hard" in study.evaluation.settings else "test"


def runs(plan: Any) -> list[RunKey]:
    """The runs of these methods."""
    return [(method, seed) for method, seed in plan.runs() if method in methods(plan.keys)]


def faults(study: Study) -> Iterator[str]:
    if not study.evaluation.transductive:
        return
    if searched_setting(study) not in study.evaluation.settings:
        yield (
            "evaluation.transductive: scores are normalised where all captions search all clips; add hard or test to "
            "evaluation.settings, or set the key to []"
        )
    if "text_to_item" not in study.evaluation.directions:
        yield (
            "evaluation.transductive: captions search the clips; add text_to_item to evaluation.directions, or set the "
            "key to []"
        )
    if not methods(study):
        yield "evaluation.transductive: no method here has a matrix of scores; set it to []"
    for name in methods(study):
        options = study.methods[name].options
        by_name = "encoder" in options and options.get("score", "cosine") == "cosine"
        if study.inverse_temperature(name) is None and not by_name:
            yield (
                f"evaluation.transductive: a softmax depends on the unit of scores, and that of {name} is not known: "
                f"set methods.{name}.options.inverse_temperature to what they are multiplied by (1 for logits of a "
                "loss with a softmax, 100 for cosines), or evaluation.transductive to []"
            )


# ---- Normalised scores ---------------------------------------------------------------------------------------------


class NormalisedScores:
    """Logarithms of normalised scores, which do not underflow; rows are normalised when they are read.

    Args:
        scores: float (n, m), an array or a file.
        how: ``dual_softmax`` or ``qb_norm``.
        scale: inverse temperature.

    >>> np.exp(NormalisedScores(np.array([[1.0, 2.0], [1.0, 0.0]]), "dual_softmax", 1.0)[:]).round(2).tolist()
    [[0.5, 1.76], [0.5, 0.0]]
    """

    def __init__(self, scores: Any, how: str, scale: float) -> None:
        self.scores, self.how, self.scale = scores, how, scale
        self.shape, self.size, self.dtype, self.ndim = scores.shape, scores.size, np.dtype(np.float64), 2
        self.lowest, self.largest, self.log_sum = np.inf, *np.empty((2, scores.shape[1]))
        # Blocks of columns, since the softmax of a clip is over all captions.
        for columns in row_blocks(*scores.shape[::-1]):
            # Sorted, so that the last digit, and with it a tie, does not depend on the order of captions.
            block = np.sort(self._scaled(scores[:, columns]), axis=0)
            self.lowest = min(self.lowest, block[block > -np.inf].min(initial=np.inf))
            self.largest[columns] = np.maximum(block[-1], np.finfo(np.float64).min)  # a clip may have no score at all
            with np.errstate(divide="ignore"):
                # The logarithm of Σ exp, with the largest taken out so that no exponential overflows.
                self.log_sum[columns] = np.log(np.exp(block - self.largest[columns]).sum(axis=0))

    def __getitem__(self, rows: slice) -> np.ndarray:
        z = self._scaled(self.scores[rows])
        with np.errstate(divide="ignore", invalid="ignore"):
            normalised = z - self.largest - self.log_sum  # in this order, so that the size of scores rounds nothing
            if self.how == "dual_softmax":
                normalised += np.log(z - self.lowest)
        # Finite, as all scores are: the lowest score of all is 0 once it is normalised, and a missing one is below it.
        least = np.finfo(np.float64).min
        return np.where(z == -np.inf, least, np.maximum(normalised, least / 2))

    def _scaled(self, scores: np.ndarray) -> np.ndarray:
        """z, with −∞ where there is no score."""
        return np.where(scores == MISSING_SCORE, -np.inf, self.scale * np.asarray(scores, np.float64))


def transductive_ranks(
    folder: Path,
    dataset: str,
    similarity: Mapping[RunKey, str],
    scales: Mapping[str, float | None],
    hows: Sequence[str],
    setting: str,
) -> dict[str, dict[str, dict[int, pd.DataFrame]]]:
    """Normalisation → method → seed → rank table of captions that search clips by normalised scores.

    Args:
        folder: the data set's results folder.
        dataset: its name.
        similarity: method and seed → npz file of the matrix.
        scales: method → inverse temperature; None: that of cosines, or of logits where a score is beyond 1.
        hows: normalisations.
        setting: ``hard`` or ``test``, in which all captions search all clips.
    """
    items, captions, _ = load_split(folder, dataset, "test")
    captions, items = captions.set_index("caption_id", drop=False), items.set_index("item_id", drop=False)
    found: dict[str, dict[str, dict[int, pd.DataFrame]]] = {how: {} for how in hows}
    for (method, seed), path in similarity.items():
        scores, queries, gallery = open_scores(path)
        rows, columns = captions.loc[queries], items.loc[gallery]
        scale = scales[method] or (CLIP_MAX_LOGIT_SCALE if _may_be_cosines(scores) else 1.0)
        for how in hows:
            normalised: Any = NormalisedScores(scores, how, scale)
            ranks = rank_table(normalised, rows, columns, [setting], ["text_to_item"], path)
            found[how].setdefault(method, {})[seed] = ranks
    return found


def _may_be_cosines(scores: Any) -> bool:
    """Whether no score is beyond 1, but for rounding."""
    blocks = (scores[rows] for rows in row_blocks(*scores.shape))
    return all((np.abs(block[block != MISSING_SCORE]) <= 1 + 1e-3).all() for block in blocks)


def compare(job: Job) -> None:
    """What normalising scores over all test captions adds to every run, with intervals and tests.

    A normalisation stands for a control; ``loss`` is below 0 where it adds something.
    """
    params, folder = job.params, Path(job.input.item_table).parent
    ranks = read_ranks(job_runs(job), ranks_folder(job.input.ranks))
    similarity = files_by_run(job, job.input.similarity)
    normalised = transductive_ranks(
        folder, params.dataset, similarity, params.scales, params.normalisations, params.setting
    )
    keys, random = Statistics(**params.settings), RandomFactors.of(params.random)
    write_csv(job.output[0], compare_with_controls(ranks, normalised, params.setting, keys, random))


# ---- The table -----------------------------------------------------------------------------------------------------

NORMALISATION_TITLES = {"dual_softmax": "dual softmax", "qb_norm": "QB-Norm"}
WARNING = (
    "NOT A RETRIEVAL RESULT: each score was normalised over all captions of the test split, which no search engine "
    "has; compare such numbers only with others that were computed this way"
)


def layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per method: its value by its own scores, and the gain of each normalisation."""
    rows = inputs.results.of("transductive")
    family = f"{rows['family'].iloc[0]} pairs of a method and a normalisation"
    key = key_text([WARNING, f"*: differs from 0, after Holm’s correction over {family}"])
    what = "gained by normalising over all test captions"
    return control_table(inputs, rows, "Sees the test set", what, "transductive", NORMALISATION_TITLES, key, sign=-1)


def notes_below(inputs: TableInputs, setting: str = "") -> list[str]:
    """The sentences below the table."""
    results, rows = inputs.results, inputs.results.of("transductive")
    metric, percent = results.deciding(rows["setting"].iloc[0]), confidence_percent(results.confidence)
    side = "below" if METRICS[metric].lower_is_better else "above"
    return table_notes(
        [WARNING],
        [
            f"{metric} of captions that search clips, by normalised scores minus by the method’s own, {side} 0 where "
            "it gains. Dual softmax: a score, counted from the lowest of all, times the softmax of the clip’s scores "
            "over all captions; QB-Norm: that softmax alone, with the test captions as its bank",
            f"In brackets {percent} intervals of the paired difference over training seeds and queries",
        ],
        [f"Bold: differs after Holm’s correction over {rows['family'].iloc[0]} pairs of a method and a normalisation"],
        [unequal_budgets(inputs.facts), seed_caution(results.seed_counts())],
    )


ANALYSIS = Analysis(
    applies=lambda plan: bool(plan.keys.evaluation.transductive),
    faults=faults,
    rules=(
        Rule(
            "transductive",
            "rewind.analyses.transductive:compare",
            {"": "statistics/transductive.csv"},
            inputs={
                "item_table": lambda plan: plan.item_table(),
                "captions": lambda plan: plan.test_captions(),
                "ranks": lambda plan: plan.per_run("ranks/{method}/seed{seed}.parquet", runs(plan)),
                "similarity": lambda plan: plan.per_run("similarity/{method}/seed{seed}.npz", runs(plan)),
            },
            params={
                "runs": runs,
                "dataset": lambda plan: plan.keys.dataset,
                "normalisations": lambda plan: plan.keys.evaluation.transductive,
                "scales": lambda plan: {name: plan.keys.inverse_temperature(name) for name in methods(plan.keys)},
                "setting": lambda plan: searched_setting(plan.keys),
                "settings": lambda plan: plan.keys.statistics,
                "random": lambda plan: plan.keys.random_factors(),
            },
            grows="pairs",
            memory="page",
            own_metrics=True,
        ),
    ),
    results={"transductive": Result("statistics/transductive.csv", CONTROL_COLUMNS)},
    tables=(analysis_table("transductive", 60, layout, notes_below),),
)
