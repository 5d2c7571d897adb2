"""The markups in which every table is written: one module each, and its line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rewind.reporting import html, latex, markdown
from rewind.reporting.sheet import Sheet

MARKUPS: Mapping[str, Callable[[Sheet, list[str]], str]] = {
    ".md": markdown.render,
    ".tex": latex.render,
    ".html": html.render,
}
"""Suffix → what writes a table and its notes."""
