"""Which frame store a job reads, where a sweep chose the number of frames."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from rewind.io.files import write_json
from rewind.loading.frame_source import ClipFrames, StoredFrames
from rewind.video.frame_store import FrameView, write_store_index
from rewind.workflow.job_inputs import run_data


@pytest.mark.parametrize("frames", [2, 4])
def test_a_job_takes_the_store_of_the_sweeps_choice(tmp_path, frames):
    write_json(tmp_path / "best.json", {"max_frames": frames})
    spec = {"backbone": {}, "text": {}, "frames": {"size": 16}}
    indices = [tmp_path / f"frames{n}/index.json" for n in (2, 4)]
    for index, n in zip(indices, (2, 4), strict=True):
        index.parent.mkdir()
        write_store_index(index.parent, FrameView(n, 16, "uniform", None), [])
    inputs = {"item_table": str(tmp_path / "items.csv"), "best": str(tmp_path / "best.json")}
    rule = given({"spec": spec, "dataset": "mine"}, inputs | {"store": [str(index) for index in indices]})
    found = run_data(rule).inputs(pd.DataFrame({"item_id": [], "path": [], "reversed": []}))
    assert isinstance(found, StoredFrames) and found.store.view.max_frames == frames
    without = run_data(given({"spec": spec, "dataset": "mine"}, inputs | {"store": []}))
    assert isinstance(without.inputs(pd.DataFrame({"item_id": [], "path": [], "reversed": []})), ClipFrames)


class Named(dict):
    """Snakemake's named lists: by attribute and by ``get``."""

    __getattr__ = dict.__getitem__


def given(params: dict, inputs: dict) -> SimpleNamespace:
    execution = {"workers": 0, "keep_in_memory": False}
    return SimpleNamespace(params=Named(params), execution=execution, input=Named(inputs))
