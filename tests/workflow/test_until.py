"""Studies as far as a stage: targets per stage, `--until` and `--omit-from`, beyond checkpoints too."""

from __future__ import annotations

import pytest

from mini_study import Workflow

STUDY = """
dataset: shapes
backbone: {{architecture: config/models/tiny.json}}
frames: {{max_frames: 2, size: 32, keep_in_memory: true}}
text: {{tokenizer: words, max_words: 16}}
training: {{epochs: 1, lr: 1.0e-3, backbone_lr_multiplier: 1.0, freeze: [visual], batch: {{size: 8, captions: one}}}}
methods:
  meanP: {{head: meanP}}
  chance: {{model: chance}}
seeds: [0]
sanity: null
sweep: {sweep}
statistics: {{resamples: 100}}
figures: {{examples: 1, method: meanP}}
"""
SWEEPS = {
    "frames": "{max_frames: [1, 2], method: meanP, training: {epochs: 1}}",
    "keys": "{keys: {training.lr: [1.0e-4, 1.0e-2]}}",
}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    """Two studies whose trainings wait for a checkpoint; nothing is made yet."""
    workflow = Workflow(tmp_path_factory.mktemp("checkout"))
    for name, sweep in SWEEPS.items():
        (workflow.folder / f"config/studies/{name}.yaml").write_text(STUDY.format(sweep=sweep))
    clips = "{train: 8, valid: 4, test: 4}"
    (workflow.folder / "config/config.yaml").write_text(
        f"studies: [frames, keys]\noverrides:\n  datasets.shapes.source.clips: {clips}\n"
    )
    return workflow


def made(workflow: Workflow, pattern: str) -> list[str]:
    return sorted(path.relative_to(workflow.folder / "results").parts[0] for path in workflow.folder.glob(pattern))


@pytest.mark.workflow
def test_what_is_named_is_there_at_the_end(fresh):
    asked = fresh.stale("--until", "train")
    assert asked["train"] == 2 and "similarity" not in asked and "untrained_run" not in asked
    fresh.run("--until", "train", "--config", "studies=[frames]")
    models = "results/*/runs/*/*/model.safetensors"
    assert made(fresh, models) == ["frames"], "trained, beyond the checkpoint that the training waited for"
    assert "Nothing to be done" in fresh.run("--until", "train", "--config", "studies=[frames]")

    asked = fresh.stale("--until", "train")
    assert (asked["trial"], asked["tune"], asked["train"]) == (2, 1, 1) and "similarity" not in asked
    fresh.run("--omit-from", "similarity", "--config", "studies=[keys]")
    assert made(fresh, models) == ["frames", "keys", "keys"] and made(fresh, "results/*/similarity/meanP/*") == []

    assert fresh.stale("trained") == {"untrained_run": 1, "trained": 1}
    assert fresh.stale("scored") == {"untrained_run": 1, "similarity": 2, "scored": 1}
    assert fresh.stale("--until", "similarity") == {"similarity": 2}
    assert fresh.stale("ranked") == {"untrained_run": 1, "similarity": 2, "ranks": 2, "ranked": 1}
    assert fresh.stale("--omit-from", "metrics")["ranks"] == 2


@pytest.mark.workflow
def test_what_no_study_has_is_refused(fresh):
    for command in ("-n", "--quiet"):
        text = fresh.run(command, "--until", "zero_shot", ok=False)
        assert "--until: none of these studies has a job of zero_shot: frames, keys." in text
    assert "--omit-from: metrcs is neither a rule nor a file" in fresh.run("-n", "--omit-from", "metrcs", ok=False)
    assert "metrcs" in fresh.run("-n", "--until", "metrcs", ok=False)
