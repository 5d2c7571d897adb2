"""Figures of one run: retrieval examples, a corner of its similarity matrix, its embedding space."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from rewind.config.report import Figures
from rewind.data.captions import load_split, read_queries
from rewind.data.readers import NpzArchive
from rewind.data.score_matrix import fill_missing_scores, open_scores
from rewind.errors import RewindError
from rewind.evaluation.ranking import rank_table, setting_without_twins
from rewind.figures import style
from rewind.figures.embedding import embedding_space, similarity_heatmap
from rewind.io.files import reading_user_file
from rewind.report.examples import (
    OUTCOME_TITLES,
    choice_sentence,
    choose_examples,
    classify_outcomes,
    retrieval_examples,
    twin_choices,
)
from rewind.report.explorer import ScoredSplit, make_query_view, search_results
from rewind.video.frames import middle_frame, sample_clip
from rewind.video.shards import refuse_outside

STRIP_FRAMES = 3  # frames shown of a clip
TWIN_FRAMES = 4  # where nothing but the clip and its twin is shown
TOP_HITS = 5
MAX_POINTS = 20_000  # drawn in a picture of the embedding space


@dataclass(frozen=True)
class ShownRun:
    """The run that is shown."""

    name: str  # for titles
    similarity: str  # npz file of its matrix
    embedding: str  # npz file of its vectors


def make_pictures(
    data: Path, dataset: str, run: ShownRun, setting: str, keys: Figures, size: int, folder: Path
) -> None:
    """Write ``examples``, ``heatmap`` and ``embedding``, each as PNG and PDF, those of numbers also as SVG.

    ``setting`` is the gallery that the examples search; ``size`` is the side of a thumbnail frame in pixels.
    """
    scores, split = read_similarity(data, dataset, run.similarity)
    if setting == "hard" and not (split.items["reversed"] == 1).any():
        setting = "origin"  # a run without twins was not evaluated in Hard
    style.save(
        _draw_examples(data, scores, split, setting, keys.examples, size, run), folder / "examples", ("png", "pdf")
    )
    style.save(_draw_heatmap(scores, split, keys.heatmap, run.name), folder / "heatmap")
    style.save(_draw_embedding(split, keys.embedding, run), folder / "embedding")


def make_twin_picture(
    data: Path, dataset: str, runs: Mapping[str, str], pictured: str, count: int, size: int, path: Path
) -> None:
    """Write the picture of captions in Binary: clip, twin, and which of the two each run preferred; as PNG and PDF.

    Args:
        runs: name of a method → similarity matrix of its first seed.
        pictured: the method by whose outcomes captions are chosen: as many right as wrong ones where there are, evenly
            spaced over the test file.
        size: side of a thumbnail frame in pixels.
        path: of the picture, without suffix.
    """
    margins, splits = {}, {}
    for name, file in runs.items():
        scores, split = read_similarity(data, dataset, file)
        if (split.items["reversed"] == 1).any():  # a run that did not score twins has no choice to show
            view = make_query_view(split, "binary", "text_to_item")
            (results,) = search_results([view], scores, split, k=0)
            margins[name] = pd.Series(results.margin, index=view.ids)
            splits[name] = (split, view)
    drawn, note = [], ""
    chooser = pictured if pictured in margins else next(iter(margins), None)
    if chooser is not None:
        (split, view), by = splits[chooser], margins[chooser].to_numpy()
        outcomes = np.select([by > 0, by < 0], ["hit", "twin"], "miss")
        rows = choose_examples(outcomes, count)
        for row in rows:
            query, columns = view.ids[row], {"clip": view.truth[row], "twin": view.rival[row]}
            preferred: dict[str, list[str]] = {"clip": [], "twin": [], "tie": []}
            for name, margin in margins.items():
                if query in margin.index:
                    preferred["clip" if margin[query] > 0 else "twin" if margin[query] < 0 else "tie"].append(name)
            strips = {
                kind: item_picture(data, item["path"], bool(item["reversed"] == 1), TWIN_FRAMES, size)
                for kind, item in ((kind, split.items.iloc[column]) for kind, column in columns.items())
            }
            caption = split.captions.iloc[view.queries[row]]["caption"]
            drawn.append({"caption": caption, "preferred": preferred, **strips})
        right, wrong, equal = ((outcomes == kind).sum() for kind in ("hit", "twin", "miss"))
        note = (
            f"Which of the two each method preferred, by its first seed. Chosen by the outcome of {chooser} "
            f"({right:,} right, {wrong:,} wrong, {equal:,} equal), evenly spaced over the test file."
        )
    style.save(twin_choices(drawn, note), path, ("png", "pdf"))


def read_similarity(data: Path, dataset: str, path: str) -> tuple[np.ndarray, ScoredSplit]:
    """A similarity matrix (n_captions, n_items), and its captions and items in its own order.

    Missing scores are filled for drawing, see :func:`rewind.data.score_matrix.fill_missing_scores`. A matrix with
    captions or items that are not in the test split is refused.
    """
    items, captions, _ = load_split(data, dataset, "test")
    scores, queries, gallery = open_scores(path)
    captions, items = captions.set_index("caption_id", drop=False), items.set_index("item_id", drop=False)
    for ids, table, kind in ((queries, captions, "caption"), (gallery, items, "item")):
        missing = [name for name in ids.tolist() if name not in table.index]
        if missing:
            raise RewindError(f"{path}: {kind} {missing[0]!r} is not in the test split; evaluate the run again.")
    return fill_missing_scores(scores), ScoredSplit.of(captions.loc[queries], items.loc[gallery])


def _draw_examples(
    data: Path, scores: np.ndarray, split: ScoredSplit, setting: str, count: int, size: int, run: ShownRun
) -> Any:
    view = make_query_view(split, setting, "text_to_item")
    ranked_setting = setting if (split.items["reversed"] == 1).any() else setting_without_twins(setting)
    ranks = rank_table(scores, split.captions, split.items, [ranked_setting], ["text_to_item"], run.similarity)
    ranks = ranks.set_index("query_id").loc[view.ids]
    (results,) = search_results([view], scores, split, TOP_HITS)
    kinds = classify_outcomes(ranks["higher"].to_numpy(), ranks["ties"].to_numpy(), results.margin)
    chosen_rows = choose_examples(kinds, count)
    drawn, queries = [], read_queries(data, split.captions)
    for query_row in chosen_rows:
        header = {"kind": OUTCOME_TITLES[kinds[query_row]], "rank": float(ranks["rank"].iloc[query_row])}
        if queries:
            clip = queries[view.queries[query_row]].clip
            refuse_outside(os.path.relpath(clip, data), data.parent, data / "items.csv")
            header["shown"] = middle_frame(clip)
        caption = split.captions.iloc[view.queries[query_row]]["caption"]
        hits = [_describe_hit(data, split, view, query_row, item, scores, size) for item in results.top[query_row]]
        drawn.append(header | {"caption": caption, "hits": hits})
    return retrieval_examples(
        drawn, TOP_HITS, note=f"{run.name}, {setting}. {choice_sentence(kinds, chosen_rows)}" if chosen_rows else ""
    )


def _describe_hit(
    data: Path, split: ScoredSplit, view: Any, query_row: int, item: int, scores: np.ndarray, size: int
) -> dict[str, Any]:
    row = split.items.iloc[item]
    return {
        "image": item_picture(data, row["path"], bool(row["reversed"] == 1), STRIP_FRAMES, size),
        "score": float(scores[view.queries[query_row], item]),
        "truth": item == view.truth[query_row],
        "twin": item == view.rival[query_row],
    }


def item_picture(data: Path, path: str, reversed_clip: bool, count: int, size: int) -> np.ndarray:
    """The frames of an item, uint8 (t, size, size, 3); :func:`blank_picture` where a data set of vectors has none."""
    refuse_outside(path, data.parent, data / "items.csv")
    return clip_frames(data / path, reversed_clip, count, size) if path else blank_picture(size)


def blank_picture(size: int) -> np.ndarray:
    """A grey picture with the words “no picture”, uint8 (1, size, size, 3)."""
    tile = Image.new("RGB", (size, size), (232, 232, 232))
    draw = ImageDraw.Draw(tile)
    draw.text((size / 2, size / 2), "no\npicture", fill=(110, 110, 110), anchor="mm", align="center")
    return np.asarray(tile)[None]


def clip_frames(path: Path, reversed_clip: bool, count: int, size: int) -> np.ndarray:
    """At most ``count`` frames of a clip, spread evenly, uint8 (t, size, size, 3), as a model sees them."""
    pixels, mask = sample_clip(path, count, size, "uniform", None, reversed=reversed_clip)
    return np.ascontiguousarray(pixels[mask.astype(bool)].transpose(0, 2, 3, 1))


def _draw_heatmap(scores: np.ndarray, split: ScoredSplit, count: int, name: str) -> Any:
    """Scores of the first captioned items, twins adjacent, against the first caption of each, standardised by row."""
    caption_of_item: dict[int, int] = {}
    for caption, item in enumerate(split.own):
        caption_of_item.setdefault(int(item), caption)
    originals = [item for item in sorted(caption_of_item) if not 0 <= split.twin[item] < item]
    order = [
        item for original in originals for item in (original, int(split.twin[original])) if item in caption_of_item
    ][:count]
    rows = scores[[caption_of_item[item] for item in order]].astype(float)
    spread = rows.std(axis=1, keepdims=True)
    standard = (rows - rows.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1)
    pair_of_item = np.where(
        split.twin >= 0, np.minimum(np.arange(len(split.twin)), split.twin), np.arange(len(split.twin))
    )
    note = f"{name}: the first {len(order)} items of the test split"
    return similarity_heatmap(standard[:, order], pair_of_item[order], note, bool((split.twin >= 0).any()))


def _draw_embedding(split: ScoredSplit, kind: str, run: ShownRun) -> Any:
    with reading_user_file(run.embedding, "npz", "run again"), np.load(run.embedding, allow_pickle=False) as small:
        space = str(small["space"])
        same = split.captions["caption_id"].tolist() == small["query_ids"].tolist()
        same &= split.items["item_id"].tolist() == small["item_ids"].tolist()
    if not same:
        raise RewindError(
            f"{run.embedding}: its captions and items differ from those of {run.similarity}; delete it and run again."
        )
    captions, items = _points_to_draw(split.own, split.twin)
    total, shown = len(split.own) + len(split.twin), len(captions) + len(items)
    name = run.name if shown == total else f"{run.name}, {shown:,} of {total:,} points, evenly spaced"
    place = np.full(len(split.twin), -1)
    place[items] = np.arange(len(items))
    twins = split.twin[items]
    archive = NpzArchive(run.embedding)
    return embedding_space(
        _read_rows(archive, "text", captions),
        _read_rows(archive, "items", items),
        place[split.own[captions]],
        np.where(twins >= 0, place[twins], -1),
        split.items["reversed"].to_numpy()[items] == 1,
        kind,
        space,
        name,
    )


def _points_to_draw(own: np.ndarray, twin: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Captions and items to draw, ascending: all, or about MAX_POINTS of them, items with their twins.

    ``own`` (n,) and ``twin`` (m,) are those of :class:`ScoredSplit`.
    """
    if len(own) + len(twin) <= MAX_POINTS:
        return np.arange(len(own)), np.arange(len(twin))
    captions, others = (
        np.unique(np.linspace(0, count - 1, min(count, MAX_POINTS // 5)).astype(int)) for count in (len(own), len(twin))
    )
    items = np.union1d(own[captions], others)
    return captions, np.union1d(items, twin[items][twin[items] >= 0])


def _read_rows(archive: NpzArchive, name: str, rows: np.ndarray) -> np.ndarray:
    """Some rows, ascending, of an array that is read in blocks."""
    parts = []
    for start, block in archive.blocks(name):
        here = rows[slice(*np.searchsorted(rows, (start, start + len(block))))]
        parts.append(block[here - start])
    return np.concatenate(parts)
