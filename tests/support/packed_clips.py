"""A packed data set of a few clips."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rewind.config import Image, Video
from rewind.io.files import read_csv, write_csv
from rewind.video import prepare
from rewind.video.dataset import join_reports, make_shard

IMAGES = Image(short_side=24)


def inventory(folder: Path, names: list[str], suffix: str, twin: int = 0, parts: int = 1) -> pd.DataFrame:
    sources = [str(folder / f"{name}{suffix}") if (folder / f"{name}{suffix}").is_file() else "" for name in names]
    table = pd.DataFrame({"item_id": names, "split": "test", "source": sources, "reversed_source": "", "twin": twin})
    table["shard"] = [place % parts for place in range(len(names))]
    write_csv(folder / "videos/inventory.csv", table)
    return read_csv(folder / "videos/inventory.csv")


def make(folder: Path, parts: int = 1, settings: Image | Video = IMAGES, code: str = "code") -> Path:
    """All shards and their index, as the workflow makes them: it removes a job's outputs first."""
    videos = folder / "videos"
    for path in (videos / "shards").glob(f"*-of-{parts}.*"):
        path.unlink()
    reports = [str(videos / f"shards/{n}-of-{parts}.csv") for n in range(parts)]
    for n, report in enumerate(reports):
        make_shard(str(videos / "inventory.csv"), n, settings, code, 2, report)
    join_reports(reports, 1.0, "", "images", str(videos / "report.csv"))
    return videos


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ids of the items that are really made, as they are."""
    found: list[str] = []
    whole = prepare._make
    monkeypatch.setattr(prepare, "_make", lambda job, settings: found.append(job.item_id) or whole(job, settings))
    return found
