"""Splits and twins that annotation files turn out to lack are told before a run begins, with who needs them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from messages import expect_message, refusal
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


def check(folder: Path, method: str, select: str = "auto", **keys: object) -> None:
    settings = {"settings": keys.pop("settings", ["test"])}
    methods = METHODS | {"net": {"head": "meanP", "training": {"select_setting": select}}}
    study = Study(name="s", dataset="d", methods=methods, evaluation=settings, sanity=None, **keys)
    check_splits(folder, study.run_spec(method), f"{method}/seed0")


def lacking(folder: Path, method: str, *places: str, select: str = "auto", **keys: object) -> str:
    """What is said of these places."""
    with refusal(*places, error=ConfigErrors) as caught:
        check(folder, method, select, **keys)
    return str(caught.value)


def test_a_split_without_a_usable_item(tmp_path: Path) -> None:
    prepared(tmp_path, ("a", "test", 0, "ok"), ("b", "train", 0, "failed"))
    text = lacking(tmp_path, "net", "items.csv")
    assert "'train'" in text and "'valid'" in text
    assert "'train'" in lacking(tmp_path, "ridge", "items.csv")
    check(tmp_path, "bow")
    check(tmp_path, "plain")  # these need the test split alone
    assert "'train'" in lacking(tmp_path, "plain", "items.csv", text={"tokenizer": "words"})


def test_settings_about_twins_need_twins(tmp_path: Path) -> None:
    rows = [(split, split, 0, "ok") for split in ("train", "valid", "test")]
    prepared(tmp_path, *rows, ("test_rev", "test", 1, "failed"))
    text = lacking(tmp_path, "net", "items.csv", select="hard", settings=["hard", "test"])
    assert "'test'" in text and "evaluation.settings" in text
    assert "'valid'" in text and "training.select_setting" in text
    check(tmp_path, "net")
    prepared(tmp_path, *rows, ("test_rev", "test", 1, "ok"))
    check(tmp_path, "net", settings=["hard", "test"])


def test_who_needs_a_split_is_named_for_the_whole_study() -> None:
    needed = Study(name="s", dataset="d", methods=METHODS).needed_splits()
    assert set(needed) == {"train", "valid", "test"} and " net " in needed["valid"]
    expect_message("\n".join(f"{split}: {reason}" for split, reason in needed.items()))
    alone = {name: METHODS[name] for name in ("plain", "bow")}
    assert set(Study(name="s", dataset="d", methods=alone, sanity=None).needed_splits()) == {"test"}


@pytest.mark.parametrize("key", ["pretraining", "cosine_gap"])
def test_what_else_needs_validation(key: str) -> None:
    keys = {"pretraining": {}} if key == "pretraining" else {"evaluation": {"settings": ["test"], "cosine_gap": True}}
    study = Study(name="s", dataset="d", methods={"z": {"model": "zero_shot"}}, sanity=None, **keys)
    assert key in study.needed_splits()["valid"]
