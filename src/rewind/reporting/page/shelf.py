"""The tables of the page: HTML as the workflow wrote it, with the other markups of the same table to copy."""

from __future__ import annotations

import re
from pathlib import Path

from rewind.reporting.page.parts import fragment

ORDER = (
    *("table_A", "table_B", "table_test", "table_binary", "table_cosine_gap", "table_verdict", "table_zero_shot"),
    *("table_gap", "table_groups", "table_pairs", "table_seeds"),
)
"""How names of tables begin, in reading order."""

COPIES = {"LaTeX": ".tex", "Markdown": ".md", "CSV": ".csv"}


def shelf(folder: Path, prefix: str) -> tuple[list[str], dict[str, dict[str, str]]]:
    """Fragments in reading order, runs one by one folded away; and stem → markup → the file's text.

    Args:
        folder: where the tables are.
        prefix: of their names, see the key ``tables.prefix``.
    """

    def name(path: Path) -> str:
        return path.stem.removeprefix(prefix)

    def place(path: Path) -> int:
        return next((i for i, start in enumerate(ORDER) if name(path).startswith(start)), len(ORDER))

    paths = sorted(folder.glob("*.html"), key=lambda path: (place(path), path.stem))
    shown, copies = [], {}
    for path in paths:
        files = {title: path.with_suffix(suffix) for title, suffix in COPIES.items()}
        copies[path.stem] = {title: file.read_text(encoding="utf-8") for title, file in files.items() if file.is_file()}
        table = re.sub(r"<table ", f'<table data-copies="{path.stem}" ', path.read_text(encoding="utf-8"), count=1)
        shown.append(fragment(table, folded=name(path).startswith("table_seeds")))
    return shown, copies
