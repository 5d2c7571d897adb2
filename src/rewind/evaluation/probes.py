"""Probes of a finished run: what it knows of time and of what captions say, beyond the ranks of settings.

``evaluation.probes`` names them; :data:`PROBES` has the function of each. All write into one table of values per run,
which :mod:`rewind.statistics.probes` turns into intervals and tests:

- ``pairs``: text, video and group score of every clip with its twin, or of the pairs that a data set has;
- ``answers``: average precision, hits and nDCG where captions have several right clips;
- ``foils``: whether a clip's true caption is scored above captions that are not true of it, by kind;
- ``direction``: whether a linear classifier can read the direction of time from features and from the run's vectors;
- ``geometry``: modality gap, hubness, alignment, uniformity, and a threshold for "no such clip".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import torch

from rewind.config.evaluation import (
    BY_CHANCE,
    DIRECTION_FOLDS,
    DIRECTION_PERMUTATIONS,
    HUBNESS_NEIGHBOURS,
    VALUE_COLUMNS,
)
from rewind.data.annotations import twin_of, twin_rows
from rewind.data.captions import SplitTables, load_split
from rewind.data.questions import JUDGED_ITEMS
from rewind.data.readers import MISSING_SCORE
from rewind.data.score_matrix import open_scores
from rewind.evaluation.answers import answer_values, judged_share
from rewind.evaluation.embedding import RetrievalEmbeddings, compute_embeddings
from rewind.evaluation.foils import binary_pair_values, combined_accuracy, foil_values, pair_values
from rewind.evaluation.geometry import answer_scores, answer_threshold, measure_geometry
from rewind.evaluation.ranking import unscored_settings
from rewind.evaluation.similarity import encode_captions, similarity_matrix
from rewind.io.files import read_csv, write_parquet
from rewind.loading.encode import encode_all_items, frame_features, to_main_memory
from rewind.loading.run_data import PreparedSplit, RunData, job_device, load_trained_model
from rewind.models.backbone import Backbone
from rewind.models.direction import (
    FINAL,
    direction_by_chance,
    frame_sequence,
    layer_features,
    pair_accuracy,
    probe_direction,
)
from rewind.models.precomputed import PrecomputedEmbeddings, PrecomputedScores, load_precomputed_embeddings
from rewind.models.retriever import Features, Retriever

WITHOUT_TWINS = "without twins"
"""In ``part`` of a run that leaves twins out."""


@dataclass(frozen=True)
class QuestionFiles:
    """Tables of a data set that ask more than its captions do; None where it has none."""

    answers: str | None = None  # captions and their right clips
    foils: str | None = None  # captions that are not true of a clip
    caption_pairs: str | None = None  # pairs of clips with a caption each
    proficiency: str | None = None  # questions that another one presupposes
    foil_vectors: str | None = None  # of captions and foils, by a named model whose own file of captions has no foils


class ProbedRun:
    """One run, with what its probes share, computed when it is first asked for; ``model`` is its checkpoint."""

    def __init__(
        self, data: RunData, model: str, similarity: str, questions: QuestionFiles, directions: Sequence[str]
    ) -> None:
        self.data, self.model, self.similarity = data, model, similarity
        self.questions, self.directions = questions, list(directions)

    @cached_property
    def retriever(self) -> Retriever:
        retriever = load_trained_model(self.data, self.model)
        self.data.check_tower(retriever)
        return retriever.eval().to(job_device())

    @cached_property
    def scores(self) -> tuple[np.ndarray, pd.DataFrame, pd.DataFrame]:
        """The matrix, and the captions and items that are its rows and columns."""
        items, captions, _ = self.tables("test")
        scores, queries, gallery = open_scores(self.similarity)
        rows = captions.set_index("caption_id", drop=False).loc[queries].reset_index(drop=True)
        columns = items.set_index("item_id", drop=False).loc[gallery].reset_index(drop=True)
        return scores, rows, columns

    @cached_property
    def vectors(self) -> RetrievalEmbeddings:
        """Vectors of the test split, in the order of its tables as far as the model covers them."""
        split = self.data.split("test", self.retriever)
        keys = self.data.spec.evaluation
        return compute_embeddings(self.retriever, split.text, split.inputs, keys, job_device(), split.workers)

    @property
    def leaves_twins_out(self) -> bool:
        """Whether the test split has time-reversed twins and the run scores none."""
        _, _, gallery = self.scores
        return bool((self.tables("test").items["reversed"] == 1).any() and not (gallery["reversed"] == 1).any())

    def tables(self, split: str) -> SplitTables:
        return load_split(self.data.folder, self.data.dataset, split)


Probe = Callable[[ProbedRun], Iterator[pd.DataFrame]]
"""Tables with some of :data:`~rewind.config.evaluation.VALUE_COLUMNS`; those that are left out are empty."""


def compute_probes(run: ProbedRun, probes: Collection[str], result: str) -> None:
    """Write the values of a run's probes, a Parquet file with :data:`~rewind.config.evaluation.VALUE_COLUMNS`.

    A probe that does not apply to the run, such as geometry to one that compares no vectors, has no rows. A run that
    leaves twins out (:meth:`rewind.models.retriever.Retriever.covers`) is asked about other queries in another gallery
    than runs with twins: its measures have a ``part`` of their own.
    """
    tables = [table.assign(probe=name) for name, probe in PROBES.items() if name in probes for table in probe(run)]
    if run.leaves_twins_out:
        tables = [table.assign(part=_named_part(table, WITHOUT_TWINS)) for table in tables]
    empty = pd.DataFrame({column: pd.Series(dtype=float if column == "value" else str) for column in VALUE_COLUMNS})
    values = pd.concat([empty, *(table.reindex(columns=list(VALUE_COLUMNS)) for table in tables)], ignore_index=True)
    values[list(VALUE_COLUMNS[:-1])] = values[list(VALUE_COLUMNS[:-1])].fillna("").astype(str)
    write_parquet(result, values)


def _named_part(table: pd.DataFrame, name: str) -> pd.Series:
    parts = table["part"] if "part" in table else pd.Series("", index=table.index)
    return (parts + " " + name).str.strip()


# ---- What the matrix of scores tells -------------------------------------------------------------------------------


def probe_pairs(run: ProbedRun) -> Iterator[pd.DataFrame]:
    """Text, video and group score: of the data set's own pairs by their kind, and of clips with their twins."""
    scores, captions, items = run.scores
    if run.questions.caption_pairs:
        pairs = read_csv(run.questions.caption_pairs, text=("pair_id", "first", "second", "kind"))
        known = pairs["first"].isin(captions["caption_id"]) & pairs["second"].isin(captions["caption_id"])
        pairs = pairs[known]
        own = captions.set_index("caption_id")["video_id"]
        # Each caption with the clip of the other one: a file of scores may lack these pairs.
        crossed = pd.concat(
            [pairs[["first", "second"]], pairs[["second", "first"]].set_axis(["first", "second"], axis=1)]
        )
        if _has_score(scores, captions, items, crossed["first"], own[crossed["second"]]).any():
            yield pair_values(scores, captions, items, pairs).rename(columns={"kind": "part"})
    described = set(captions["video_id"])
    both = described & {twin_of(video) for video in described}  # a twin may have no caption
    if both and not unscored_settings(scores, captions, items, ["binary"], ["text_to_item", "item_to_text"]):
        yield binary_pair_values(scores, captions, items)


def probe_answers(run: ProbedRun) -> Iterator[pd.DataFrame]:
    """Metrics of captions with several right clips, by the data set's settings."""
    assert run.questions.answers is not None  # a study with this probe has a data set with answers
    answers = read_csv(run.questions.answers, text=("setting", "caption_id", "item_id"))
    scores, captions, items = run.scores
    for _, rows in answers.groupby("setting", sort=False):
        asked = _answers_of_matrix(rows, scores, captions, items)
        if len(asked):
            values = answer_values(scores, captions, items, asked, run.directions, run.questions.answers)
            yield values.rename(columns={"setting": "part"})
        if len(judged := _judged_alone(asked)):
            if "text_to_item" in run.directions:
                yield judged_share(scores, captions, items, asked).rename(columns={"setting": "part"})
            values = answer_values(scores, captions, items, judged, run.directions, run.questions.answers)
            yield values.rename(columns={"setting": "part"})


def _judged_alone(answers: pd.DataFrame) -> pd.DataFrame:
    """Rows of an open setting that names wrong pairs too, as a closed one: what nobody judged is left out, not wrong.

    That is a condensed list (Sakai and Kando, On information retrieval metrics designed for evaluation with incomplete
    relevance assessments, 2008). It is no upper bound: a right clip that nobody judged would count in neither setting.
    """
    wrong = answers.loc[answers["right"] == 0, "caption_id"]
    rows = answers[answers["caption_id"].isin(wrong) & (answers["gallery"] != JUDGED_ITEMS)]
    return rows.assign(gallery=JUDGED_ITEMS, setting=rows["setting"] + ", judged pairs alone")


def _answers_of_matrix(
    answers: pd.DataFrame, scores: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame
) -> pd.DataFrame:
    """The rows of one setting that a matrix can answer; none if it has no score of a wrong candidate."""
    # What cannot be decoded is in no matrix, nor are twins that a model leaves out; the answers are those of all clips.
    there = answers["caption_id"].isin(captions["caption_id"]) & answers["item_id"].isin(items["item_id"])
    lost = answers["caption_id"][(answers["right"] > 0) & ~there]
    asked = answers[there]
    still = asked["caption_id"][asked["right"] > 0]
    # A caption that never had a right answer stays, and is refused.
    asked = asked[asked["caption_id"].isin(still) | ~asked["caption_id"].isin(lost)]
    if (answers["gallery"] == JUDGED_ITEMS).any():
        wrong = asked[asked["right"] == 0]
        scored = bool(_has_score(scores, captions, items, wrong["caption_id"], wrong["item_id"]).any())
    else:
        scored = not unscored_settings(scores, captions, items, ["test"], ["text_to_item"])
    return asked if scored else asked[:0]


def _has_score(
    scores: np.ndarray, captions: pd.DataFrame, items: pd.DataFrame, caption_ids: pd.Series, item_ids: pd.Series
) -> np.ndarray:
    """(n,) whether a file of scores has one for each pair of a caption and an item of the matrix."""
    rows = pd.Index(captions["caption_id"]).get_indexer(caption_ids)
    return scores[rows, pd.Index(items["item_id"]).get_indexer(item_ids)] != MISSING_SCORE


# ---- What other captions of the same clips tell --------------------------------------------------------------------


def probe_foils(run: ProbedRun) -> Iterator[pd.DataFrame]:
    """Whether each true caption is scored above its foils, by kind."""
    if isinstance(run.retriever, PrecomputedScores):
        return  # an encoder that scores pairs: those of foils are in no file
    assert run.questions.foils is not None  # a study with this probe has a data set with foils
    foils = read_csv(run.questions.foils, text=("foil_id", "caption_id", "caption", "kind"))
    items, captions = run.retriever.covers(*run.tables("test")[:2])
    owner = captions.set_index("caption_id")["video_id"]
    foils = foils[foils["caption_id"].isin(owner.index)].reset_index(drop=True)
    if foils.empty:  # of clips that cannot be decoded, or of twins that the model leaves out
        return
    own_clip = owner[foils["caption_id"]].to_numpy()
    true_captions = captions[captions["caption_id"].isin(foils["caption_id"])]
    asked = pd.DataFrame({"caption_id": foils["foil_id"], "video_id": own_clip, "caption": foils["caption"]})
    texts = pd.concat([true_captions[asked.columns], asked], ignore_index=True)
    score = pd.Series(own_scores(run, items, texts), index=texts["caption_id"].to_numpy())
    clusters = items.set_index("item_id")["cluster_id"]
    answered = foils[["caption_id", "kind"]].assign(
        cluster_id=clusters[own_clip].to_numpy(),
        truth=score[foils["caption_id"]].to_numpy(),
        foil=score[foils["foil_id"]].to_numpy(),
    )
    tables = [foil_values(answered)]
    if run.questions.proficiency:
        proficiency = read_csv(run.questions.proficiency, text=("caption_id", "proficiency_id"))
        tables.append(combined_accuracy(answered, proficiency))
    yield from (table.rename(columns={"kind": "part"}) for table in tables)


@torch.inference_mode()
def own_scores(run: ProbedRun, items: pd.DataFrame, texts: pd.DataFrame) -> np.ndarray:
    """(n,) score of each text with its own item, ``video_id``, and no others."""
    retriever, keys = run.retriever, run.data.spec.evaluation
    if run.questions.foil_vectors and isinstance(retriever, PrecomputedEmbeddings):
        options = run.data.spec.method.precomputed_options()
        retriever = load_precomputed_embeddings(options.model_copy(update={"captions": run.questions.foil_vectors}))
    asked = items[items["item_id"].isin(texts["video_id"])].reset_index(drop=True)
    split = run.data.prepare(asked, texts, retriever, cached=False)
    words = encode_captions(retriever, split.text, keys, job_device())
    clips = encode_all_items(retriever.encode_items, split.inputs, keys.batch_size, job_device(), workers=split.workers)
    column = pd.Series(np.arange(len(asked)), index=asked["item_id"])[texts["video_id"]].to_numpy()
    order = np.argsort(column, kind="stable")  # texts of one clip side by side
    scores = np.zeros(len(texts), np.float32)
    ends = np.searchsorted(column[order], np.arange(len(asked) + 1))
    for first in range(0, len(asked), keys.batch_size):
        last = min(first + keys.batch_size, len(asked))
        rows = order[ends[first] : ends[last]]
        part = {name: value[first:last] for name, value in clips.items()}
        text = {name: value[torch.from_numpy(rows).to(value.device)] for name, value in words.items()}
        matrix = retriever.similarity(text, part).float().cpu().numpy()
        scores[rows] = matrix[np.arange(len(rows)), column[rows] - first]
    return scores


# ---- What vectors and features tell --------------------------------------------------------------------------------


def probe_geometry(run: ProbedRun) -> Iterator[pd.DataFrame]:
    """How vectors lie, and how well a threshold on the best score tells that no clip answers a caption."""
    if not run.retriever.compares_vectors:
        return
    items, captions, _ = run.tables("test")
    items, captions = run.retriever.covers(items, captions)
    if len(items) <= HUBNESS_NEIGHBOURS:
        print(f"geometry: {len(items)} clips; hubness counts {HUBNESS_NEIGHBOURS} nearest ones of more")
        return
    row = pd.Series(np.arange(len(items)), index=items["item_id"])
    vectors = run.vectors
    measures = measure_geometry(
        vectors.text, vectors.items, row[captions["video_id"]].to_numpy(), HUBNESS_NEIGHBOURS, run.model
    )
    yield pd.DataFrame({"metric": list(measures), "value": list(measures.values())})
    if run.data.spec.method.precomputed:
        return  # files cover only the test split: a threshold would have to be chosen on it
    if run.tables("valid").items["cluster_id"].nunique() < 2 or items["cluster_id"].nunique() < 2:
        print("geometry: a threshold is chosen on validation, which has fewer than two clusters of clips here")
        return
    split, keys = run.data.split("valid", run.retriever), run.data.spec.evaluation
    scores = similarity_matrix(run.retriever, split.text, split.inputs, keys, job_device(), workers=split.workers)
    sides = {"valid": (scores, split.captions, split.items), "test": run.scores}
    answered = {
        name: answer_scores(
            matrix,
            pd.Series(np.arange(len(columns)), index=columns["item_id"].to_numpy())[rows["video_id"]].to_numpy(),
            pd.factorize(columns["cluster_id"])[0],
            f"{run.model}: {name}",
        )
        for name, (matrix, rows, columns) in sides.items()
    }
    threshold = answer_threshold(answered["valid"], answered["test"])
    _, rows, columns = run.scores
    cluster = columns.set_index("item_id")["cluster_id"][rows["video_id"]].to_numpy()
    for metric, values in (("missed", threshold.missed), ("false", threshold.false)):
        queries = {"query_id": rows["caption_id"].to_numpy(), "cluster_id": cluster}
        yield pd.DataFrame({"metric": metric, **queries, "value": values})
    yield pd.DataFrame({"metric": ["auroc"], "value": [threshold.auroc]})


def probe_direction_of_time(run: ProbedRun) -> Iterator[pd.DataFrame]:
    """Which of a clip and its twin runs forward, by linear classifiers that are cross-validated by cluster.

    ``frames in a row``: on the features of all frames, where the towers see each frame by itself (what a head could
    read), with a part for each block of the tower where a run reads pixels; ``clip vector``: on the run's vectors,
    where it compares vectors (what its head has read). Next to each: the accuracy where the direction is drawn at
    random; features that are the same in both directions need no test.
    """
    items, captions, _ = run.tables("test")
    items, _ = run.retriever.covers(items, captions)
    twin = twin_rows(items["item_id"])
    paired = np.flatnonzero(twin >= 0)
    asked, place = items.iloc[paired], pd.Series(np.arange(len(paired)), index=paired)
    if (groups := asked["cluster_id"].nunique()) < DIRECTION_FOLDS:
        print(f"direction: clips with a twin in {groups} clusters; {DIRECTION_FOLDS} are needed")
        return
    backward, clusters = asked["reversed"].to_numpy(), pd.factorize(asked["cluster_id"])[0]
    twins = place[twin[paired]].to_numpy()
    for part, metric, values in _direction_features(run):
        features = values[paired]
        probed = probe_direction(features, backward, clusters, DIRECTION_FOLDS, run.model)
        told = pair_accuracy(probed["score"].to_numpy(), backward, twins, run.model)
        clips = asked.iloc[told["item"].to_numpy()]
        queries = {"query_id": clips["item_id"].to_numpy(), "cluster_id": clips["cluster_id"].to_numpy()}
        yield pd.DataFrame({"part": part, "metric": metric, **queries, "value": 100 * told["right"].to_numpy()})
        if (features == features[twins]).all():
            continue
        chance = direction_by_chance(
            features, backward, twins, clusters, DIRECTION_PERMUTATIONS, DIRECTION_FOLDS, run.model
        )
        draws = {"query_id": [str(draw) for draw in range(len(chance))], "cluster_id": ""}
        yield pd.DataFrame({"part": part, "metric": metric + BY_CHANCE, **draws, "value": 100 * chance})


def _direction_features(run: ProbedRun) -> Iterator[tuple[str, str, np.ndarray]]:
    """Part, metric and features (m, D) of every item, one after the other: those of all blocks are large."""
    backbone = run.retriever.backbone
    if backbone is not None and backbone.sees_single_frames:
        split, size = run.data.split("test", run.retriever), run.data.spec.evaluation.batch_size
        for layer, frames, mask in _frames_by_layer(backbone, split, size):
            part = "" if layer == FINAL else layer
            yield part, "frames in a row", frame_sequence(frames, mask, where=run.model)
    if run.retriever.compares_vectors:
        yield "", "clip vector", run.vectors.items


def _frames_by_layer(
    backbone: Backbone, split: PreparedSplit, size: int
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, features (m, T, F) and mask (m, T) of the tower's output, and of its blocks where it reads pixels."""
    if "frames" in split.inputs.batch(np.arange(1)):  # only the output was cached
        batch = frame_features(backbone, split.inputs, size, workers=split.workers).batch(np.arange(len(split.items)))
        yield FINAL, batch["frames"].numpy(), batch["mask"].numpy()
        return

    def encode(batch: Features) -> Features:
        layers = layer_features(backbone, batch["pixels"], batch["mask"])
        return to_main_memory({name: layer.float() for name, layer in layers.items()} | {"mask": batch["mask"]})

    encoded = encode_all_items(encode, split.inputs, size, job_device(), workers=split.workers)
    mask = encoded.pop("mask").numpy()
    for name in (FINAL, *(name for name in encoded if name != FINAL)):
        yield name, encoded[name].numpy(), mask


PROBES: Mapping[str, Probe] = {
    "pairs": probe_pairs,
    "answers": probe_answers,
    "foils": probe_foils,
    "direction": probe_direction_of_time,
    "geometry": probe_geometry,
}
"""Name in ``evaluation.probes`` → the function that measures it, in the order of tables."""
