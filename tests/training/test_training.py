"""Batches, optimiser, checkpoints and the loop: determinism, resumption, seeds."""

from __future__ import annotations

import json
import random
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from broken_runs import BreakingFile, Interrupt
from messages import expect_message, refusal
from rewind.config import Training
from rewind.loading.frame_source import cached_frames
from rewind.losses.infonce import infonce
from rewind.models.checkpoint import load_model, save_model
from rewind.registry import HEADS
from rewind.torch_setup import seed_everything
from rewind.training.checkpoint import StateFile
from rewind.training.loop import train_model
from rewind.training.optim import lr_factor, make_optimiser, parameter_groups
from rewind.training.run import infonce_of_scores
from training_runs import CAPTIONS, data, keys, retriever, same


def run(
    head: str, path, seed: int = 0, stop_after: int | None = None, training: Training | None = None, mark: str = "x"
):
    model = retriever(head, seed)

    def validate(current):
        return {"valid_sum": float(current.backbone.clip.ln_final.weight.detach().double().sum())}

    history = train_model(
        model,
        data(model),
        training or keys(),
        seed,
        torch.device("cpu"),
        validate,
        BreakingFile(path, mark, stop_after),
        "test",
    )
    return model, history


@pytest.mark.slow
@pytest.mark.parametrize("head", ["meanP", "seqLSTM", "seqTransf", "tightTransf"])
@pytest.mark.parametrize("stop_after", [1, 2, 4])
def test_a_broken_run_ends_with_the_same_bits(tmp_path, head, stop_after):
    training = keys(save_every_steps=1)
    whole, history = run(head, tmp_path / "whole.pt", training=training)
    with pytest.raises(Interrupt):
        run(head, tmp_path / "broken.pt", stop_after=stop_after, training=training)
    torch.manual_seed(999)  # whatever happened in between
    resumed, resumed_history = run(head, tmp_path / "broken.pt", training=training)
    assert same(whole, resumed)
    clock = ["seconds", "clips_per_second"]
    assert pd.DataFrame(history).drop(columns=clock).equals(pd.DataFrame(resumed_history).drop(columns=clock))


def test_same_seed_same_bits_and_other_seed_other_run(tmp_path):
    first, again, other = (run("seqTransf", tmp_path / f"{n}.pt", seed)[0] for n, seed in enumerate((0, 0, 1)))
    assert same(first, again) and not same(first, other)


def test_the_console_shows_loss_rate_and_temperature(tmp_path, capsys):
    run("meanP", tmp_path / "s.pt")
    assert re.search(
        r"took .*, epoch (\d)/\1, loss \d+\.\d{3}, lr [\d.e-]+, temperature 0\.0\d{3}$", capsys.readouterr().err, re.M
    )


@pytest.mark.parametrize("head", ["seqLSTM", "seqTransf", "tightTransf"])
def test_another_seed_starts_from_another_head(head):
    assert same(retriever(head, 3).head, retriever(head, 3).head)
    assert not same(retriever(head, 3).head, retriever(head, 4).head)


def test_state_of_another_configuration_is_not_mixed_in(tmp_path, capsys):
    fresh, _ = run("seqLSTM", tmp_path / "a.pt")
    with pytest.raises(Interrupt):
        run("seqLSTM", tmp_path / "b.pt", seed=5, stop_after=1, mark="other")
    model, _ = run("seqLSTM", tmp_path / "b.pt")
    said = capsys.readouterr().out
    assert same(fresh, model) and "b.other.pt" in said
    expect_message(next(line for line in said.splitlines() if "b.other.pt" in line))
    assert StateFile(tmp_path / "b.other.pt", "other").load()["epoch"] == 1, "what was refused is kept"


def test_frozen_towers_do_not_move(tmp_path):
    model, _ = run("seqLSTM", tmp_path / "a.pt")
    start = retriever("seqLSTM")
    moved = {n for n, p in start.named_parameters() if not torch.equal(p, dict(model.named_parameters())[n])}
    assert moved and not any(name.startswith("backbone.clip.visual") for name in moved)
    assert any(name.startswith("head") for name in moved) and any("token_embedding" in name for name in moved)


def test_a_loss_that_is_no_number_stops_with_the_captions(tmp_path):
    def spoiled(model, *rest):
        raise AssertionError

    model = retriever("meanP")
    broken = data(model)
    broken.inputs.frames[1] = float("nan")
    with refusal("r"):
        train_model(model, broken, keys(), 0, torch.device("cpu"), spoiled, StateFile(tmp_path / "s.pt", "x"), "r")
    saved = json.loads((tmp_path / "s.batch.json").read_text())
    assert saved["loss"] == "nan" and len(saved["captions"]) == 4 and {"c2", "c3"} & set(saved["captions"])


def test_patience_ends_a_run_that_no_longer_improves(tmp_path, capsys):
    scores = iter([1.0, 3.0, 2.0, 3.0, 9.0])

    def validate(current):
        return {"valid_sum": next(scores)}

    model = retriever("meanP")
    state = StateFile(tmp_path / "s.pt", "x")
    patient = keys(epochs=5, patience=2)
    history = train_model(model, data(model), patient, 0, torch.device("cpu"), validate, state, "r")
    assert [row["epoch"] for row in history] == [1, 2, 3, 4] and history[-1]["best_epoch"] == 2
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "2 validations" in line]
    assert "epoch 4" in said
    expect_message(said)
    again = train_model(retriever("meanP"), data(model), patient, 0, torch.device("cpu"), validate, state, "r")
    assert again == history and next(scores) == 9.0, "a stopped run does not go on when it is resumed"


# --- optimiser


def test_four_groups_with_clip4clips_rates():
    model = retriever("seqTransf")
    groups = parameter_groups(model, Training(lr=1e-4, backbone_lr_multiplier=1e-3, weight_decay=0.2))
    found = {(f"{group['lr']:.1e}", group["weight_decay"]) for group in groups}
    assert found == {("1.0e-07", 0.2), ("1.0e-07", 0.0), ("1.0e-04", 0.2), ("1.0e-04", 0.0)}
    spared = [p for group in groups if group["weight_decay"] == 0 for p in group["params"]]
    assert any(p is model.backbone.logit_scale for p in spared) and all(p.ndim <= 1 for p in spared)
    assert sum(len(group["params"]) for group in groups) == sum(p.requires_grad for p in model.parameters())


def test_warm_up_then_cosine():
    factors = [lr_factor(step, 100, 0.1) for step in range(101)]
    assert 0 < factors[0] < factors[5] < factors[9] <= 1 and factors[10] == 1
    assert factors[55] == pytest.approx(0.5) and factors[100] == pytest.approx(0)


def test_the_logit_scale_stays_below_100():
    model = retriever("meanP")
    with torch.no_grad():
        model.backbone.logit_scale.fill_(9.0)
    model.clamp()
    assert model.backbone.logit_scale.exp().item() == pytest.approx(100)


def test_the_schedule_reaches_the_optimiser():
    model = retriever("meanP")
    optimiser, schedule = make_optimiser(model, keys(), 10)
    optimiser.step()
    schedule.step()
    assert optimiser.param_groups[0]["lr"] == pytest.approx(1e-3 * lr_factor(1, 10, 0.1))


# --- files


def test_a_model_file_comes_back_and_another_head_is_refused(tmp_path):
    model = retriever("seqLSTM")
    save_model(tmp_path / "m.safetensors", model, {"method": "a"})
    fresh = retriever("seqLSTM", seed=8)
    load_model(tmp_path / "m.safetensors", fresh)
    assert same(model, fresh)
    with refusal("m.safetensors"):
        load_model(tmp_path / "m.safetensors", retriever("seqTransf"))


def test_a_cut_off_state_file_starts_anew(tmp_path, capsys):
    path = tmp_path / "s.pt"
    StateFile(path, "x").save({"a": 1})
    path.write_bytes(path.read_bytes()[:50])
    assert StateFile(path, "x").load() is None and (tmp_path / "s.other.pt").is_file()
    expect_message(capsys.readouterr().out, varying=r"(?<=cannot be read \().*(?=\))")


def test_a_damaged_state_file_starts_anew(tmp_path, capsys):
    path = tmp_path / "s.pt"
    StateFile(path, "x").save({"weights": torch.arange(20_000)})
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1  # within the tensor: torch reads it without a word
    path.write_bytes(content)
    assert not torch.equal(torch.load(path)["state"]["weights"], torch.arange(20_000))
    assert StateFile(path, "x").load() is None
    assert (tmp_path / "s.other.pt").is_file()
    expect_message(capsys.readouterr().out, varying=r"\.s\.\d+\.part")


@pytest.mark.parametrize("lost", ["optimiser", "moments", "groups", "model", "random"])
def test_a_state_that_lacks_what_training_needs_is_set_aside(tmp_path, capsys, lost):
    """Continued without moments, the run would be another one, and nobody would know."""
    path = tmp_path / "s.pt"
    with pytest.raises(Interrupt):
        run("meanP", path, training=keys(save_every_steps=1), stop_after=2)
    saved = torch.load(path, weights_only=True)
    if lost in ("moments", "groups"):
        saved["state"]["optimiser"] = {"state": {}} | {"param_groups": []} if lost == "moments" else {"state": {1: 2}}
    else:
        del saved["state"][lost]
    torch.save(saved, path)
    capsys.readouterr()
    _, history = run("meanP", path, training=keys(save_every_steps=1))
    expect_message(capsys.readouterr().out.splitlines()[0])
    assert (tmp_path / "s.other.pt").is_file()
    _, whole = run("meanP", tmp_path / "whole.pt", training=keys(save_every_steps=1))
    assert [row["loss"] for row in history] == [row["loss"] for row in whole]


def test_features_of_an_unknown_item_are_refused():
    cache = {"item_ids": np.array(["a"]), "frames": np.zeros((1, 2, 3), np.float32), "mask": np.ones((1, 2), np.uint8)}
    with refusal("frozen.npz"):
        cached_frames(cache, pd.DataFrame({"item_id": ["a", "b"]}), "frozen.npz")


def test_clip4clips_start_copies_the_text_blocks():
    start = retriever("seqTransf", head_start="clip")
    text = start.backbone.clip.transformer.resblocks
    for own, origin in zip(start.head.transformerClip.resblocks, text, strict=False):
        assert torch.equal(own.attn.in_proj_weight, origin.attn.in_proj_weight)
        assert torch.equal(own.mlp["c_proj"].weight, origin.mlp.c_proj.weight)
    rows, table = len(start.backbone.clip.positional_embedding), start.head.frame_position_embeddings.weight
    assert torch.equal(table[:rows], start.backbone.clip.positional_embedding)
    drawn = retriever("seqTransf").head.frame_position_embeddings.weight
    assert rows < len(table) and torch.equal(table[rows:], drawn[rows:]), "behind the tower's context: drawn"
    below = retriever("wti", head_start="clip", options={"frames": "seqTransf"}).head.under
    assert same(below, start.head)
    assert same(retriever("wti", head_start="clip"), retriever("wti")), "nothing of it is a transformer"


def test_a_head_deeper_than_the_text_tower_does_not_start_from_it():
    with refusal("methods.*.head_start"):
        retriever("seqTransf", head_start="clip", head_layers=40)


def test_padding_never_reaches_the_similarity():
    for head in HEADS.names():
        model = retriever(head).eval()
        text = model.encode_text({"text": model.backbone.prepare_text(CAPTIONS)})
        frames = torch.randn(3, 5, 96)
        mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]], dtype=torch.uint8)
        spoiled = torch.where(mask.bool().unsqueeze(-1), frames, torch.full_like(frames, 1e3))
        scores = [model.similarity(text, model.encode_items({"frames": f, "mask": mask})) for f in (frames, spoiled)]
        torch.testing.assert_close(*scores)


def test_mean_pooling_is_blind_to_order_and_the_others_are_not():
    frames, mask = torch.randn(4, 6, 96), torch.ones(4, 6, dtype=torch.uint8)
    seeing = {"seqLSTM", "seqTransf", "tightTransf"}
    for head, blind in ((head, head not in seeing) for head in HEADS.names()):
        model = retriever(head).eval()
        text = model.encode_text({"text": model.backbone.prepare_text(CAPTIONS)})
        forward, backward = (
            model.similarity(text, model.encode_items({"frames": f, "mask": mask})) for f in (frames, frames.flip(1))
        )
        assert torch.allclose(forward, backward, rtol=0, atol=1e-5) == blind


def test_the_last_weights_are_kept_where_they_are_asked_for_and_those_of_every_second_epoch(tmp_path):
    scores, kept = {}, []

    def validate(current):
        scores[len(scores) + 1] = {name: value.clone() for name, value in current.state_dict().items()}
        return {"valid_sum": -len(scores), "valid_loss": -len(scores)}

    for metric, keep, ends in (("sum", "best", 1), ("loss", "best", 4), ("sum", "last", 4)):
        scores.clear()
        model = retriever("meanP")
        training = keys(epochs=4, keep=keep, keep_every=2, select_metric=metric)
        rest = (0, torch.device("cpu"), validate, StateFile(tmp_path / f"{metric}{keep}.pt", "x"), "r")
        history = train_model(model, data(model), training, *rest, keep=kept.append)
        assert all(torch.equal(value, scores[ends][name]) for name, value in model.state_dict().items())
        assert history[-1]["best_epoch"] == (4 if metric == "loss" else 1)
    assert kept == [2, 4] * 3


def test_gradients_are_not_clipped_where_the_norm_is_null(tmp_path):
    moved = {}
    for norm in (1e-6, None, 1e9):
        model, _ = run("meanP", tmp_path / f"{norm}.pt", training=keys(epochs=1, eps=1e-2, clip_norm=norm))
        moved[norm] = model
    assert same(moved[None], moved[1e9]) and not same(moved[None], moved[1e-6])


def test_the_warm_up_may_begin_at_zero():
    factors = [lr_factor(step, 100, 0.1, from_zero=True) for step in range(12)]
    assert factors[:10] == pytest.approx([step / 10 for step in range(10)]) and factors[10] == 1.0


@pytest.mark.parametrize("wanted", [True, False])
def test_deterministic_kernels_are_asked_for_by_key(wanted):
    seed_everything(3, wanted)
    first = (random.random(), np.random.random(), torch.rand(1))
    assert torch.are_deterministic_algorithms_enabled() == torch.backends.cudnn.deterministic == wanted
    assert torch.backends.cudnn.benchmark != wanted
    seed_everything(3)
    assert (
        first == (random.random(), np.random.random(), torch.rand(1)) and torch.are_deterministic_algorithms_enabled()
    )


def test_validation_loss_is_the_training_loss_of_the_models_own_scores():
    draw = np.random.default_rng(0)
    scores, items = draw.normal(size=(7, 5)).astype(np.float32), np.array([0, 0, 1, 2, 3, 4, 4])
    for size, wanted in ((7, [range(7)]), (3, [range(3), range(3, 6)]), (6, [range(6)])):
        parts = []
        for rows in map(list, wanted):
            given = {"items": torch.from_numpy(items[rows])}
            logits = torch.from_numpy(scores[np.ix_(rows, items[rows])])
            whole = SimpleNamespace(similarity=lambda text, clips, found=logits: found)
            parts.append((len(rows), infonce(whole, {}, {}, given).value.item()))
        mean = sum(count * value for count, value in parts) / sum(count for count, _ in parts)
        assert infonce_of_scores(scores, items, size) == pytest.approx(mean, rel=1e-5)
    assert np.isnan(infonce_of_scores(scores[:1], items[:1], 4))
