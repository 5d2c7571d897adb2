"""What is searched in a setting, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from rewind.reporting.cells import TITLES
from rewind.reporting.footnotes import Footnotes
from rewind.reporting.results import short_direction


def queries_sentence(facts: Footnotes, setting: str, directions: tuple[str, ...]) -> str:
    """What searches what in a setting, and how much of it; empty where nothing is known of it."""
    counts = facts.settings.get(setting, {})
    if not counts:
        return ""
    title, queries, items = TITLES[setting], counts.get("queries"), counts.get("items")
    clusters = counts.get("clusters")
    what = f"{items:,} {facts.items}" if items is not None else facts.items
    apart = f" (in {_clusters(clusters)})" if clusters and clusters != queries else ""
    if setting == "binary":
        number = f"{queries:,} queries{apart} on {what}" if queries is not None else what
        choice = "each a choice between two (a clip or its reverse, or their captions)"
        return f"{title}: {number}, {choice}; chance is 50%"
    if queries is None:
        return f"{title}: {what}"
    if directions == ("item_to_text",):
        return f"{title}: {what} search {queries:,} captions"
    back = ", and vice versa" if len(directions) > 1 else ""
    return f"{title}: {queries:,} captions{apart} search {what}{back}"


def short_sentence(facts: Footnotes, ways: Sequence[str]) -> str:
    """What the short names of search directions mean."""
    one = facts.items.removesuffix("s")
    meant = {"text_to_item": f"text→{one}", "item_to_text": f"{one}→text"}
    return "; ".join(f"{short_direction(way, facts.items)}: {meant[way]}" for way in ways)


def _clusters(count: int) -> str:
    return f"{count:,} {'cluster' if count == 1 else 'clusters'}"
