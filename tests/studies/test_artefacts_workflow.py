"""A study with ``model: artefacts_only`` and groups by sensitivity to time, from clips to the page."""

from __future__ import annotations

import json
import re

import pandas as pd
import pytest

from mini_study import Workflow
from rewind.config import Dataset, load_dataset
from rewind.data.groups import read_groups
from rewind.workflow.queries import known_annotations

pytestmark = pytest.mark.workflow

STUDY = """
dataset: shapes
methods:
  artefacts_only: {model: artefacts_only, label: artefacts only, seeds: [0]}
  caption_only: {model: caption_only, label: caption only, seeds: [0]}
  chance: {model: chance, seeds: [0]}
sanity: null
statistics: {resamples: 200}
"""
OVERRIDES = """studies: [mini]
overrides:
  datasets.shapes.groups: time_sensitivity
  datasets.shapes.source.clips: {train: 24, valid: 6, test: 12}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    workflow = Workflow(tmp_path_factory.mktemp("artefacts"))
    (workflow.folder / "config/studies/mini.yaml").write_text(STUDY)
    (workflow.folder / "config/config.yaml").write_text(OVERRIDES)
    workflow.run()
    return workflow


def test_the_verdict_is_in_the_table_the_summary_and_on_the_page(finished: Workflow) -> None:
    results = finished.folder / "results/mini"
    table = pd.read_csv(results / "statistics/artefacts.csv").set_index(["view", "family"])
    assert table.loc["seen", "clips"].eq(12).all() and table.loc["source", "clips"].eq(42).all()
    assert table["estimate"].between(0, 100).all()
    # The baseline is the same probe, so its accuracy is the first row's: here a clip has one caption.
    metrics = pd.read_csv(results / "metrics.csv")
    mine = metrics[(metrics["method"] == "artefacts_only") & (metrics["setting"] == "binary")]
    accuracy = mine.loc[(mine["direction"] == "text_to_item"), "R@1"].iloc[0]
    assert accuracy == pytest.approx(table.loc[("seen", "all"), "estimate"])
    verdict = r"(told from artefacts alone in|Not shown to be readable from artefacts:) [\d.]+% \[[\d.]+, [\d.]+\]"
    assert re.search(verdict, " ".join((results / "tables/summary.txt").read_text().split()))
    assert re.search(verdict, (results / "report.html").read_text())


def test_captions_are_in_thirds_by_how_much_their_clips_change_when_reversed(finished: Workflow) -> None:
    data = finished.folder / "results/data/shapes"
    groups = pd.read_csv(data / "captions/groups.csv")
    traces = pd.read_csv(data / "videos/traces.csv").set_index("item_id")["time_sensitivity"]
    clip = groups["caption_id"].str.split("#").str[0]
    by_group = pd.DataFrame({"group": groups["group"], "value": clip.map(traces)}).groupby("group")["value"]
    assert by_group.size().tolist() == [8, 8, 8]
    little, much, some = by_group.max()["changes little when reversed"], by_group.min(), by_group
    assert little <= much["changes some"] <= some.max()["changes some"] <= much["changes much when reversed"]


def test_the_groups_that_were_made_are_a_file_that_others_can_name(finished: Workflow) -> None:
    made = finished.folder / "results/data/shapes/captions/groups.csv"
    keys = load_dataset("shapes", finished.folder / "config/datasets").model_dump()
    keys["source"]["clips"] = {"train": 24, "valid": 6, "test": 12}
    dataset = Dataset.model_validate(keys | {"groups": str(made)})
    found = read_groups(dataset, known_annotations(dataset, finished.folder / "results"))
    pd.testing.assert_frame_equal(found, pd.read_csv(made), check_dtype=False)


def test_sources_are_counted_in_the_report_of_the_data_set(finished: Workflow) -> None:
    report = json.loads((finished.folder / "results/data/shapes/captions/report.json").read_text())
    assert report["sources"]["codecs"] == {"h264": 42}
    assert report["sources"]["interlaced"] == report["sources"]["hdr"] == report["sources"]["with_sound"] == 0


def test_nothing_is_stale_and_a_repair_of_sources_measures_again(finished: Workflow) -> None:
    assert finished.stale() == {}
    stale = finished.stale("--config", "overrides={datasets.shapes.video.launder: true}")
    assert {"video_shard", "traces", "blind_run", "artefacts_table"} <= stale.keys()
