"""What ``rewind init`` prints: counts, splits, lengths, unusable files, and what the test split can detect."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rewind.analyses.artefacts import cross_validated
from rewind.cli.init.look import MediaReport
from rewind.cli.init.read import UserData, UserItem, has_same_words
from rewind.cli.init.sizes import INSTALL_TOWERS, Machine
from rewind.config.dataset import Video
from rewind.data.annotations import SPLITS, captions_like_no_value
from rewind.data.caption_direction import words_alone_accuracy
from rewind.errors import count_noun, first_lines
from rewind.packaged import docs_page
from rewind.ranking_metrics import CHANCE_ACCURACY
from rewind.statistics.power import few_clusters_effect
from rewind.tables.results import MIN_CLUSTERS_FOR_LETTERS

EXPECTED_R1, BINARY_ACCURACY = 40.0, 75.0  # percent, about which differences are computed: nothing is trained yet
_MIN_TRACED = 20  # clips, of which five folds have four each
CONFIDENCE = 0.95
_MIN_TEST_CLUSTERS = 2  # with fewer clusters there is no variance, and nothing can be said about differences


def describe_data(data: UserData, media: MediaReport | None) -> Iterator[str]:
    """Lines about the user's files: counts, splits, twins, shared captions, lengths, unusable and identical files."""
    items = data.items.values()
    noun = media.items if media else "items"
    forward = sum(len(item.forward) for item in items)
    reverse_counts = [len(item.reverse) for item in items if item.reverse]
    twins = len(reverse_counts) if noun != "images" else 0
    where = f" in {media.folder}" if media else ", no clips here"
    yield f"{data.source}: {len(items):,} {noun}, {forward:,} captions{where}"
    for split in SPLITS:
        if split_items := [item for item in items if item.split == split]:
            yield f"  {split:<6} {_count_text(split_items, twins > 0)}"
    if twins:
        yield f"twins: {twins:,} reversed clips, described by {sum(reverse_counts):,} reverse captions"
        yield from _words_alone(items)
    elif reverse_counts:
        yield f"{len(reverse_counts):,} images have reverse captions, which are not used: an image has no direction"
    elif noun != "images":
        yield (
            "twins: none, since no clip has a reverse caption (what it shows when played backwards): retrieval is "
            "tested, the direction of time is not"
        )
    yield from data.notes
    yield from _shared_captions(data, twins > 0)
    if odd := captions_like_no_value(text for item in items for text in (*item.forward, *item.reverse)):
        listed = ", ".join(f"{text!r} ({count:,})" for text, count in odd.items())
        yield f"captions that look like a missing value, kept as they are: {listed}"
    if media:
        yield from _file_lines(data, media)


def _words_alone(items: Iterable[UserItem]) -> Iterator[str]:
    """How often only words tell a clip's caption from that of its twin: what a method must exceed."""
    pairs = [
        (text, item.reverse[min(place, len(item.reverse) - 1)], item.cluster)
        for item in items
        if item.reverse
        for place, text in enumerate(item.forward)
    ]
    accuracy = words_alone_accuracy(*zip(*pairs, strict=True)) if pairs else math.nan
    if not math.isnan(accuracy):
        above = (
            ": accuracy in binary, item to text, means something only above that" if accuracy > CHANCE_ACCURACY else ""
        )
        yield (
            f"words alone tell a clip's own caption from its twin's in {accuracy:.0f}% of {len(pairs):,} pairs, where "
            f"{CHANCE_ACCURACY:.0f}% is chance{above}"
        )


def _count_text(items: list[UserItem], twins: bool) -> str:
    captions, clusters = sum(len(item.forward) for item in items), len({item.cluster for item in items})
    text = f"{len(items):,} with {captions:,} captions"
    if twins:
        text += f", {sum(1 for item in items if item.reverse):,} with twins"
    return text + (f", in {clusters:,} clusters" if clusters < len(items) else "")


def _shared_captions(data: UserData, twins: bool) -> Iterator[str]:
    items = list(data.items.values())
    texts = Counter(
        text for item in items for side in (item.forward, item.reverse if twins else []) for text in set(side)
    )
    shared = [f"  {count} × {text[:70]!r}" for text, count in texts.most_common() if count > 1]
    if shared:
        whose = "clips or twins" if twins else "of them"
        found = count_noun(len(shared), "caption describes", "captions describe")
        yield f"{found} several {whose}, so that a search has no single answer:"
        yield first_lines(shared)
    same_both_ways = [f"  {item.item_id}: {item.forward[0][:70]!r}" for item in items if has_same_words(item)]
    if same_both_ways:
        yield f"{len(same_both_ways):,} have the same caption in both directions, which nothing can tell apart:"
        yield first_lines(same_both_ways)


def _file_lines(data: UserData, media: MediaReport) -> Iterator[str]:
    if media.decoded < len(media.files):
        yield f"decoded {media.decoded:,} of {len(media.files):,} files; --look N looks into N of them"
    if media.seconds:
        median, seconds = statistics.median(media.seconds), sum(media.seconds) / len(media.seconds) * len(data.items)
        yield (
            f"length: {min(media.seconds):.1f} to {max(media.seconds):.1f} s, half of them {median:.1f} s or more; "
            f"{seconds / 60:,.1f} minutes in all"
        )
    unusable = [f"  {name}: no file {data.items[name].path!r}" for name in media.missing]
    unusable += [f"  {name}: {reason}" for name, reason in media.broken.items()]
    if unusable:
        yield f"{len(unusable):,} cannot be used; tables will count them (max_missing):"
        yield first_lines(unusable)
    if media.noted:
        yield f"{count_noun(len(media.noted), 'clip')} can be used, with a note (also in videos/report.csv):"
        yield first_lines([f"  {name}: {media.noted[name]}" for name in media.files if name in media.noted])
    if media.own_reverse and any(data.items[name].reverse for name in media.own_reverse):
        yield (
            f"{count_noun(len(media.own_reverse), 'clip is', 'clips are')} the same played backwards, at "
            f"{Video().fps:g} frames per second, which nothing can tell apart:"
        )
        yield first_lines([f"  {name}" for name in media.own_reverse])
    yield from _artefacts_alone(media)
    if media.same:
        yield f"{count_noun(len(media.same), 'group')} of files with the same content:"
        yield first_lines([f"  {', '.join(group[:4])}{', …' if len(group) > 4 else ''}" for group in media.same])


def _artefacts_alone(media: MediaReport) -> Iterator[str]:
    """How often traces of filming and coding tell a clip from the same played backwards."""
    if len(media.traces) < _MIN_TRACED:
        return
    # In the order of the files, whichever was decoded first: folds, and so the figure, depend on it.
    traced = [media.traces[name] for name in media.files if name in media.traces]
    forward, backward = (np.array(side) for side in zip(*traced, strict=True))
    found = cross_validated(forward, backward, CONFIDENCE)
    told = f"{found['estimate']:.0f}% [{found['low']:.0f}, {found['high']:.0f}] of {found['clips']:,} clips"
    if found["low"] > CHANCE_ACCURACY:
        yield (
            f"artefacts of filming and coding alone tell a clip from the same played backwards in {told}: a method may "
            f"have its score in binary from these ({docs_page('artefacts.md')})"
        )
    else:
        yield f"not shown to be readable from artefacts of filming and coding: direction is told in {told}"


def describe_test_power(data: UserData, unusable: set[str], settings: Sequence[str]) -> Iterator[str]:
    """Lines about the differences that the test split can detect, for each setting that is evaluated.

    ``data`` has its splits; ``unusable`` are ids of items.
    """
    items = [item for item in data.items.values() if item.split == "test" and item.item_id not in unusable]
    yield "test: methods must differ by this much to be told apart in 80% of studies, with any number of seeds:"
    for setting in settings:
        unlike = [item for item in items if item.reverse and not has_same_words(item)]
        asked = unlike if setting == "binary" else items
        clusters, queries = len({item.cluster for item in asked}), sum(len(item.forward) for item in asked)
        if setting in ("hard", "binary"):
            queries += sum(len(item.reverse) for item in asked)
        yield f"  {setting:<7} {_detectable(clusters, queries, setting)}"


def _detectable(clusters: int, queries: int, setting: str) -> str:
    if clusters < _MIN_TEST_CLUSTERS:
        return f"{count_noun(clusters, 'cluster')} of queries: nothing can be said about methods; more are needed"
    # The effect depends on how much methods agree, which is not known yet: a range instead of a number.
    metric, expected = ("accuracy", BINARY_ACCURACY) if setting == "binary" else ("R@1", EXPECTED_R1)
    low, high = few_clusters_effect(clusters, queries / clusters, expected)
    # More is not possible, or (in Binary) only between a method at chance and a perfect one.
    limit = 50 if setting == "binary" else 100
    if low >= limit:
        return f"{count_noun(clusters, 'cluster')} of queries: too few to tell methods apart"
    points = f"{low:.0f} to {high:.0f} points of {metric}" if high < limit else f"{low:.0f} points of {metric} or more"
    few = f"; letters of significance need {MIN_CLUSTERS_FOR_LETTERS}" if clusters < MIN_CLUSTERS_FOR_LETTERS else ""
    return f"{points} ({queries:,} queries in {clusters:,} clusters{few})"


def describe_network(network: str, machine: Machine, chosen: bool) -> str:
    """Which network the study trains, why, and what a better one costs; ``chosen``: by the user."""
    if chosen:
        name = {"clip": "CLIP ViT-B/32", "towers": "EfficientNet-Lite0 and MiniLM, frozen", "tiny": "a tiny CLIP"}[
            network
        ]
        where = "; it trains on a machine with a GPU" if network == "clip" and not machine.gpus else ""
        return f"network: {name}, as --network says{where}"
    return {
        "clip": "network: CLIP ViT-B/32, since there is a GPU",
        "towers": "network: EfficientNet-Lite0 and MiniLM, pretrained and frozen, since there is no GPU; CLIP ViT-B/32 "
        "needs one",
        "tiny": "network: a tiny CLIP that learns only from your clips, since there is neither a GPU nor a pretrained "
        "network. Pretrained ones for a CPU: run this, and the command again with another --name:\n"
        f"  {INSTALL_TOWERS}",
    }[network]
