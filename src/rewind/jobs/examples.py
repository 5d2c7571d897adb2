"""Pictures of one run: what a few captions found, a corner of its similarities, its space of captions and items."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from rewind.datasets.captions import load_split
from rewind.errors import RewindError
from rewind.evaluation.matrix import drawable, open_scored
from rewind.evaluation.ranking import rank_table
from rewind.evaluation.settings import among_originals
from rewind.files import reading_user_file
from rewind.jobs.given import Given
from rewind.reporting import style
from rewind.reporting.examples import retrieval_examples
from rewind.reporting.figures.embedding import embedding_space
from rewind.reporting.figures.heatmap import similarity_heatmap
from rewind.reporting.lists import Split, margins, top, view
from rewind.reporting.outcomes import TITLES, choose, outcomes, stated
from rewind.study.report import Figures
from rewind.video.clip_checks import refuse_outside
from rewind.video.frames import sample_clip

STRIP = 3  # frames shown of a clip
TOP = 5


@dataclass(frozen=True)
class Run:
    """The run that is shown: its name for titles, its similarity matrix, its vectors."""

    name: str
    similarity: str
    embedding: str


def examples(given: Given) -> None:
    """Rule ``examples``."""
    params, inputs = given.params, given.input
    run = Run(params.run, inputs.similarity, inputs.embedding)
    keys, folder = Figures(**params.figures), Path(given.output[0]).parent
    make_pictures(Path(inputs.item_table).parent, params.dataset, run, params.setting, keys, params.size, folder)


def make_pictures(data: Path, dataset: str, run: Run, setting: str, keys: Figures, size: int, folder: Path) -> None:
    """Write ``examples``, ``heatmap`` and ``embedding``, each as PNG and PDF, those of numbers also as SVG.

    Args:
        data: the data set's results folder.
        dataset: its name.
        run: what is shown.
        setting: gallery that the examples search.
        keys: the study's ``figures``.
        size: side of a thumbnail frame in pixels.
        folder: where the pictures go.
    """
    scores, split = read_similarity(data, dataset, run.similarity)
    if setting == "hard" and not (split.items["reversed"] == 1).any():
        setting = "origin"  # of a run without twins
    style.save(_examples(data, scores, split, setting, keys.examples, size, run), folder / "examples", ("png", "pdf"))
    style.save(_heatmap(scores, split, keys.heatmap, run.name), folder / "heatmap")
    style.save(_embedding(split, keys.embedding, run), folder / "embedding")


def read_similarity(data: Path, dataset: str, path: str) -> tuple[np.ndarray, Split]:
    """A similarity matrix (n_captions, n_items), see :func:`drawable`, and its captions and items in its own order.

    Raises:
        RewindError: if the test split lacks one of its captions or items.
    """
    items, captions, _ = load_split(data, dataset, "test")
    scores, queries, gallery = open_scored(path)
    captions, items = captions.set_index("caption_id", drop=False), items.set_index("item_id", drop=False)
    for ids, table, what in ((queries, captions, "caption"), (gallery, items, "item")):
        lost = [one for one in ids.tolist() if one not in table.index]
        if lost:
            raise RewindError(f"{path}: {what} {lost[0]!r} is not in the test split; evaluate the run again.")
    return drawable(scores), Split.of(captions.loc[queries], items.loc[gallery])


def _examples(data: Path, scores: np.ndarray, split: Split, setting: str, count: int, size: int, run: Run) -> Any:
    found = view(split, setting, "text_to_item")
    asked = setting if (split.items["reversed"] == 1).any() else among_originals(setting)
    ranks = rank_table(scores, split.captions, split.items, [asked], ["text_to_item"], run.similarity)
    ranks = ranks.set_index("query_id").loc[found.ids]
    kinds = outcomes(ranks["higher"].to_numpy(), ranks["ties"].to_numpy(), margins(found, scores, split))
    shown = choose(kinds, count)
    best = top(found, scores, TOP)
    drawn = []
    for place in shown:
        query = {"kind": TITLES[kinds[place]], "rank": float(ranks["rank"].iloc[place])}
        caption = split.captions.iloc[found.queries[place]]["caption"]
        hits = [_hit(data, split, found, place, item, scores, size) for item in best[place]]
        drawn.append(query | {"caption": caption, "hits": hits})
    return retrieval_examples(drawn, TOP, note=f"{run.name}, {setting}. {stated(kinds, shown)}" if shown else "")


def _hit(data: Path, split: Split, found: Any, place: int, item: int, scores: np.ndarray, size: int) -> dict[str, Any]:
    row = split.items.iloc[item]
    return {
        "image": picture_of(data, row["path"], bool(row["reversed"] == 1), STRIP, size),
        "score": float(scores[found.queries[place], item]),
        "truth": item == found.truth[place],
        "twin": item == found.rival[place],
    }


def picture_of(data: Path, path: str, reversed_clip: bool, count: int, size: int) -> np.ndarray:
    """The frames of an item, or a blank that says so where a data set of vectors has no picture of it."""
    refuse_outside(path, data.parent, data / "items.csv")
    return frames_of(data / path, reversed_clip, count, size) if path else blank(size)


def blank(size: int) -> np.ndarray:
    """A grey picture that says that there is none, uint8 (1, size, size, 3)."""
    tile = Image.new("RGB", (size, size), (232, 232, 232))
    draw = ImageDraw.Draw(tile)
    draw.text((size / 2, size / 2), "no\npicture", fill=(110, 110, 110), anchor="mm", align="center")
    return np.asarray(tile)[None]


def frames_of(path: Path, reversed_clip: bool, count: int, size: int) -> np.ndarray:
    """At most ``count`` frames of a clip, spread evenly, uint8 (t, size, size, 3), as a model sees them."""
    pixels, mask = sample_clip(path, count, size, "uniform", None, reversed=reversed_clip)
    return np.ascontiguousarray(pixels[mask.astype(bool)].transpose(0, 2, 3, 1))


def _heatmap(scores: np.ndarray, split: Split, count: int, name: str) -> Any:
    """The first items that have a caption, twins adjacent, against the first caption of each."""
    first: dict[int, int] = {}
    for caption, item in enumerate(split.own):
        first.setdefault(int(item), caption)
    heads = [item for item in sorted(first) if not 0 <= split.twin[item] < item]
    order = [item for head in heads for item in (head, int(split.twin[head])) if item in first][:count]
    rows = scores[[first[item] for item in order]].astype(float)
    spread = rows.std(axis=1, keepdims=True)
    standard = (rows - rows.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1)
    head = np.where(split.twin >= 0, np.minimum(np.arange(len(split.twin)), split.twin), np.arange(len(split.twin)))
    note = f"{name}: the first {len(order)} items of the test split"
    return similarity_heatmap(standard[:, order], head[order], note, bool((split.twin >= 0).any()))


def _embedding(split: Split, kind: str, run: Run) -> Any:
    with reading_user_file(run.embedding, "npz", "run again"), np.load(run.embedding, allow_pickle=False) as archive:
        text, items, space = archive["text"], archive["items"], str(archive["space"])
        same = split.captions["caption_id"].tolist() == archive["query_ids"].tolist()
        same &= split.items["item_id"].tolist() == archive["item_ids"].tolist()
    if not same:
        raise RewindError(
            f"{run.embedding}: its captions and items differ from those of {run.similarity}; delete it and run again."
        )
    reversed_ = split.items["reversed"].to_numpy() == 1
    return embedding_space(text, items, split.own, split.twin, reversed_, kind, space, run.name)
