"""What was found, in words: counts, splits, lengths, faults of single files, and what the test split can tell."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator

from rewind.datasets.annotations import SPLITS
from rewind.errors import listed
from rewind.init.items import Brought, Item
from rewind.init.looking import Looked
from rewind.reporting.significance import LETTERS_FROM
from rewind.statistics.power import seen_with

_SPARSE = 2  # clusters from which differences can be spoken of at all


def describe(found: Brought, looked: Looked | None) -> Iterator[str]:
    """Lines about the files."""
    items = found.items.values()
    noun = looked.items if looked else "items"
    forward = sum(len(item.forward) for item in items)
    backward = [len(item.reverse) for item in items if item.reverse]
    twins = len(backward) if noun != "images" else 0
    where = f" in {looked.folder}" if looked else ", no clips here"
    yield f"{found.source}: {len(items):,} {noun}, {forward:,} captions{where}"
    for split in SPLITS:
        if part := [item for item in items if item.split == split]:
            yield f"  {split:<6} {_counted(part, twins > 0)}"
    if twins:
        yield f"twins: {twins:,} reversed clips, described by {sum(backward):,} reverse captions"
    elif backward:
        yield f"{len(backward):,} images have reverse captions, which are not used: an image has no direction"
    elif noun != "images":
        yield (
            "twins: none, since no clip has a reverse caption (what it shows when played backwards): retrieval is "
            "tested, the direction of time is not"
        )
    yield from found.said
    yield from _shared(found, twins > 0)
    if looked:
        yield from _files(found, looked)


def _counted(part: list[Item], twins: bool) -> str:
    captions, clusters = sum(len(item.forward) for item in part), len({item.cluster for item in part})
    text = f"{len(part):,} with {captions:,} captions"
    if twins:
        text += f", {sum(1 for item in part if item.reverse):,} with twins"
    return text + (f", in {clusters:,} clusters" if clusters < len(part) else "")


def _shared(found: Brought, twins: bool) -> Iterator[str]:
    items = list(found.items.values())
    texts = Counter(
        text for item in items for side in (item.forward, item.reverse if twins else []) for text in set(side)
    )
    several = [f"  {count} × {text[:70]!r}" for text, count in texts.most_common() if count > 1]
    if several:
        whose = "clips or twins" if twins else "of them"
        yield f"{len(several):,} captions describe several {whose}, so that a search has no single answer:"
        yield listed(several)
    both = [f"  {item.item_id}: {item.forward[0][:70]!r}" for item in items if set(item.forward) & set(item.reverse)]
    if both:
        yield f"{len(both):,} have the same caption in both directions, which nothing can tell apart:"
        yield listed(both)


def _files(found: Brought, looked: Looked) -> Iterator[str]:
    if looked.decoded < len(looked.files):
        yield f"decoded {looked.decoded:,} of {len(looked.files):,} files; --look N looks into N of them"
    if looked.seconds:
        middle, total = statistics.median(looked.seconds), sum(looked.seconds) / len(looked.seconds) * len(found.items)
        yield (
            f"length: {min(looked.seconds):.1f} to {max(looked.seconds):.1f} s, half of them {middle:.1f} s or more; "
            f"{total / 60:,.1f} minutes in all"
        )
    lost = [f"  {name}: no file {found.items[name].path!r}" for name in looked.missing]
    lost += [f"  {name}: {reason}" for name, reason in looked.broken.items()]
    if lost:
        yield f"{len(lost):,} cannot be used; tables will count them (max_missing):"
        yield listed(lost)
    if looked.same:
        yield f"{len(looked.same):,} groups of files have the same content:"
        yield listed([f"  {', '.join(group[:4])}{', …' if len(group) > 4 else ''}" for group in looked.same])


def promise(found: Brought, lost: set[str], setting: str) -> Iterator[str]:
    """What the test split can tell.

    Args:
        found: items with their splits.
        lost: ids of those that cannot be used.
        setting: the first that is evaluated.
    """
    part = [item for item in found.items.values() if item.split == "test" and item.item_id not in lost]
    clusters, queries = len({item.cluster for item in part}), sum(len(item.forward) for item in part)
    if clusters < _SPARSE:
        yield f"test: {clusters} clip: nothing can be said about methods; more are needed"
        return
    low, high = seen_with(clusters, queries / clusters)
    seen = f"{_points(low)} to {_points(high)} points of R@1"
    yield (
        f"test: {queries:,} queries in {clusters:,} clusters ({setting}): two methods must differ by {seen} to be told "
        "apart in 80% of studies, with any number of seeds"
    )
    if clusters < LETTERS_FROM:
        yield f"  too few for the letters of significance, which tables have from {LETTERS_FROM} clusters on"


def _points(value: float) -> str:
    return f"{value:.0f}" if value <= 100 else "over 100"
