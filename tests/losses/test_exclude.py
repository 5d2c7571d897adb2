"""``exclude``: every loss leaves the same pairs out, compared with plain loops over its definition."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import multi_positive_runs
import opposed
from gradients import CAPTIONS, CPU, batch_of, error, gradients, tiny
from multi_positive_runs import KEYS, PLAIN, Given, Killed, trained
from rewind import registry
from rewind.config import Training
from rewind.losses.base import make_objective
from rewind.training.grad_cache import exact_step

LOSSES = ("infonce", "hnac", "cdcr", "sanw", "multi_positive", "sigmoid")
NAMES = ("same_text", "twins")
CHOICES = [[], ["same_text"], ["twins"], ["same_text", "twins"]]
HEADS = dict.fromkeys(LOSSES, "meanP") | {"cdcr": "wti"}
OPTIONS = {
    "infonce": {"temperature": 0.2},
    "hnac": {"temperature": 0.2, "hard_negative_weight": 0.7},
    "cdcr": {"strength": 0.3, "off_diagonal": 0.01},
    "sanw": {"delta": -0.5},
    "multi_positive": {"tau": 0.2, "queue": []},
    "sigmoid": {"initial_bias": -2.0},
}


def example(loss: str):
    """A model, the batch of :func:`batch_of` and its data: pairs 0, 1, 9 say the same, 2 and 3 as 6 and 12 are twins.

    Pairs 5 and 11 show one item.
    """
    model = tiny(HEADS[loss])
    batch = batch_of(model)
    batch["rows"] = torch.arange(len(CAPTIONS))
    captions = [f"caption {n}" for n in range(len(CAPTIONS))]
    captions[0], captions[1], captions[9] = "a door opens", "A door  opens", "a DOOR opens"
    clusters = np.arange(100, 100 + len(CAPTIONS))
    clusters[3], clusters[12] = clusters[2], clusters[6]
    return model, batch, SimpleNamespace(captions=captions, cluster_of_item=clusters)


def pairs_left_out(batch, data, exclude) -> set[tuple[int, int]]:
    items, texts = batch["items"].tolist(), [" ".join(caption.lower().split()) for caption in data.captions]
    found = set()
    for i, j in itertools.permutations(range(len(items)), 2):
        same_text = "same_text" in exclude and texts[i] == texts[j]
        twins = "twins" in exclude and data.cluster_of_item[items[i]] == data.cluster_of_item[items[j]]
        if items[i] == items[j] or same_text or twins:
            found.add((i, j))
    return found


def made(loss: str, exclude, data, **more):
    objective = make_objective(Training(objective=loss, objective_options=OPTIONS[loss] | more | {"exclude": exclude}))
    objective.prepare(None, data, CPU)
    objective.start_epoch(0, None)
    return objective


def both_directions(logits, weight, none, floor=0.0) -> float:
    """Mean over pairs and directions of −log of the weighted share of the truth, by loops."""
    total, count = 0.0, len(logits)
    for i in range(count):
        for turned in (False, True):
            score = (lambda a, b: logits[b][a]) if turned else (lambda a, b: logits[a][b])
            share = (lambda a, b: weight[b][a]) if turned else (lambda a, b: weight[a][b])
            others = [share(i, j) * math.exp(score(i, j)) for j in range(count) if j != i and (i, j) not in none]
            total -= score(i, i) - math.log(math.exp(score(i, i)) + sum(others) + floor)
    return total / (2 * count)


def by_definition(loss: str, model, text, items, none, items_of_pairs) -> float:
    if loss == "cdcr":
        logits = model.similarity(text, items).tolist()
        return both_directions(logits, [[1.0] * len(logits)] * len(logits), none)
    if loss == "sigmoid":
        logits = model.similarity(text, items).tolist()
        pairs = [(i, j) for i in range(len(logits)) for j in range(len(logits)) if (i, j) not in none]
        signed = [(logits[i][j] - 2.0) * (1 if i == j else -1) for i, j in pairs]  # the bias begins at −2
        return sum(math.log1p(math.exp(-score)) for score in signed) / len(logits)
    left, right = model.vectors(text, items)
    cosine = (left @ right.T).tolist()
    count = len(cosine)
    rows = range(count)
    if loss == "infonce":
        return both_directions([[c / 0.2 for c in row] for row in cosine], [[1.0] * count] * count, none)
    if loss == "hnac":
        weight = [[1 - 0.7 / (1 + math.exp(-5 * c)) for c in row] for row in cosine]
        return both_directions([[c / 0.2 for c in row] for row in cosine], weight, none, count * 1e-8)
    if loss == "sanw":
        alike = (0.5 * left @ left.T + 0.5 * right @ right.T).tolist()
        weight = [[math.exp(-4 * max(0.0, alike[i][j] + 0.5)) for j in rows] for i in rows]
        return both_directions(model.similarity(text, items).tolist(), weight, none)
    total, ids = 0.0, items_of_pairs
    for i in rows:  # captions search alone
        good = sum(math.exp(cosine[i][j] / 0.2) for j in rows if ids[j] == ids[i])
        bad = sum(math.exp(cosine[i][j] / 0.2) for j in rows if ids[j] != ids[i] and (i, j) not in none)
        total += math.log(good + bad) - math.log(good)
    return total / count


@pytest.mark.parametrize("exclude", CHOICES, ids="+".join)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_loss_is_its_definition_over_the_pairs_that_are_left(loss, exclude):
    model, batch, data = example(loss)
    none = pairs_left_out(batch, data, exclude)
    assert len(none) == 2 + 6 * ("same_text" in exclude) + 4 * ("twins" in exclude)
    objective = made(loss, exclude, data)
    text, items = model.encode_text(batch), model.encode_items(batch)
    found = objective(model, text, items, batch)
    value = {"cdcr": found.logs.get("infonce"), "multi_positive": found.logs.get("nce")}.get(loss, found.value)
    wanted = by_definition(loss, model, text, items, none, batch["items"].tolist())
    assert value.item() == pytest.approx(wanted, rel=1e-9)
    if loss == "cdcr":
        plain = made(loss, [], data)(model, text, items, batch)
        assert torch.equal(found.logs["cdcr"], plain.logs["cdcr"]), "a caption and its own clip are never left out"
    if loss == "sanw":
        assert float(found.logs["n"]) == 16 * 15 - len(none), "statistics count the same pairs"


@pytest.mark.parametrize("loss", LOSSES)
def test_no_gradient_comes_from_what_is_left_out(loss):
    model, batch, data = example(loss)
    with torch.no_grad():
        text, items = model.encode_text(batch), model.encode_items(batch)
    none = pairs_left_out(batch, data, NAMES)
    logits = model.similarity(text, items).detach().requires_grad_()
    vectors = [side.detach().requires_grad_() for side in model.vectors(text, items)] if loss != "cdcr" else None
    if loss in ("infonce", "hnac", "multi_positive"):
        # A batch whose vectors are unit axes: the gradient of caption i's vector along axis j is that of its cosine.
        vectors = [torch.eye(16, dtype=torch.float64, requires_grad=True) for _ in range(2)]
        more = {"cosine": 0, "moment": 0, "agreement": 0} if loss == "multi_positive" else {}
        found = made(loss, list(NAMES), data, **more)(Fixed(logits, vectors), {}, {}, batch)
    else:
        found = made(loss, list(NAMES), data)(Fixed(logits, vectors, model), text, items, batch)
    found.value.backward()
    slope = logits.grad if logits.grad is not None else vectors[0].grad
    zero = {(i, j) for i, j in itertools.product(range(16), repeat=2) if slope[i, j] == 0}
    assert zero == (none - {(5, 11), (11, 5)} if loss == "multi_positive" else none)


class Fixed:
    """Scores and vectors that are leaves, so that each has a gradient of its own."""

    compares_vectors = True

    def __init__(self, logits, vectors, model=None) -> None:
        self.logits, self.given, self.retriever, self.head = logits, vectors, model, getattr(model, "head", None)

    def similarity(self, text, items):
        return self.logits

    def vectors(self, text, items):
        return self.given

    def outputs(self, text, items):
        return None


@pytest.mark.parametrize("loss", LOSSES)
def test_with_micro_batches_it_is_the_same_loss(loss):
    model, batch, data = example(loss)
    whole = exact_step(model, made(loss, list(NAMES), data), batch)
    wanted = gradients(model)
    assert whole.value != exact_step(model, made(loss, [], data), batch).value
    for micro_batch in (3, 8):
        parts = exact_step(model, made(loss, list(NAMES), data), batch, micro_batch)
        assert parts.value == pytest.approx(whole.value, rel=1e-12) and error(gradients(model), wanted) < 1e-10


@pytest.mark.parametrize("loss", LOSSES)
def test_where_nothing_is_to_be_left_out_not_a_bit_changes(loss):
    found = []
    for exclude in (None, [], list(NAMES)):
        model, batch, data = example(loss)
        data.captions = [f"caption {n}" for n in range(16)]
        data.cluster_of_item = np.arange(16)
        options = OPTIONS[loss] | ({} if exclude is None else {"exclude": exclude})
        objective = make_objective(Training(objective=loss, objective_options=options))
        if exclude:
            objective.prepare(None, data, CPU)
        objective.start_epoch(0, None)
        found.append((exact_step(model, objective, batch).value, gradients(model)))
    for value, grads in found[1:]:
        assert value == found[0][0] and all(torch.equal(grads[name], was) for name, was in found[0][1].items())


def test_memories_know_captions_and_items_of_earlier_batches():
    """Captions 0 and 4 say the same, items 1 and 5 are twins; items 0 to 3 are remembered when 4 to 7 come."""
    captions = ["a door opens", "b", "c", "d", "a  door opens", "f", "g", "h"]
    data = SimpleNamespace(captions=captions, cluster_of_item=np.array([0, 1, 2, 3, 4, 1, 6, 7]))
    draw = torch.Generator().manual_seed(0)
    text, items = (F.normalize(torch.randn(8, 5, generator=draw, dtype=torch.float64), dim=1) for _ in range(2))
    for exclude in CHOICES:
        options = PLAIN | {"tau": 0.2, "cross_batch": 2, "exclude": exclude}
        objective = make_objective(Training(objective="multi_positive", objective_options=options))
        objective.prepare(None, data, CPU)
        objective.start_epoch(0)
        for rows in (range(4), range(4, 8)):
            batch = {"rows": torch.tensor(rows), "items": torch.tensor(rows)}
            found = objective(Given(), {"text": text[rows]}, {"items": items[rows]}, batch)
        none = {(4, 0)} if "same_text" in exclude else set()
        none |= {(5, 1)} if "twins" in exclude else set()
        total = 0.0
        for i in range(4, 8):
            columns = [(j, items[j]) for j in range(4, 8)] + [(j, items[j]) for j in range(4)]
            terms = {n: math.exp(float(text[i] @ v) / 0.2) for n, (j, v) in enumerate(columns) if (i, j) not in none}
            total += math.log(sum(terms.values())) - math.log(terms[i - 4])
        assert float(found.logs["nce"]) == pytest.approx(total / 4, rel=1e-9), exclude


def test_earlier_captions_of_another_item_are_left_out_too():
    """Captions 0 and 2 say the same of items 0 and 1, whose further captions 1 and 3 come in the next batch."""
    data = SimpleNamespace(captions=["a door", "b", "A door", "d"], cluster_of_item=np.array([0, 1]))
    draw = torch.Generator().manual_seed(0)
    text, items = (F.normalize(torch.randn(4, 5, generator=draw, dtype=torch.float64), dim=1) for _ in range(2))
    options = PLAIN | {"tau": 0.2, "queue": [], "cross_batch": 2, "exclude": ["same_text"]}
    objective = make_objective(Training(objective="multi_positive", objective_options=options))
    objective.prepare(None, data, CPU)
    objective.start_epoch(0)
    owner = [0, 0, 1, 1]
    for rows in ([0, 3], [1, 2]):
        batch = {"rows": torch.tensor(rows), "items": torch.tensor([owner[row] for row in rows])}
        found = objective(Given(), {"text": text[rows]}, {"items": items[[0, 1]]}, batch)
    total = 0.0
    for caption, own in ((1, 0), (2, 1)):
        score = [math.exp(float(text[caption] @ vector) / 0.2) for vector in (*items[:2], text[0], text[3])]
        good = score[own] + score[2 + own]
        bad = score[1 - own] + (0.0 if caption == 2 else score[3])  # caption 0 says what caption 2 says
        total += math.log(good + bad) - math.log(good)
    assert float(found.logs["nce"]) == pytest.approx(total / 2, rel=1e-9)


def test_a_killed_run_remembers_the_captions_too(tmp_path, monkeypatch):
    captions = [f"caption {n % 5}" for n in range(36)]
    said = replace(multi_positive_runs.data(), captions=captions, cluster_of_item=np.arange(12) // 2)
    monkeypatch.setattr(multi_positive_runs, "data", lambda: said)
    options = KEYS.objective_options | {"exclude": ["same_text", "twins"]}
    keys = KEYS.model_copy(update={"objective_options": options})
    whole, _ = trained(tmp_path / "a.pt", "mlp1", keys)
    plain, _ = trained(tmp_path / "c.pt", "mlp1")
    with pytest.raises(Killed):
        trained(tmp_path / "b.pt", "mlp1", keys, kill_at=7)
    resumed, _ = trained(tmp_path / "b.pt", "mlp1", keys)
    assert all(torch.equal(one, two) for one, two in zip(whole.parameters(), resumed.parameters(), strict=True))
    assert any(not torch.equal(one, two) for one, two in zip(whole.parameters(), plain.parameters(), strict=True))


def test_every_loss_of_the_package_has_the_option():
    tested_with_directions = [*opposed.LOSSES, "tara"]  # test_direction_losses.py
    assert registry.LOSSES.names() == tuple(sorted([*LOSSES, *tested_with_directions]))
