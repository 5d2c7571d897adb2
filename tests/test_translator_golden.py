"""The translator against golden numbers of the original: geometry, losses, memory, schedules, ranks, sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from rewind.evaluation.ranking import metrics, rank_table
from rewind.models.moments import moments, split
from rewind.models.procrustes import whitened_procrustes
from rewind.models.translator import TRAINED, GeometryAdapter, make
from rewind.objectives.contrast import agreement, hardest, moment_distance, multi_positive
from rewind.objectives.memory import Positives, Queue
from rewind.objectives.multi_positive import MultiPositive, Options, queue_length, temperature

GOLDEN = Path(__file__).parent / "golden"
NUMBERS = json.loads((GOLDEN / "translator.json").read_text())


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    with np.load(GOLDEN / "translator.npz", allow_pickle=False) as archive:
        return {k: torch.from_numpy(np.asarray(archive[k])) for k in archive.files if archive[k].dtype.kind != "U"}


def unit(values: Tensor) -> Tensor:
    return torch.nn.functional.normalize(values, dim=1)


def test_geometry_is_the_original_map(golden):
    x, y = golden["procrustes/X"], golden["procrustes/Y"]
    weight, bias = whitened_procrustes(moments(split(x, y)), float(golden["procrustes/eps"]))
    assert torch.allclose(weight, golden["procrustes/A_f64"], rtol=0, atol=1e-10)
    assert torch.allclose(bias, golden["procrustes/b_f64"], rtol=0, atol=1e-10)
    assert torch.allclose(weight.float(), golden["procrustes/A"], rtol=0, atol=1e-5)
    assert torch.allclose(x @ weight.float().T + bias.float(), golden["procrustes/pred"], rtol=0, atol=1e-4)


def test_moments_do_not_depend_on_the_pieces(golden):
    x, y = golden["procrustes/X"].double(), golden["procrustes/Y"].double()
    whole, parts = moments(split(x, y)), moments(list(zip(x.split(7), y.split(7), strict=True)))
    for one, two in zip(whole[1:], parts[1:], strict=True):
        assert torch.allclose(one, two, rtol=1e-12, atol=0)


def test_the_adapter_computes_what_the_original_does(golden):
    ours = {"geom.fc": "geometry", "adapter.fc1": "inner", "adapter.fc2": "outer"}
    state = {
        f"{mine}.{kind}": golden[f"model/state/{theirs}.{kind}"]
        for theirs, mine in ours.items()
        for kind in ("weight", "bias")
    }
    network = GeometryAdapter(10, 14, 12, 0.1).eval()
    network.load_state_dict(state)
    assert torch.allclose(network(golden["model/input"]), golden["model/output"], rtol=0, atol=1e-5)
    assert torch.allclose(
        network.double()(golden["model/input"].double()), golden["model/output_f64"], rtol=0, atol=1e-10
    )


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
    translator = make(head, 1024, 1536)
    assert sum(p.numel() for p in translator.parameters()) == count
    assert head in TRAINED
    if head == "geometry_adapter":
        translator.start_epoch(0)
        trainable = sum(p.numel() for p in translator.parameters() if p.requires_grad)
        assert trainable == NUMBERS["param_counts"]["geom_with_adapter_hidden1024"]["trainable"]


class Columns:
    """The columns that each variant of the golden losses compares a batch with."""

    def __init__(self, golden: dict[str, Tensor]) -> None:
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
            logits, negative = hardest(logits, negative, int(self.golden["nce/H"]))
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
        return multi_positive(torch.cat(self.logits, 1), *masks, self.tau, debias, prior).mean()


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


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_and_gradients(golden, variant):
    value, gradient, run = VARIANTS[variant]
    columns = Columns(golden)
    loss = run(columns)
    loss.backward()
    assert loss.item() == pytest.approx(float(golden[value]), rel=1e-9, abs=1e-10)
    assert torch.allclose(columns.pred.grad, golden[gradient], rtol=1e-9, atol=1e-10)


def test_mined_columns_are_the_top_of_each_row(golden):
    sims = golden["nce/mine/sims"]
    values, there = hardest(sims, torch.ones_like(sims, dtype=torch.bool), int(golden["nce/H"]))
    assert there.all()
    assert torch.allclose(values, golden["nce/mine/topH_values_desc"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("prior", [0.01, 0.2, 1.0])
def test_denominator_of_the_seeds_debiasing(golden, prior):
    logits, same = golden["nce/dcl/logits"], golden["nce/dcl/pos_mask"]
    good = logits.masked_fill(~same, -torch.inf).logsumexp(1)
    ours = multi_positive(logits, same, ~same, 0.07, "seed", prior) + good
    assert torch.allclose(ours, golden[f"nce/dcl/logZ_prior{prior}"], rtol=0, atol=1e-8)


@pytest.mark.parametrize("term", ["agreement", "moment", "cosine"])
def test_further_terms(golden, term):
    pred, targets = golden["nce/pred"].clone().requires_grad_(), golden["nce/targets"]
    value = {
        "agreement": lambda: agreement(unit(pred), golden["nce/image_id"]),
        "moment": lambda: moment_distance(pred, targets),
        "cosine": lambda: (1 - (unit(pred) * unit(targets)).sum(1)).mean(),
    }[term]()
    value.backward()
    assert value.item() == pytest.approx(float(golden[f"nce/{term}/loss"]), rel=1e-9)
    assert torch.allclose(pred.grad, golden[f"nce/{term}/grad_pred"], rtol=1e-9, atol=1e-10)


def test_agreement_of_distinct_images_is_nothing(golden):
    pred = golden["nce/pred"].clone().requires_grad_()
    value = agreement(unit(pred), torch.arange(len(pred)))
    value.backward()
    assert value.item() == float(golden["nce/agreement/loss_all_distinct"]) == 0
    assert torch.equal(pred.grad, torch.zeros_like(pred))


def test_the_queue_keeps_the_newest_in_order(golden):
    queue = Queue(int(golden["nce/queue/capacity"]))
    for turn in range(3):
        rows = golden[f"nce/queue/enqueue{turn}"]
        queue.add(rows, torch.arange(len(rows)))
    assert torch.equal(queue.recent(queue.size, rows)[0], golden["nce/queue/feats"])
    assert torch.equal(queue.recent(5, rows)[0], golden["nce/queue/recent5"])
    sizes, queue = [], Queue(12)
    for _ in range(6):
        queue.add(torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64))
        sizes.append(queue.size)
    assert sizes == golden["nce/queue/aligned_cap12_chunk4_sizes"].tolist()


def test_positives_are_counted_as_they_are_held(golden):
    store = Positives(int(golden["nce/xbp/per_image_cap"]), int(golden["nce/xbp/global_cap"]))
    vectors, ids = unit(golden["nce/xbp/add_pred"]), golden["nce/xbp/add_image_id"]
    store.add(vectors, ids)
    rows = golden["nce/xbp/live_add_rows_exact_count"]
    held = store.state_dict()
    assert torch.equal(held["vectors"], vectors[rows])
    assert torch.equal(held["ids"], ids[rows])


def test_schedules(golden):
    options = Options(queue_from=3)
    found = [temperature(options, epoch) for epoch in range(25)]
    assert found == pytest.approx(golden["sched/tau_at_epoch"].tolist(), abs=1e-12)
    assert [queue_length(options, e) for e in range(25)] == golden["sched/queue_recent_limit_at_epoch"].tolist()
    assert {temperature(Options(tau=0.07), epoch) for epoch in range(30)} == {0.07}
    loss = MultiPositive(options)
    loss.start_epoch(3)
    assert (loss.tau, loss.recent) == (found[3], 32_000)


def test_ranks_and_metrics(golden):
    x = golden["val/X"].double() @ golden["val/A"].double().T + golden["val/b"].double()
    scores = unit(x) @ unit(golden["val/gallery"].double()).T
    # The map that the file holds was rounded to float32 after these were computed.
    assert torch.allclose(scores, golden["val/similarity_f64"], rtol=0, atol=1e-7)
    truth = golden["val/caption_to_gallery_index"].tolist()
    items = pd.DataFrame({"item_id": [f"i{n}" for n in range(scores.shape[1])], "reversed": 0})
    items["cluster_id"] = items["item_id"]
    captions = pd.DataFrame({"caption_id": [f"c{n}" for n in range(len(truth))], "video_id": [f"i{n}" for n in truth]})
    table = rank_table(scores.numpy(), captions, items, ["test"], ["text_to_item"])
    assert table["rank"].tolist() == golden["val/rank_1based"].tolist()
    row = metrics(table)
    assert row["gallery"] == 14
    assert row["MRR"] == pytest.approx(float(golden["val/metrics/MRR"]), abs=1e-9)
    assert [row[f"R@{k}"] for k in (1, 5, 10)] == pytest.approx(
        [100 * float(golden[f"val/metrics/R{k}"]) for k in (1, 5, 10)]
    )
    assert (row["MdR"], row["P75"]) == (float(golden["val/rank_median_exact"]), float(golden["val/rank_p75_exact"]))
