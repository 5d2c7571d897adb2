"""Moving shapes: drawn as always, only fewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rewind.rehearsal.pictures import Sizes


def stand_in(source: dict[str, Any], folder: Path, sizes: Sizes) -> dict[str, Any]:
    """No more clips than the study draws."""
    return {"clips": {split: min(count, source["clips"].get(split, 0)) for split, count in sizes.counts().items()}}
