"""What is said of artefacts, and the numbers behind it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd

from rewind.analyses import artefacts
from rewind.io.files import read_csv, write_csv
from rewind.video.traces import trace_names


def table_of_traces(folder: Path, telling: str, strength: float) -> tuple[str, pd.DataFrame]:
    """Traces of 120 clips and twins, of which one feature tells the direction, and their items."""
    rng, names = np.random.default_rng(0), trace_names()
    forward = rng.normal(size=(120, 2 * len(names)))
    forward[:, names.index(telling)] += strength
    ids = [f"clip{n:03}{suffix}" for n in range(120) for suffix in ("", "_rev")]
    values = np.stack([forward, -forward], axis=1).reshape(240, -1)
    columns = [f"{view}.{name}" for view in ("seen", "source") for name in names]
    write_csv(folder / "traces.csv", pd.DataFrame(values, columns=columns).assign(item_id=ids))
    split = np.repeat(["train"] * 50 + ["valid"] * 20 + ["test"] * 50, 2)
    items = {"item_id": ids, "split": split, "reversed": [0, 1] * 120, "cluster_id": np.repeat(range(120), 2)}
    return str(folder / "traces.csv"), pd.DataFrame(items)


def said(table: pd.DataFrame) -> str:
    facts = pd.DataFrame({"fact": list(artefacts.FACTS), "clips": 3, "of": [120, 120, 120, 80, 80], "median": 12.0})
    results = SimpleNamespace(of={"artefacts": table, "source_facts": facts}.__getitem__, confidence=0.95)
    found = artefacts.finding(results)
    return " ".join([*found.sentences, *found.remarks])


def test_a_trace_that_tells_the_direction_is_named(tmp_path: Path) -> None:
    table = artefacts.artefacts_table(*table_of_traces(tmp_path, "coding.sharpness", 3.0), 0.95)
    by_family = table[table["view"] == "seen"].set_index("family")
    assert by_family.loc["coding", "estimate"] > 90 and by_family.loc["coding", "low"] > 50
    assert by_family.loc["interlacing", "low"] < 50
    text = said(table)
    assert text.startswith("Direction can be told from artefacts alone in ") and "by themselves: coding " in text
    assert "interlacing 4" not in text and "interlacing 5" not in text
    assert "Of 120 clips, how many have: cuts 3, black borders 3" in text
    assert "Of 80 clips, how many have: repeated frames 3; key frames every 12 frames" in text


def test_sources_that_were_not_measured_are_left_out(tmp_path: Path) -> None:
    path, items = table_of_traces(tmp_path, "coding.sharpness", 3.0)
    table, whole = read_csv(Path(path)), artefacts.artefacts_table(path, items, 0.95)
    own = [name for name in table if name.startswith("source.")]
    table.loc[~items["cluster_id"].between(90, 109), own] = np.nan
    write_csv(Path(path), table)
    found = artefacts.artefacts_table(path, items, 0.95)
    seen = whole["view"] == "seen"
    assert found[seen].equals(whole[seen])
    assert set(whole.loc[~seen, "clips"]) == {120} and set(found.loc[~seen, "clips"]) == {20}


def test_where_nothing_tells_nothing_is_claimed(tmp_path: Path) -> None:
    table = artefacts.artefacts_table(*table_of_traces(tmp_path, "coding.sharpness", 0.0), 0.95)
    assert said(table).startswith("Not shown to be readable from artefacts: ")
    assert (table["low"] < 50).all()


def test_clips_that_equal_their_twins_are_told_half_the_time() -> None:
    still = np.zeros((30, 4))
    found = artefacts.cross_validated(still, still, 0.95)
    assert found["estimate"] == 50 and found["clips"] == 30
