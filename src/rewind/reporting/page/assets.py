"""The page's own files beside this module: frame, style, script."""

from __future__ import annotations

import hashlib
from pathlib import Path

FOLDER = Path(__file__).parent
STYLES = ("page.css", "explorer.css")
SCRIPTS = ("data.js", "clips.js", "tables.js", "order.js", "list.js", "link.js", "detail.js", "explorer.js")


def content(name: str) -> str:
    """The text of one of the files."""
    return (FOLDER / name).read_text(encoding="utf-8")


def assets_hash() -> str:
    """Content hash (16 hex digits) of all of them; a fingerprint of modules does not see them."""
    whole = hashlib.sha256()
    for path in sorted(path for path in FOLDER.iterdir() if path.suffix in (".html", ".css", ".js")):
        whole.update(path.name.encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()[:16]
