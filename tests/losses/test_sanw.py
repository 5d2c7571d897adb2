"""SANW against upstream's numbers, the exact global batch, its statistics and what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from golden_numbers import agree, load
from gradients import CPU, batch_of, error, gradients, tiny
from messages import expect_message, refusal
from rewind.config import Training
from rewind.losses.base import make_loss, make_objective
from rewind.losses.infonce import infonce
from rewind.losses.sanw import SanwOptions, negative_weights, normalise_rows
from rewind.models.retriever import Retriever
from rewind.training.grad_cache import exact_step
from rewind.training.optim import lr_factor

GOLDEN = load("sanw.npz")
MODES = ("debias", "bandpass")
BATCHES = range(int(GOLDEN["n_batches"]))
HYPER = {name.split("/")[1]: float(GOLDEN[name]) for name in GOLDEN.files if name.startswith("hp/")}
CLOSE = {"rtol": 1e-9, "atol": 1e-10}


class Cosine(Retriever):
    """Features as they are given."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(scale, dtype=torch.float64))

    def similarity(self, text, items):
        return self.scale.exp() * text["text"] @ items["video"].T

    def vectors(self, text, items):
        return text["text"], items["video"]


def step(n: int, options: dict, items: list[int] | None = None):
    """Loss, and gradients of images, texts and scale, of a golden batch."""
    image, text = (torch.from_numpy(GOLDEN[f"b{n}/{side}_features"]).requires_grad_() for side in ("image", "text"))
    model = Cosine(float(GOLDEN[f"b{n}/logit_scale"]))
    objective = make_loss("sanw", options)
    loss = objective(model, {"text": text}, {"video": image}, {"items": torch.tensor(items or list(range(len(image))))})
    loss.value.backward()
    return objective, loss, {"image": image.grad, "text": text.grad, "logit_scale": model.scale.grad}


@pytest.mark.golden
@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("mode, kind", [("vanilla", ""), *((m, k) for m in MODES for k in ("", "_upstream"))])
def test_loss_and_gradients_are_upstreams(n, mode, kind):
    _, loss, grads = step(n, HYPER | {"mode": mode, "seed_compatible": kind == "_upstream"})
    golden = f"b{n}/{'clip' if mode == 'vanilla' else mode}"
    agree(f"SANW, {mode}", "loss", loss.value, GOLDEN[f"{golden}/loss{kind}"], **CLOSE)
    for name, grad in grads.items():
        agree(f"SANW, {mode}", "gradients", grad, GOLDEN[f"{golden}/grad_{name}{kind}"], **CLOSE)


@pytest.mark.golden
@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("mode", MODES)
def test_upstreams_statistics_of_the_last_batch(n, mode):
    objective, loss, _ = step(n, HYPER | {"mode": mode, "seed_compatible": True})
    found = objective.summary({name: float(value) for name, value in loss.logs.items()})
    for name, value in found.items():
        if name != "w_empty_rows_pct":
            wanted = GOLDEN[f"b{n}/{mode}/upstream_stat/{name}"]
            agree(f"SANW, {mode}", "statistics", value, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.golden
@pytest.mark.parametrize("n", BATCHES)
@pytest.mark.parametrize("mode", MODES)
def test_weights_are_upstreams(n, mode):
    image, text = (GOLDEN[f"b{n}/{side}_features"] for side in ("image", "text"))
    s = HYPER["alpha"] * text @ text.T + (1 - HYPER["alpha"]) * image @ image.T
    off = ~np.eye(len(s), dtype=bool)
    agree(f"SANW, {mode}", "pair similarity", s[off], GOLDEN[f"b{n}/s"][off], **CLOSE)
    found = negative_weights(torch.from_numpy(s), SanwOptions(**HYPER, mode=mode)).numpy()
    # Upstream adds 1 to the diagonal, and so do only the numbers of its own weights.
    for wanted in ("w", "w_upstream"):
        agree(f"SANW, {mode}", "weights", found[off], GOLDEN[f"b{n}/{mode}/{wanted}"][off], **CLOSE)


@pytest.mark.golden
def test_learning_rates_are_upstreams():
    given = {name.removeprefix("lr/a/"): GOLDEN[name] for name in GOLDEN if name.startswith("lr/a/")}
    epoch, base = int(given["steps_per_epoch"]), float(given["base_lr"])
    steps, warmup = epoch * int(given["epochs"]), int(given["warmup_epochs"]) / int(given["epochs"])
    found = [base * lr_factor(step, steps, warmup, from_zero=True) for step in range(steps + 1)]
    agree("SANW", "learning rates", found[:steps], given["lr_used_at_step"], rtol=1e-9, atol=1e-18)
    agree("SANW", "learning rates", found[epoch::epoch], given["lr_logged_per_epoch"], rtol=1e-9, atol=1e-18)
    agree("SANW", "learning rates", found[steps], given["lr_final"], atol=1e-18)


@pytest.mark.parametrize("mode", MODES)
def test_statistics_are_those_of_all_pairs_of_the_epoch(mode):
    """Two batches of another size: the epoch's numbers from all their negatives at once."""
    logs, w, s, margins = [], [], [], []
    for n in BATCHES:
        objective, loss, _ = step(n, HYPER | {"mode": mode})
        logs.append({name: float(value) for name, value in loss.logs.items()})
        off = ~np.eye(len(GOLDEN[f"b{n}/s"]), dtype=bool)
        w.append(GOLDEN[f"b{n}/{mode}/w"][off])
        s.append(GOLDEN[f"b{n}/s"][off])
        logits = (
            math.exp(GOLDEN[f"b{n}/logit_scale"]) * GOLDEN[f"b{n}/image_features"] @ GOLDEN[f"b{n}/text_features"].T
        )
        weighted = np.exp(logits) * GOLDEN[f"b{n}/{mode}/w"]
        margins.append(np.diag(logits) - np.log((weighted * off).sum(1)))
    found = objective.summary({name: float(np.mean([one[name] for one in logs])) for name in logs[0]})
    w, s = np.concatenate(w), np.concatenate(s)
    assert found["w_mean"] == pytest.approx(w.mean(), rel=1e-9)
    assert found["w_high_pct"] == pytest.approx(100 * (w > 0.8).mean()) and found["w_low_pct"] == 0
    assert found["w_sim_corr"] == pytest.approx(np.corrcoef(w, s)[0, 1], rel=1e-9)
    assert found["weighted_margin"] == pytest.approx(np.concatenate(margins).mean(), rel=1e-8)


def test_vanilla_is_infonce_to_the_bit_and_says_so():
    model = tiny("meanP").float()
    batch = {k: v.float() if v.dtype == torch.float64 else v for k, v in batch_of(model).items()}
    objective = make_objective(Training(objective="sanw", objective_options={"mode": "vanilla"}))
    found = exact_step(model, objective, batch)
    mine = gradients(model)
    plain = exact_step(model, infonce, batch)
    assert found.value == plain.value and error(mine, gradients(model)) < 1e-6
    shown = objective.summary(found.logs)
    assert shown["w_mean"] == 1 and shown["w_high_pct"] == 100 and math.isnan(shown["w_sim_corr"])
    assert shown["unweighted_margin"] == pytest.approx(shown["weighted_margin"])


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_no_gradient_flows_through_the_weights(n, mode):
    """The loss with the weights as constants has the same gradients."""
    _, loss, grads = step(n, HYPER | {"mode": mode})
    image, text = (torch.from_numpy(GOLDEN[f"b{n}/{side}_features"]).requires_grad_() for side in ("image", "text"))
    logits = math.exp(GOLDEN[f"b{n}/logit_scale"]) * image @ text.T
    weighted = logits + torch.from_numpy(GOLDEN[f"b{n}/{mode}/w"]).log()
    constant = (weighted.logsumexp(1) + weighted.logsumexp(0)).mean() / 2 - logits.diagonal().mean()
    constant.backward()
    torch.testing.assert_close(constant, loss.value, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(image.grad, grads["image"], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("mode", ["vanilla", *MODES])
def test_pairs_of_one_item_are_never_negatives(mode):
    items = [0, 0, *range(2, 16)]
    _, loss, _ = step(1, HYPER | {"mode": mode}, items)
    image, text = (torch.from_numpy(GOLDEN[f"b1/{side}_features"]) for side in ("image", "text"))
    logits = math.exp(GOLDEN["b1/logit_scale"]) * image @ text.T
    w = torch.ones_like(logits) if mode == "vanilla" else torch.from_numpy(GOLDEN[f"b1/{mode}/w"].copy())
    w[0, 1] = w[1, 0] = 0
    weighted = logits + w.log()
    wanted = (weighted.logsumexp(1) + weighted.logsumexp(0)).mean() / 2 - logits.diagonal().mean()
    torch.testing.assert_close(loss.value, wanted, rtol=1e-9, atol=1e-9)
    assert float(loss.logs["n"]) == 16 * 15 - 2
    _, plain, _ = step(1, HYPER | {"mode": mode})
    assert plain.value != loss.value


@pytest.mark.parametrize("options", [{"mode": "debias", "delta": -0.5}, {"mode": "bandpass"}, {"row_normalise": True}])
def test_the_exact_global_batch_holds(options):
    model = tiny("meanP")
    batch = batch_of(model)
    objective = make_loss("sanw", options)
    whole = exact_step(model, objective, batch)
    wanted = gradients(model)
    for micro_batch in (3, 8):
        parts = exact_step(model, objective, batch, micro_batch)
        assert parts.value == pytest.approx(whole.value, rel=1e-12) and error(gradients(model), wanted) < 1e-11
        assert parts.logs == pytest.approx(whole.logs, rel=1e-9)
    assert "backbone.clip.logit_scale" in wanted


# --- row normalisation, a teacher


def test_normalised_rows_have_as_much_negative_mass_as_plain_ones():
    w = torch.tensor([[1.0, 0.1, 0.3, 0.2], [0.5, 1, 0, 0], [0, 0, 1, 0], [0.2, 0.2, 0.2, 1]])
    negative = ~torch.eye(4, dtype=torch.bool)
    negative[0, 1] = negative[1, 0] = False
    found = normalise_rows(w, negative)
    torch.testing.assert_close((found * negative).sum(1)[[0, 3]], torch.tensor([2.0, 3.0]))
    assert found[2].equal(w[2]) and torch.isfinite(found).all(), "a row without weight stays as it is"
    assert found[0, 2] / found[0, 3] == pytest.approx(1.5)


@pytest.mark.parametrize("row_normalise", [False, True])
def test_a_row_without_weight_is_told_once(capsys, row_normalise):
    options = {"mode": "bandpass", "floor": 0, "m1": 2.5, "m2": 3.0, "gamma": 0.01, "row_normalise": row_normalise}
    objective, loss, grads = step(2, options)
    assert objective.summary({k: float(v) for k, v in loss.logs.items()})["w_empty_rows_pct"] == 100
    assert all(torch.isfinite(grad).all() for grad in grads.values()) and 0 <= loss.value < 1e-6
    said = capsys.readouterr().out
    assert "16 of 16 pairs" in said and "w_empty_rows_pct" in said
    expect_message(said)
    objective(Cosine(1.0), *fixed(), {"items": torch.arange(2)})
    assert capsys.readouterr().out == ""


def fixed():
    eye = torch.eye(2, dtype=torch.float64)
    return {"text": eye}, {"video": eye}


class Split:
    """As much of the training data as the teacher asks for."""

    def __init__(self, batch) -> None:
        self.text, self.inputs, self.given, self.workers = batch["text"], self, batch, 0

    def __len__(self) -> int:
        return len(self.text)

    def batch(self, rows):
        return {name: self.given[name][rows] for name in ("frames", "mask")}


def test_a_teacher_keeps_the_similarity_of_the_first_weights():
    model = tiny("meanP")
    batch = batch_of(model)
    batch["items"] = torch.arange(16)
    rows = torch.randperm(16)
    batch = {name: value[rows] for name, value in batch.items()} | {"rows": rows, "items": rows}
    inverse = {name: value[rows.argsort()] for name, value in batch.items()}
    live, frozen = make_loss("sanw", {"delta": -0.5}), make_loss("sanw", {"delta": -0.5, "similarity": "teacher"})
    frozen.prepare(model.train(), Split(inverse), CPU)
    assert model.training
    model.eval()
    same = [exact_step(model, objective, batch).value for objective in (live, frozen)]
    assert same[0] == pytest.approx(same[1], rel=1e-12)
    with torch.no_grad():
        model.backbone.clip.text_projection.add_(torch.randn(96, 96).double() * 0.3)
    logs = [exact_step(model, objective, batch).logs for objective in (live, frozen)]
    first = exact_step(model, frozen, batch).logs
    assert logs[0]["s"] != pytest.approx(logs[1]["s"], rel=1e-3) and first["s"] == logs[1]["s"]


# --- what is refused


def test_one_pair_has_no_negatives():
    with refusal("training.objective"):
        one = {"text": torch.ones(1, 2)}, {"video": torch.ones(1, 2)}
        make_loss("sanw", {})(Cosine(1.0), *one, {"items": torch.zeros(1)})


def test_a_head_that_scores_pairs_is_refused():
    model = tiny("tightTransf")
    with refusal("methods.*.head"):
        exact_step(model, make_loss("sanw", {}), batch_of(model), 3)


@pytest.mark.parametrize(
    "options, place",
    [
        ({"lamda": 3}, "training.objective_options.lamda: objective"),
        ({"lambda": -1}, "training.objective_options.lambda"),
        ({"mode": "band"}, "training.objective_options.mode"),
        ({"m1": 0.9}, "training.objective_options"),
        ({"alpha": 1.5}, "training.objective_options.alpha"),
    ],
)
def test_wrong_options_are_named(options, place):
    with refusal(place):
        make_objective(Training(objective="sanw", objective_options=options))


def test_weights_fall_above_delta_and_pass_a_band():
    s = torch.linspace(-1, 1, 201, dtype=torch.float64)
    debias, band = negative_weights(s, SanwOptions()), negative_weights(s, SanwOptions(mode="bandpass"))
    assert (debias[s <= 0.6] == 1).all() and (debias.diff()[s[1:] > 0.61] < 0).all()
    assert debias[-1].item() == pytest.approx(math.exp(-1.6))
    assert 0.295 < s[band > 0.5].min() < 0.315 and 0.785 < s[band > 0.5].max() < 0.805 and band.min() == 1e-3
