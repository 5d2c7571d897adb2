"""A made-up study for the page: captions, twins, similarities of several runs, moving clips."""

from dataclasses import replace

import numpy as np
import pandas as pd

from rewind.evaluation.ranking import rank_table
from rewind.report.explorer import Explorer
from rewind.report.page.document import Page, html_section, render_page
from rewind.report.page.strips import MAX_STRIP_BYTES, make_strips

SETTINGS, WAYS = ("origin", "hard", "binary"), ("text_to_item", "item_to_text")
METHODS = {
    "meanP": "meanP",
    "seqLSTM": "seqLSTM",
    "seqTransf": "seqTransf",
    "tightTransf": "tight $x",
    "chance": "Chance",
}
WORDS = ("red", "green", "blue", "circle", "square", "star", "rises", "falls", "grows", "shrinks")
ODD = 'she said "</script><b>no</b>" & left – naïve, 猫 $title ${x} \\u003c'


def split(clips):
    """``clips`` originals, each with a twin, and a caption for every one of them; the first caption is odd."""
    ids = [name for n in range(clips) for name in (f"clip{n:04d}", f"clip{n:04d}_rev")]
    items = pd.DataFrame({"item_id": ids, "reversed": [i % 2 for i in range(len(ids))]})
    items["path"], items["cluster_id"] = "videos/" + items["item_id"] + ".mp4", items["item_id"].str[:8]
    rng = np.random.default_rng(1)
    texts = [ODD, *(" ".join(rng.choice(WORDS, 4)) + f" {n}" for n in range(1, len(ids)))]
    captions = pd.DataFrame({"caption_id": [f"{i}#0" for i in ids], "video_id": ids, "caption": texts})
    return captions, items


def scores(n, seed, tied=False):
    """Similarities with the truth high and the twin near it; ``tied``: a clip and its twin score the same."""
    rng = np.random.default_rng(seed)
    made = rng.normal(size=(n, n)).astype(np.float32)
    at = np.arange(n)
    made[at, at] += 3
    made[at, at ^ 1] += 2.5
    return np.repeat(made[:, ::2], 2, axis=1) if tied else made


def explorer(clips, methods=METHODS, seeds=3):
    """The explorer of all runs, and a function that gives a run's matrix."""
    captions, items = split(clips)
    made, kept = Explorer(captions, items, SETTINGS, WAYS), {}
    for place, method in enumerate(methods):
        for seed in range(1 if method == "chance" else seeds):
            matrix = scores(len(items), 10 * place + seed, method == "meanP")
            matrix = np.zeros_like(matrix) if method == "chance" else matrix
            ranks = rank_table(matrix, captions, items, list(SETTINGS), list(WAYS))
            made.add(method, seed, matrix, ranks, f"{method}.npz")
            kept[method, seed] = matrix
    return made, kept


def frames(item):
    """Six frames in which a bar moves, backwards for a twin (an odd item)."""
    clip = np.full((6, 32, 32, 3), 250, np.uint8)
    for t in range(6):
        clip[t, :, 5 * t : 5 * t + 5] = (item // 2 * 37 % 200, 90, 160)
    return clip[::-1] if item % 2 else clip


def page(clips, budget=MAX_STRIP_BYTES, sections=None, folder="../clips", beside="", copies=None, begin=None):
    """The whole document, its explorer and its strips; ``beside``: folder of the runs' numbers, if not in the page."""
    made, _ = explorer(clips)
    items = made.split.items
    strips = make_strips(frames, made.split.twin.tolist(), (items["reversed"] == 1).tolist(), budget)
    addresses = [f"{folder}/{path}" for path in items["path"]]
    data = made.data(METHODS, ("chance",), addresses, strips.numbers(), folder=beside, begin=begin)
    sections = sections or {"tables": html_section("tables", "Tables", "<p>none</p>")}
    content = Page("Bars & <stars>", "made up", sections, {}, data, strips.content(), "Clips play.", bool(beside))
    return render_page(replace(content, copies=copies or {})), made, strips
