"""What a rehearsal makes of a study's keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from checkout import ROOT
from rewind.cli.rehearse import shrink
from rewind.cli.rehearse.shrink import RANDOM_ENCODER
from rewind.cli.rehearse.weights import RehearsedTowers
from rewind.config import load_study


@pytest.mark.parametrize(("gpus", "slow", "expected"), [(0, True, "fp32"), (0, False, "bf16"), (1, True, "bf16")])
def test_bf16_is_rehearsed_where_the_machine_computes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, slow: bool, expected: str
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(shrink, "bf16_is_slow", lambda: slow)
    towers, study = RehearsedTowers(tmp_path, full=False), load_study("rtime")
    keys = shrink.shrink_study(study, ROOT, towers, 2, gpus)
    assert {block["precision"] for block in shrink._training_blocks(keys)} == {expected}
    assert any("fp32 is rehearsed" in note for note in towers.notes) == (expected == "fp32")


def test_models_and_files_that_are_not_here_have_stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    towers = RehearsedTowers(tmp_path, full=False)
    keys = shrink.shrink_study(load_study("models_demo"), tmp_path, towers, 2, 0)
    options = {name: method["options"] for name, method in keys["methods"].items()}
    assert options["seqTransf_vectors"]["captions"].keys() == {"0", "1"}, "what the study makes itself stays"
    assert options["seqTransf_scores"]["file"]["0"] == "results/models_demo/similarity/seqTransf/seed0.npz"
    assert options["mteb_random"]["encoder"] == RANDOM_ENCODER and "captions" not in options["mteb_random"]
    assert any("random vectors stand in for mteb" in note for note in towers.notes)
