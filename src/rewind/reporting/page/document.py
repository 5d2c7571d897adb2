"""The page as a whole: style and script from the files beside this module, everything in one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from string import Template
from typing import Any

from rewind.reporting.page.assets import SCRIPTS, STYLES, content
from rewind.reporting.page.parts import embedded

BEFORE = ("answer", "tables", "figures")  # sections above the explorer


@dataclass(frozen=True)
class Page:
    """What is on the page.

    Attributes:
        title: of the study.
        subtitle: a line below it.
        sections: HTML by key, in order; the keys are anchors.
        names: key → its name in the contents.
        explorer: the explorer's data, see :meth:`rewind.reporting.explorer.Explorer.data`.
        strips: see :meth:`rewind.reporting.page.strips.Strips.content`.
        beside: whether the explorer's data has files beside the page.
        clips: which clips play in the page and which are linked, in a sentence.
        copies: name of a table → markup → its text, see :func:`rewind.reporting.page.shelf.shelf`.
    """

    title: str
    subtitle: str
    sections: Mapping[str, str]
    names: Mapping[str, str]
    explorer: Mapping[str, Any]
    strips: Mapping[str, Any]
    clips: str
    beside: bool = False
    copies: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def render(page: Page) -> str:
    """The document. It asks nothing of the network and opens from a disk."""
    explorer = Template(content("explorer.html")).substitute(clips=escape(page.clips))
    keys = [*page.sections]
    before = "\n".join(page.sections[key] for key in keys if key in BEFORE)
    after = "\n".join(page.sections[key] for key in keys if key not in BEFORE)
    return Template(content("page.html")).substitute(
        title=escape(page.title),
        subtitle=escape(page.subtitle),
        style="\n".join(content(name) for name in STYLES),
        contents=_contents(keys, page.names),
        before=before,
        explorer=explorer,
        after=after,
        beside=" 'self' file:" if page.beside else "",
        data="\n".join(embedded(key, value) for key, value in _data(page).items()),
        script="\n".join(content(name) for name in SCRIPTS),
    )


def _data(page: Page) -> dict[str, Any]:
    """What the script reads, by the id of its element."""
    return {"explorer-data": page.explorer, "explorer-strips": page.strips, "table-copies": page.copies}


def _contents(keys: Sequence[str], names: Mapping[str, str]) -> str:
    place = sum(key in BEFORE for key in keys)
    ordered = [*keys[:place], "explorer", *keys[place:]]
    links = (f'<li><a href="#{escape(key)}">{escape(names.get(key, key.capitalize()))}</a></li>' for key in ordered)
    return "<ul>" + "".join(links) + "</ul>"
