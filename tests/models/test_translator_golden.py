"""The translator against golden numbers of the original: geometry, losses, memory, schedules, ranks, sizes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from golden_numbers import Numbers, agree, load, load_json
from rewind.evaluation.ranking import compute_metrics, rank_table
from rewind.losses.multi_positive import (
    MultiPositive,
    MultiPositiveOptions,
    NegativeQueue,
    PositiveMemory,
    epoch_queue_length,
    epoch_temperature,
    hardest_negatives,
    moment_distance,
    multi_positive_nce,
    within_item_variance,
)
from rewind.models.closed_form import compute_moments, split_pairs, whitened_procrustes
from rewind.models.translator import TRAINED_HEADS, GeometryAdapter, make_translator

NUMBERS = load_json("translator.json")


class Tensors:
    """The arrays as tensors."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def __getitem__(self, name: str) -> Tensor:
        return torch.from_numpy(np.asarray(self.numbers[name]))


@pytest.fixture(scope="module")
def golden() -> Tensors:
    return Tensors(load("translator.npz"))


def unit(values: Tensor) -> Tensor:
    return torch.nn.functional.normalize(values, dim=1)


@pytest.mark.golden
def test_geometry_is_the_original_map(golden):
    x, y = golden["procrustes/X"], golden["procrustes/Y"]
    weight, bias = whitened_procrustes(compute_moments(split_pairs(x, y)), float(golden["procrustes/eps"]))
    agree("Translator", "closed-form map", weight, golden["procrustes/A_f64"], atol=1e-10)
    agree("Translator", "closed-form map", bias, golden["procrustes/b_f64"], atol=1e-10)
    agree("Translator", "closed-form map", weight.float(), golden["procrustes/A"], atol=1e-5)
    agree("Translator", "closed-form map", x @ weight.float().T + bias.float(), golden["procrustes/pred"], atol=1e-4)


def test_moments_do_not_depend_on_the_pieces(golden):
    x, y = golden["procrustes/X"].double(), golden["procrustes/Y"].double()
    whole, parts = compute_moments(split_pairs(x, y)), compute_moments(list(zip(x.split(7), y.split(7), strict=True)))
    for one, two in zip(whole[1:], parts[1:], strict=True):
        assert torch.allclose(one, two, rtol=1e-12, atol=0)


@pytest.mark.golden
def test_the_adapter_computes_what_the_original_does(golden):
    ours = {"geom.fc": "geometry", "adapter.fc1": "inner", "adapter.fc2": "outer"}
    state = {
        f"{mine}.{kind}": golden[f"model/state/{theirs}.{kind}"]
        for theirs, mine in ours.items()
        for kind in ("weight", "bias")
    }
    network = GeometryAdapter(10, 14, 12, 0.1).eval()
    network.load_state_dict(state)
    agree("Translator", "adapter", network(golden["model/input"]), golden["model/output"], atol=1e-5)
    found = network.double()(golden["model/input"].double())
    agree("Translator", "adapter", found, golden["model/output_f64"], atol=1e-10)


@pytest.mark.parametrize(
    ("head", "count"),
    [
        ("linear", NUMBERS["param_counts"]["linear"]["total"]),
        ("mlp1", NUMBERS["param_counts"]["mlp1"]["total"]),
        ("mlp2", NUMBERS["param_counts"]["mlp2"]["total"]),
        ("geometry_adapter", NUMBERS["param_counts"]["geom_with_adapter_hidden1024"]["total"]),
    ],
)
def test_parameters_at_full_width(head, count):
    translator = make_translator(head, 1024, 1536)
    assert sum(p.numel() for p in translator.parameters()) == count
    assert head in TRAINED_HEADS
    if head == "geometry_adapter":
        translator.start_epoch(0)
        trainable = sum(p.numel() for p in translator.parameters() if p.requires_grad)
        assert trainable == NUMBERS["param_counts"]["geom_with_adapter_hidden1024"]["trainable"]


class Columns:
    """The columns that each variant of the golden losses compares a batch with."""

    def __init__(self, golden: Tensors) -> None:
        self.golden, self.tau = golden, float(golden["nce/tau"])
        self.pred = golden["nce/pred"].clone().requires_grad_()
        self.left, self.ids = unit(self.pred), golden["nce/image_id"]
        self.logits = [self.left @ unit(golden["nce/targets"]).T / self.tau]
        self.positive = [self.ids[:, None] == self.ids[None]]
        self.negative = [~self.positive[0]]

    def add(self, logits: Tensor, positive: Tensor, negative: Tensor) -> None:
        self.logits.append(logits)
        self.positive.append(positive)
        self.negative.append(negative)

    def queue(self, kind: str) -> None:
        vectors, owners = self.golden["nce/queue/feats"], self.golden["nce/queue/image_id_fifo"]
        logits = self.left @ vectors.T / self.tau
        negative = torch.ones_like(logits, dtype=torch.bool)
        if kind == "masked":
            negative = owners[None] != self.ids[:, None]
        if kind == "per_row":
            logits, negative = hardest_negatives(logits, negative, int(self.golden["nce/H"]))
        if kind == "shared":  # upstream's: every row sees what any row mined, again and again
            mined = self.golden["nce/mine/indices_sorted_ascending"].flatten()
            logits, negative = logits[:, mined], negative[:, mined]
        self.add(logits, torch.zeros_like(negative), negative)

    def earlier(self, masked: bool) -> None:
        logits = self.left @ self.golden["nce/xbp/bank"].T / self.tau
        owners = self.golden["nce/xbp/column_image_id"]
        positive = self.ids[:, None] == owners[None] if masked else self.golden["nce/xbp/pos_mask"]
        self.add(logits, positive, ~positive)

    def loss(self, debias: str = "none", prior: float = 0.01) -> Tensor:
        masks = (torch.cat(parts, 1) for parts in (self.positive, self.negative))
        return multi_positive_nce(torch.cat(self.logits, 1), *masks, self.tau, debias, prior).mean()


VARIANTS = {
    "inbatch": ("nce/loss/inbatch", "nce/grad_pred/inbatch", lambda c: c.loss()),
    "queue": ("nce/loss/queue", "nce/grad_pred/queue", lambda c: (c.queue("all"), c.loss())[1]),
    "queue, ids masked": (
        "nce/loss_idmask/queue",
        "nce/grad_pred_idmask/queue",
        lambda c: (c.queue("masked"), c.loss())[1],
    ),
    "mined, shared": ("nce/loss/queue_mined", "nce/grad_pred/queue_mined", lambda c: (c.queue("shared"), c.loss())[1]),
    "mined, per row": (
        "nce/loss_peranchor/queue_mined",
        "nce/grad_pred_peranchor/queue_mined",
        lambda c: (c.queue("per_row"), c.loss())[1],
    ),
    "xbp": ("nce/loss/xbp", "nce/grad_pred/xbp", lambda c: (c.earlier(False), c.loss())[1]),
    "xbp, ids masked": ("nce/loss_idmask/xbp", "nce/grad_pred_idmask/xbp", lambda c: (c.earlier(True), c.loss())[1]),
    "mined, xbp": (
        "nce/loss/queue_mined_xbp",
        "nce/grad_pred/queue_mined_xbp",
        lambda c: (c.queue("shared"), c.earlier(False), c.loss())[2],
    ),
    "dcl": ("nce/loss/inbatch_dcl", "nce/grad_pred/inbatch_dcl", lambda c: c.loss("seed")),
    "dcl .2": ("nce/loss/inbatch_dcl_prior02", "nce/grad_pred/inbatch_dcl_prior02", lambda c: c.loss("seed", 0.2)),
    "mined, xbp, dcl": (
        "nce/loss/queue_mined_xbp_dcl",
        "nce/grad_pred/queue_mined_xbp_dcl",
        lambda c: (c.queue("shared"), c.earlier(False), c.loss("seed"))[2],
    ),
}


@pytest.mark.golden
@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients(golden, variant):
    value, gradient, run = VARIANTS[variant]
    columns = Columns(golden)
    loss = run(columns)
    loss.backward()
    agree("Translator", "losses", loss, golden[value], rtol=1e-9)
    agree("Translator", "gradients", columns.pred.grad, golden[gradient], rtol=1e-9, atol=1e-10)


@pytest.mark.golden
def test_mined_columns_are_the_top_of_each_row(golden):
    sims = golden["nce/mine/sims"]
    values, there = hardest_negatives(sims, torch.ones_like(sims, dtype=torch.bool), int(golden["nce/H"]))
    assert there.all()
    agree("Translator", "mined columns", values, golden["nce/mine/topH_values_desc"], atol=1e-6)


@pytest.mark.golden
@pytest.mark.parametrize("prior", [0.01, 0.2, 1.0])
def test_denominator_of_the_seeds_debiasing(golden, prior):
    logits, same = golden["nce/dcl/logits"], golden["nce/dcl/pos_mask"]
    good = logits.masked_fill(~same, -torch.inf).logsumexp(1)
    ours = multi_positive_nce(logits, same, ~same, 0.07, "seed", prior) + good
    agree("Translator", "losses", ours, golden[f"nce/dcl/logZ_prior{prior}"], atol=1e-8)


@pytest.mark.golden
@pytest.mark.parametrize("term", ["agreement", "moment", "cosine"])
def test_further_terms(golden, term):
    pred, targets = golden["nce/pred"].clone().requires_grad_(), golden["nce/targets"]
    value = {
        "agreement": lambda: within_item_variance(unit(pred), golden["nce/image_id"]),
        "moment": lambda: moment_distance(pred, targets),
        "cosine": lambda: (1 - (unit(pred) * unit(targets)).sum(1)).mean(),
    }[term]()
    value.backward()
    agree("Translator", "losses", value, golden[f"nce/{term}/loss"], rtol=1e-9)
    agree("Translator", "gradients", pred.grad, golden[f"nce/{term}/grad_pred"], rtol=1e-9, atol=1e-10)


def test_agreement_of_distinct_images_is_nothing(golden):
    pred = golden["nce/pred"].clone().requires_grad_()
    value = within_item_variance(unit(pred), torch.arange(len(pred)))
    value.backward()
    assert value.item() == float(golden["nce/agreement/loss_all_distinct"]) == 0
    assert torch.equal(pred.grad, torch.zeros_like(pred))


@pytest.mark.golden
def test_the_queue_keeps_the_newest_in_order(golden):
    queue = NegativeQueue(int(golden["nce/queue/capacity"]))
    for turn in range(3):
        rows = golden[f"nce/queue/enqueue{turn}"]
        queue.add(rows, torch.arange(len(rows)))
    agree("Translator", "queue", queue.recent(queue.size, rows)[0], golden["nce/queue/feats"])
    agree("Translator", "queue", queue.recent(5, rows)[0], golden["nce/queue/recent5"])
    sizes, queue = [], NegativeQueue(12)
    for _ in range(6):
        queue.add(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))
        sizes.append(queue.size)
    agree("Translator", "queue", sizes, golden["nce/queue/aligned_cap12_chunk4_sizes"])


def test_positives_are_counted_as_they_are_held(golden):
    store = PositiveMemory(int(golden["nce/xbp/per_image_cap"]), int(golden["nce/xbp/global_cap"]))
    vectors, ids = unit(golden["nce/xbp/add_pred"]), golden["nce/xbp/add_image_id"]
    store.add(vectors, ids)
    rows = golden["nce/xbp/live_add_rows_exact_count"]
    held = store.state_dict()
    assert torch.equal(held["vectors"], vectors[rows])
    assert torch.equal(held["ids"], ids[rows])


@pytest.mark.golden
def test_schedules(golden):
    options = MultiPositiveOptions(queue_from=3)
    found = [epoch_temperature(options, epoch) for epoch in range(25)]
    agree("Translator", "schedules", found, golden["sched/tau_at_epoch"], atol=1e-12)
    lengths = [epoch_queue_length(options, epoch) for epoch in range(25)]
    agree("Translator", "schedules", lengths, golden["sched/queue_recent_limit_at_epoch"])
    assert {epoch_temperature(MultiPositiveOptions(tau=0.07), epoch) for epoch in range(30)} == {0.07}
    loss = MultiPositive(options)
    loss.start_epoch(3)
    assert (loss.tau, loss.recent) == (found[3], 32_000)


@pytest.mark.golden
def test_ranks_and_metrics(golden):
    x = golden["val/X"].double() @ golden["val/A"].double().T + golden["val/b"].double()
    scores = unit(x) @ unit(golden["val/gallery"].double()).T
    # The map that the file holds was rounded to float32 after these were computed.
    agree("Translator", "similarity", scores, golden["val/similarity_f64"], atol=1e-7)
    truth = golden["val/caption_to_gallery_index"].tolist()
    items = pd.DataFrame({"item_id": [f"i{n}" for n in range(scores.shape[1])], "reversed": 0})
    items["cluster_id"] = items["item_id"]
    captions = pd.DataFrame({"caption_id": [f"c{n}" for n in range(len(truth))], "video_id": [f"i{n}" for n in truth]})
    table = rank_table(scores.numpy(), captions, items, ["test"], ["text_to_item"])
    assert (table["ties"] == 0).all()
    agree("Translator", "ranks", 1 + table["higher"].to_numpy(), golden["val/rank_1based"])
    row = compute_metrics(table)
    assert row["gallery"] == 14
    agree("Translator", "metrics", row["MRR"], golden["val/metrics/MRR"], atol=1e-9)
    for k in (1, 5, 10):
        agree("Translator", "metrics", row[f"R@{k}"], 100 * golden[f"val/metrics/R{k}"], rtol=1e-6)
    for name, wanted in (("MdR", "median"), ("P75", "p75")):
        agree("Translator", "metrics", float(row[name]), golden[f"val/rank_{wanted}_exact"])
