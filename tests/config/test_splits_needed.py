"""Splits and twins that annotation files turn out to lack are told before a run begins, with who needs them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rewind.config import Study
from rewind.errors import ConfigErrors
from rewind.loading.splits import check_splits

METHODS = {
    "net": {"head": "meanP"},
    "ridge": {"model": "ridge", "training": {"freeze": ["visual"]}},
    "plain": {"model": "zero_shot"},
    "bow": {"model": "bow"},
}


def prepared(folder: Path, *rows: tuple[str, str, int, str]) -> Path:
    columns = ["item_id", "split", "reversed", "status"]
    pd.DataFrame(rows, columns=columns).assign(path="", cluster_id="c").to_csv(folder / "items.csv", index=False)
    return folder


def lacking(folder: Path, method: str, select: str = "auto", **keys: object) -> str:
    settings = {"settings": keys.pop("settings", ["test"])}
    methods = METHODS | {"net": {"head": "meanP", "training": {"select_setting": select}}}
    study = Study(name="s", dataset="d", methods=methods, evaluation=settings, sanity=None, **keys)
    try:
        check_splits(folder, study.run_spec(method), f"{method}/seed0")
    except ConfigErrors as error:
        return "\n".join(line for lines in error.files.values() for line in lines)
    return ""


def test_a_split_without_a_usable_item(tmp_path: Path) -> None:
    prepared(tmp_path, ("a", "test", 0, "ok"), ("b", "train", 0, "failed"))
    text = lacking(tmp_path, "net")
    assert "the split 'train' has no usable item (the annotations list 1; captions/report.json says why" in text
    assert "net/seed0 learns from it" in text and "the split 'valid' has no usable item, but net/seed0 chooses" in text
    assert "ridge/seed0 is fitted on it" in lacking(tmp_path, "ridge")
    assert not lacking(tmp_path, "bow") and not lacking(tmp_path, "plain"), "these need the test split alone"
    assert "has its vocabulary from it" in lacking(tmp_path, "plain", text={"tokenizer": "words"})


def test_settings_about_twins_need_twins(tmp_path: Path) -> None:
    rows = [(split, split, 0, "ok") for split in ("train", "valid", "test")]
    prepared(tmp_path, *rows, ("test_rev", "test", 1, "failed"))
    text = lacking(tmp_path, "net", "hard", settings=["hard", "test"])
    assert "the split 'test' has no time-reversed twin, but evaluation.settings names hard: " in text
    assert "the split 'valid' has no time-reversed twin, but training.select_setting names hard: " in text
    assert not lacking(tmp_path, "net")
    prepared(tmp_path, *rows, ("test_rev", "test", 1, "ok"))
    assert not lacking(tmp_path, "net", settings=["hard", "test"])


def test_who_needs_a_split_is_named_for_the_whole_study() -> None:
    needed = Study(name="s", dataset="d", methods=METHODS).needed_splits()
    assert needed["valid"] == "method net chooses its checkpoint on it" and set(needed) == {"train", "valid", "test"}
    alone = {name: METHODS[name] for name in ("plain", "bow")}
    assert set(Study(name="s", dataset="d", methods=alone, sanity=None).needed_splits()) == {"test"}


@pytest.mark.parametrize("key", ["pretraining", "cosine_gap"])
def test_what_else_needs_validation(key: str) -> None:
    keys = {"pretraining": {}} if key == "pretraining" else {"evaluation": {"settings": ["test"], "cosine_gap": True}}
    study = Study(name="s", dataset="d", methods={"bow": {"model": "bow"}}, sanity=None, **keys)
    assert key in study.needed_splits()["valid"]
