"""What losses and retrievers may offer the loop: options, epochs, logs, memory, preparation; a loss of one's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from broken_runs import BreakingFile, Interrupt
from gradients import CPU, batch_of, tiny
from messages import refusal
from rewind.config import Training
from rewind.config.base import ConfigModel, config_field, read_options
from rewind.distributed import SINGLE_PROCESS
from rewind.losses.base import Loss, make_objective, unit_vectors
from rewind.losses.infonce import infonce
from rewind.models.baselines import make_chance
from rewind.training.grad_cache import SharedPairScores, exact_step
from rewind.training.loop import train_model
from training_runs import data, keys, retriever, same


class RecorderOptions(ConfigModel):
    scale: float = config_field(1.0, "Multiplies the loss.", gt=0)


class Recorder:
    """InfoNCE that remembers what it was told, and draws random numbers wherever it may."""

    Options = RecorderOptions

    def __init__(self, options: RecorderOptions) -> None:
        self.scale = options.scale
        self.steps, self.told = 0, []

    def prepare(self, retriever, data, device) -> None:
        torch.rand(3)
        self.told.append(("prepare", len(data.captions)))
        self.teacher = {name: value.clone() for name, value in retriever.state_dict().items()}

    def start_epoch(self, epoch, retriever) -> None:
        self.told.append(("epoch", epoch))
        self.at_epoch = self.steps

    def __call__(self, retriever, text, items, batch) -> Loss:
        loss = infonce(retriever, text, items, batch)
        self.steps += 1
        logs = {"count": torch.tensor(float(self.steps)), "drawn": float(torch.rand(()))}
        return Loss(self.scale * loss.value, logs | ({"odd": 1.0} if self.steps % 2 else {}))

    def summary(self, logs):
        return {"mean_count": logs["count"], "drawn": logs["drawn"], "odd": logs["odd"]}

    def state_dict(self):
        return {"steps": self.steps}

    def load_state_dict(self, state) -> None:
        self.steps = state["steps"]


class Made(Recorder):
    """The same; a test can ask what the last one was told."""

    made: Recorder | None = None

    def __init__(self, options: RecorderOptions) -> None:
        super().__init__(options)
        Made.made = self


class Former:
    """A module with `build(options)`, as losses were named up to version 0.9."""

    @staticmethod
    def build(options) -> Recorder:
        return Recorder(read_options(RecorderOptions, options, "training.objective_options", "Recorder"))


def run(path, stop_after=None, training=None, validate=None, change=lambda model: None):
    model = retriever("meanP")
    change(model)
    split = data(model)
    split.captions = [f"caption {row}" for row in range(len(split.text))]

    validate = validate or (lambda current: {"valid_sum": current.backbone.logit_scale.item()})
    training = training or recorded()
    return model, train_model(model, split, training, 0, CPU, validate, BreakingFile(path, "x", stop_after), "run")


def recorded(**over) -> Training:
    return keys(objective=f"{__name__}.Made", save_every_steps=1, **over)


def test_a_loss_is_told_of_epochs_and_its_logs_become_columns(tmp_path):
    _, history = run(tmp_path / "s.pt")
    assert Made.made.told == [("prepare", 8), ("epoch", 0), ("epoch", 1), ("epoch", 2)]
    assert [row["mean_count"] for row in history] == [1.5, 3.5, 5.5] and [row["odd"] for row in history] == [1.0] * 3
    assert list(history[0])[:6] == ["epoch", "loss", "mean_count", "drawn", "odd", "lr"]
    assert all(np.isfinite(row["logit_scale"]) for row in history)


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5])
def test_a_loss_with_memory_resumes_to_the_same_bits(tmp_path, stop_after):
    whole, history = run(tmp_path / "whole.pt")
    with pytest.raises(Interrupt):
        run(tmp_path / "broken.pt", stop_after=stop_after)
    torch.manual_seed(99)
    resumed, again = run(tmp_path / "broken.pt")
    clock = {"seconds", "clips_per_second"}
    assert same(whole, resumed)
    assert [{k: v for k, v in row.items() if k not in clock} for row in history] == [
        {k: v for k, v in row.items() if k not in clock} for row in again
    ]
    start = retriever("meanP").state_dict()
    assert all(torch.equal(Made.made.teacher[name], value) for name, value in start.items()), "the first weights"
    epoch, within = divmod(stop_after, 2)
    assert Made.made.told[1] == ("epoch", epoch) and Made.made.steps == 6
    assert Made.made.at_epoch == (4 if epoch < 2 or not within else 0), "told of the epoch before it remembers"


def test_preparation_leaves_the_runs_random_numbers_alone(tmp_path, monkeypatch):
    drawing, history = run(tmp_path / "a.pt")
    monkeypatch.setattr(Recorder, "prepare", lambda *given: None)
    silent, other = run(tmp_path / "b.pt")
    assert same(drawing, silent) and [r["drawn"] for r in history] == [r["drawn"] for r in other]


def test_options_reach_the_loss_and_unknown_ones_are_refused_by_their_path(tmp_path):
    _, history = run(tmp_path / "a.pt", training=recorded(objective_options={"scale": 3.0}))
    _, plain = run(tmp_path / "b.pt")
    assert history[0]["loss"] > 2 * plain[0]["loss"]
    with refusal("training.objective_options.size: objective"):
        make_objective(recorded(objective_options={"size": 3}))
    with refusal("training.objective_options.scale"):
        make_objective(recorded(objective_options={"scale": -1}))
    with refusal("training.objective_options.scale: objective"):
        make_objective(Training(objective_options={"scale": 1}))
    with refusal("training.objective"):
        make_objective(Training(objective="rewind.errors"))


def named_like_the_history(retriever, text, items, batch) -> Loss:
    return Loss(infonce(retriever, text, items, batch).value, {"lr": 1.0})


def test_a_log_that_would_hide_a_column_is_refused(tmp_path):
    with refusal("training.objective"):
        run(tmp_path / "s.pt", training=keys(objective=f"{__name__}.named_like_the_history"))


# --- the retriever


def unfreeze_later(model) -> None:
    """The text projection learns from epoch 2 on, at half the rate, in the optimiser from the start."""
    late = model.backbone.clip.text_projection

    def start_epoch(epoch):
        late.requires_grad_(epoch >= 2)

    def groups(training):
        rest = [p for p in model.parameters() if p.requires_grad and p is not late]
        return [{"params": [late], "lr": 0.5 * training.lr}, {"params": rest, "lr": training.lr}]

    model.start_epoch, model.parameter_groups = start_epoch, groups


def seen_by(found):
    """A validation that keeps the projection of every epoch, and scores the last one best."""

    def validate(current):
        found.append(current.backbone.clip.text_projection.detach().clone())
        return {"valid_sum": float(len(found))}

    return validate


def test_what_is_unfrozen_in_an_epoch_learns_from_then_on_and_after_a_resume(tmp_path):
    found: list = []
    training = keys(epochs=4, save_every_steps=1)
    whole, _ = run(tmp_path / "a.pt", training=training, validate=seen_by(found), change=unfreeze_later)
    start = retriever("meanP").backbone.clip.text_projection
    assert [torch.equal(value, start) for value in found] == [True, True, False, False]
    again = seen_by([])
    with pytest.raises(Interrupt):  # in the middle of the third epoch
        run(tmp_path / "b.pt", 5, training=training, validate=again, change=unfreeze_later)
    resumed, _ = run(tmp_path / "b.pt", training=training, validate=again, change=unfreeze_later)
    assert same(whole, resumed)


# --- the step


def test_the_cached_step_gives_the_logs_of_the_whole_batch():
    def logging(retriever, text, items, batch):
        return Loss(
            infonce(retriever, text, items, batch).value, {"norm": text["text"].norm(), "rows": len(batch["mask"])}
        )

    model = tiny("meanP")
    batch = batch_of(model)
    whole, parts = exact_step(model, logging, batch), exact_step(model, logging, batch, 3)
    assert whole.logs["rows"] == 16 and whole.logs == pytest.approx(parts.logs, rel=1e-12)
    assert all(type(value) is float for value in whole.logs.values())


def test_vectors_give_the_similarity_also_through_shared_pairs():
    model = tiny("meanP")
    batch = batch_of(model)
    text, items = model.encode_text(batch), model.encode_items(batch)
    for seen in (model, SharedPairScores(model, SINGLE_PROCESS, text, items)):
        left, right = unit_vectors(seen, text, items, "a loss")
        torch.testing.assert_close(left.norm(dim=1), torch.ones(16, dtype=left.dtype))
        scores = model.backbone.logit_scale.exp() * left @ right.T
        torch.testing.assert_close(scores, model.similarity(text, items))


def test_a_loss_of_cosines_names_the_method_that_has_none():
    model = tiny("tightTransf")
    batch = batch_of(model)
    text, items = model.encode_text(batch), model.encode_items(batch)
    with refusal("methods.*.head"):
        unit_vectors(SharedPairScores(model, SINGLE_PROCESS, text, items), text, items, "hnac")
    with refusal("training.objective"):
        unit_vectors(SharedPairScores(make_chance(), SINGLE_PROCESS, {"text": torch.zeros(2, 0)}, {}), {}, {}, "hnac")


def test_a_module_with_build_works_for_one_more_release_and_says_so():
    with pytest.warns(FutureWarning, match=r"\S+Former has `build\(options\)`, which the next"):
        loss = make_objective(Training(objective=f"{__name__}.Former", objective_options={"scale": 2.0}))
    assert loss.function.scale == 2.0
