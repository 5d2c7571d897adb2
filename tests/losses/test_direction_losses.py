"""Losses that teach direction: against the originals' numbers and plain loops, masks, micro-batches, refusals."""

from __future__ import annotations

import math
from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from golden_numbers import agree, load
from gradients import CPU, HEADS, batch_of, error, gradients, tiny
from messages import refusal
from opposed import LOSSES, opposed_batch, prepared
from rewind.config import Training
from rewind.loading.hard_negatives import HardNegatives, negatives_of_texts, negatives_of_twins
from rewind.losses.base import make_loss, make_objective
from rewind.losses.ceclip import Ceclip
from rewind.losses.tact import Tact, log_factors
from rewind.models.baselines import Chance
from rewind.models.retriever import Retriever
from rewind.training.grad_cache import exact_step

GOLDEN = load("direction.npz")


class Products(Retriever):
    """Products of vectors as they are given, times a number."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale

    def similarity(self, text, items):
        return self.scale * text["v"] @ items["v"].T


def numbers(name: str, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.from_numpy(GOLDEN[name]).to(dtype).requires_grad_()


def no_negative_is_true(loss, count: int):
    """Every caption has one hard negative, which is a caption of no clip."""
    negatives = HardNegatives(torch.zeros(count, 1), np.arange(count + 1), np.arange(count), np.arange(count),
                              np.array([-1]), count)  # fmt: skip
    loss.prepare(None, SimpleNamespace(hard_negatives=negatives, captions=[]), CPU)
    return {"items": torch.arange(count), "rows": torch.arange(count), "negatives": torch.arange(count)}


# ---- The originals' numbers ----------------------------------------------------------------------------------------


@pytest.mark.golden
@pytest.mark.parametrize("case", range(4))
def test_tact_is_the_originals_loss_and_gradient(case: int) -> None:
    half, same, cross, beta = GOLDEN[f"meta/tact/{case}"].tolist()
    half = int(half)
    loss = make_loss("tact", {"alpha_same": same, "alpha_cross": cross, "beta": beta})
    is_reversed = np.arange(2 * half) >= half
    data = SimpleNamespace(reversed_items=is_reversed, cluster_of_item=np.arange(2 * half) % half, captions=[])
    loss.prepare(None, data, CPU)
    for kind, dtype in (("ref64", torch.float64), ("out", torch.float32)):
        video, text = numbers(f"in/tact/{case}/video", dtype), numbers(f"in/tact/{case}/text", dtype)
        value = loss(Products(), {"v": text}, {"v": video}, {"items": torch.arange(2 * half)}).value
        value.backward()
        close = {"rtol": 1e-9, "atol": 1e-8} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-6}
        agree("TACT", "loss", value.detach().numpy(), GOLDEN[f"{kind}/tact/{case}/loss"], **close)
        for name, tensor in (("video", video), ("text", text)):
            agree("TACT", "gradients", tensor.grad.numpy(), GOLDEN[f"{kind}/tact/{case}/grad_{name}"], **close)


@pytest.mark.golden
def test_the_ranking_term_and_its_threshold_are_ceclips() -> None:
    steps, count = GOLDEN["in/ceclip/video"].shape[:2]
    loss, scale = make_loss("ceclip"), float(GOLDEN["meta/ceclip"][0])
    batch = no_negative_is_true(loss, count)
    for step in range(steps):
        batch["rows"] = torch.arange(count).roll(step)  # another step; a repeated one has the same
        video, text, hard = (
            torch.from_numpy(GOLDEN[f"in/ceclip/{name}"][step]).requires_grad_() for name in ("video", "text", "hard")
        )
        agree("CE-CLIP", "threshold", np.float64(loss.threshold), GOLDEN[f"ref64/ceclip/{step}/threshold"], rtol=1e-9)
        found = loss(Products(scale), {"v": text}, {"v": video}, batch, {"v": hard})
        found.value.backward()
        close = {"rtol": 1e-9, "atol": 1e-12}
        agree("CE-CLIP", "ranking term", found.logs["ranking"].numpy(),
              GOLDEN[f"ref64/ceclip/{step}/ranking"], **close)  # fmt: skip
        agree("CE-CLIP", "loss", found.value.detach().numpy(), GOLDEN[f"ref64/ceclip/{step}/loss"], **close)
        agree("CE-CLIP", "gradients", hard.grad.numpy(), GOLDEN[f"ref64/ceclip/{step}/grad_hard"], **close)
        agree("CE-CLIP", "gradients", video.grad.numpy(), GOLDEN[f"ref64/ceclip/{step}/grad_video"], **close)


@pytest.mark.golden
def test_hard_columns_are_ceclips_and_negclips() -> None:
    steps, count = GOLDEN["in/ceclip/video"].shape[:2]
    options = {"negclip": {}, "ceclip": {"hard_columns": True, "rank_weight": 0}}
    for step, name in product(range(steps), options):
        loss = make_loss(name, options[name])
        batch = no_negative_is_true(loss, count)
        sides = ("video", "text", "hard")
        video, text, hard = (torch.from_numpy(GOLDEN[f"in/ceclip/{side}"][step]).requires_grad_() for side in sides)
        value = loss(Products(5.0), {"v": text}, {"v": video}, batch, {"v": hard}).value
        value.backward()
        subject, golden = "CE-CLIP, hard negatives as columns", f"ref64/negclip/{step}"
        agree(subject, "loss", value.detach().numpy(), GOLDEN[f"{golden}/loss"], rtol=1e-12)
        agree(subject, "gradients", hard.grad.numpy(), GOLDEN[f"{golden}/grad_hard"], rtol=1e-9, atol=1e-12)


# ---- Plain loops over the definitions, with masks ------------------------------------------------------------------


def drawn(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randn(count, 5, generator=generator, dtype=torch.float64) for _ in range(3))


def test_negclip_is_its_definition_where_pairs_are_left_out() -> None:
    """Seven captions of five clips; of their hard negatives one is true of another clip, and two captions have none."""
    items = [0, 1, 2, 3, 4, 4, 1]
    texts = ["it opens", "it closes", "it runs", "it sits", "it falls", "it drops", "it shuts"]
    hard_texts = {0: "it closes", 1: "it opens", 2: "it stands", 4: "it rises", 6: "it opens"}
    captions = pd.DataFrame({"caption_id": map(str, range(7)), "video_id": map(str, items), "caption": texts})
    table = pd.DataFrame({"item_id": map(str, range(5)), "reversed": 0})
    owners = sorted(hard_texts)
    negatives = negatives_of_texts(table, captions, torch.zeros(5, 1), [hard_texts[n] for n in owners], owners)
    text, video, hard = drawn(7)
    video = video[items]
    loss = make_loss("negclip", {"exclude": ["same_text"]})
    loss.prepare(None, SimpleNamespace(hard_negatives=negatives, captions=texts, cluster_of_item=np.arange(5)), CPU)
    row = negatives.draw(0, 0)
    assert row.tolist() == [0, 1, 2, -1, 3, -1, 4]
    batch = {"items": torch.tensor(items), "rows": torch.arange(7), "negatives": torch.from_numpy(row)}
    found = loss(Products(), {"v": text}, {"v": video}, batch, {"v": hard})

    to_items = to_texts = 0.0
    true_of = {text: {items[n] for n, other in enumerate(texts) if other == text} for text in hard_texts.values()}
    for i in range(7):
        own = float(text[i] @ video[i])
        rivals = [j for j in range(7) if items[j] != items[i]]
        to_items += math.log(sum(math.exp(text[i] @ video[j]) for j in rivals) + math.exp(own)) - own
        wrong = [text[j] for j in rivals]
        wrong += [hard[j] for j in hard_texts if items[i] not in true_of[hard_texts[j]]]
        to_texts += math.log(sum(math.exp(vector @ video[i]) for vector in wrong) + math.exp(own)) - own
    assert found.value.item() == pytest.approx((to_items + to_texts) / 14, rel=1e-12)
    told = [float(text[i] @ video[i]) > float(hard[i] @ video[i]) for i in hard_texts]
    assert found.logs["above_hard_negative"].item() == pytest.approx(np.mean(told))


@pytest.mark.parametrize("name", LOSSES)
def test_pairs_that_are_excluded_count_as_pairs_without_similarity(name: str) -> None:
    """The second and the fourth caption say the same, and the first two clips are twins."""

    class Without(Products):
        def similarity(self, text, items):
            scores = super().similarity(text, items)
            return (
                scores
                if "hard" in text
                else scores.index_put(tuple(torch.tensor(pairs).T), torch.tensor(-1e9).double())
            )

    pairs = [[1, 3], [3, 1], [0, 1], [1, 0]]
    texts, (text, video, hard) = ["a", "b", "c", "B"], drawn(4)
    negatives = HardNegatives(torch.zeros(4, 1), np.arange(5), np.arange(4), np.arange(4), np.array([-1]), 4)
    data = SimpleNamespace(hard_negatives=negatives, captions=texts, cluster_of_item=np.array([0, 0, 1, 2]),
                           reversed_items=np.array([0, 1, 0, 0], bool))  # fmt: skip
    batch = {"items": torch.arange(4), "rows": torch.arange(4), "negatives": torch.arange(4)}
    values = []
    for model, exclude in ((Without(), []), (Products(), ["same_text", "twins"]), (Products(), [])):
        loss = make_loss(name, {"exclude": exclude})
        loss.prepare(None, data, CPU)
        given = [{"v": hard, "hard": hard}] if loss.reads_hard_negatives else []
        values.append(loss(model, {"v": text}, {"v": video}, batch, *given).value.item())
    assert values[0] == pytest.approx(values[1], rel=1e-12) and values[1] != pytest.approx(values[2], rel=1e-3)


def test_tact_is_its_definition_in_any_order_of_a_batch() -> None:
    items, is_reversed, clusters = [3, 0, 2, 1, 0], [False, True, False, True], [7, 7, 9, 9]
    text, video, _ = drawn(5, seed=1)
    video = video[[0, 1, 2, 3, 1]]
    loss = Tact(Tact.Options(alpha_same=3.0, alpha_cross=0.2, beta=0.5))
    data = SimpleNamespace(reversed_items=np.array(is_reversed), cluster_of_item=np.array(clusters), captions=[])
    loss.prepare(None, data, CPU)
    found = loss(Products(), {"v": text}, {"v": video}, {"items": torch.tensor(items)}).value.item()
    total = weights = 0.0
    for i, item in enumerate(items):
        weight = 0.5 if is_reversed[item] else 1.0
        weights += 2 * weight
        for score in (lambda a, b: text[a] @ video[b], lambda a, b: text[b] @ video[a]):
            terms = []
            for j, other in enumerate(items):
                if other == item and j != i:
                    continue
                across = is_reversed[item] != is_reversed[other]
                alpha = (3.0 if clusters[item] == clusters[other] else 0.2) if across else 1.0
                terms.append(alpha * math.exp(score(i, j)))
            total += weight * (math.log(sum(terms)) - float(score(i, i)))
    assert found == pytest.approx(total / weights, rel=1e-7)  # the floor of α


class Units(Products):
    """Cosines of vectors as they are given."""

    def vectors(self, text, items):
        return F.normalize(text["v"], dim=-1), F.normalize(items["v"], dim=-1)


@pytest.mark.parametrize("exclude", [[], ["same_text"]])
def test_tara_is_its_definition_over_captions_alone(exclude: list[str]) -> None:
    """Three captions of a clip, two of another, one alone; two hard negatives are true, and one caption has none."""
    items, texts = [0, 1, 0, 2, 1, 0], ["up", "down", "upward", "flat", "downward", "flat"]
    hard_texts = {0: "down", 1: "up", 2: "x", 3: "y", 5: "z"}
    captions = pd.DataFrame({"video_id": map(str, items), "caption": texts})
    table, owners = pd.DataFrame({"item_id": ["0", "1", "2"]}), sorted(hard_texts)
    negatives = negatives_of_texts(table, captions, torch.zeros(5, 1), [hard_texts[n] for n in owners], owners)
    text, video, hard = drawn(6, seed=3)
    loss = make_loss("tara", {"exclude": exclude})
    data = SimpleNamespace(hard_negatives=negatives, captions=texts, cluster_of_item=np.arange(3))
    loss.prepare(None, data, CPU)
    batch = {"items": torch.tensor(items), "rows": torch.arange(6), "negatives": torch.from_numpy(negatives.draw(0, 0))}
    found = loss(Units(), {"v": text}, {"v": video}, batch, {"v": hard})

    unit, opposite = F.normalize(text, dim=-1), F.normalize(hard, dim=-1)
    partner, total = {0: 2, 2: 5, 5: 0, 1: 4, 4: 1}, 0.0
    true_of = {words: {items[n] for n, other in enumerate(texts) if other == words} for words in hard_texts.values()}
    for i, positive in partner.items():
        rivals = [j for j in range(6) if items[j] != items[i]]
        if exclude:
            rivals = [j for j in rivals if texts[j] != texts[i]]
        terms = [math.exp(unit[i] @ unit[j] / 0.05) for j in (*rivals, positive)]
        terms += [math.exp(unit[i] @ opposite[j] / 0.05) for j in hard_texts if items[i] not in true_of[hard_texts[j]]]
        total += math.log(sum(terms)) - float(unit[i] @ unit[positive]) / 0.05
    assert found.value.item() == pytest.approx(total / 5, rel=1e-10)
    assert 0 <= found.logs["above_hard_negative"].item() <= 1
    with refusal("training.batch.sampler"):
        loss(Units(), {"v": text}, {"v": video}, batch | {"items": torch.arange(6)}, {"v": hard})


def test_tara_in_micro_batches_gives_the_gradients_of_the_whole_batch() -> None:
    model = tiny("meanP")
    loss, batch = prepared("tara"), opposed_batch(model)
    batch["items"] = torch.arange(len(batch["items"])) // 2
    whole = exact_step(model, loss, batch)
    wanted = gradients(model)
    for rows in (3, 5):
        parts = exact_step(model, loss, batch, rows)
        assert parts.value == pytest.approx(whole.value, rel=1e-12) and error(gradients(model), wanted) < 1e-11
    assert any(name.startswith("backbone.clip.transformer") for name in wanted)
    assert not any("visual" in name and grad.any() for name, grad in wanted.items()), "no clip is looked at"


def test_without_others_tact_still_counts_those_that_are_far_ahead() -> None:
    """What docs/direction.md says of the 1e-8 that the authors add: ahead by log(1e8) / scale, one counts whole."""
    reversed_, clusters = torch.tensor([False, True]), torch.tensor([0, 1])
    other = log_factors(reversed_, clusters, same=1.0, cross=0.0)[0, 1].item()
    for scale, ahead in ((100, 0.184), (20, 0.921), (9.21, 2.0)):
        assert abs(scale * ahead + other) < 0.05


def test_tact_with_factors_of_one_is_infonce_to_the_bit() -> None:
    text, video, _ = drawn(6, seed=2)
    loss = Tact(Tact.Options())
    data = SimpleNamespace(reversed_items=np.arange(6) % 2 == 1, cluster_of_item=np.arange(6) // 2, captions=[])
    loss.prepare(None, data, CPU)
    given = Products(), {"v": text}, {"v": video}, {"items": torch.arange(6)}
    torch.testing.assert_close(loss(*given).value, make_loss("infonce")(*given).value, rtol=1e-15, atol=0)


def test_a_step_that_is_repeated_has_the_threshold_that_it_began_with() -> None:
    loss, count = Ceclip(Ceclip.Options()), 4
    batch = no_negative_is_true(loss, count)
    text, video, hard = ({"v": side} for side in drawn(count))
    first = loss(Products(), text, video, batch, hard).logs["threshold"]
    assert loss.threshold != 0 and loss(Products(), text, video, batch, hard).logs["threshold"] == first == 0
    later = loss(Products(), text, video, batch | {"rows": torch.arange(count).flip(0)}, hard)
    assert later.logs["threshold"] == loss.threshold
    resumed = Ceclip(Ceclip.Options())
    resumed.load_state_dict(loss.state_dict())
    assert resumed.threshold == loss.threshold


def test_a_batch_without_hard_negatives_is_that_of_infonce() -> None:
    text, video, hard = ({"v": side} for side in drawn(4))
    for name in ("negclip", "ceclip"):
        loss = make_loss(name)
        batch = no_negative_is_true(loss, 4) | {"negatives": torch.full((4,), -1)}
        plain = make_loss("infonce")(Products(), text, video, batch).value
        found = loss(Products(), text, video, batch, hard)
        torch.testing.assert_close(found.value, plain) and "above_hard_negative" not in found.logs


# ---- Exact in parts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("head", HEADS)
def test_micro_batches_give_the_gradients_of_the_whole_batch(head: str, name: str) -> None:
    model = tiny(head)
    whole = exact_step(model, prepared(name), opposed_batch(model))
    wanted = gradients(model)
    for rows in (3, 5):
        parts = exact_step(model, prepared(name), opposed_batch(model), rows)
        assert parts.value == pytest.approx(whole.value, rel=1e-12) and error(gradients(model), wanted) < 1e-11
    plain = exact_step(model, make_loss("infonce"), batch_of(model))
    assert plain.value != pytest.approx(whole.value, rel=1e-6)


# ---- Where hard negatives come from ----------------------------------------------------------------------------------


def twins_table() -> tuple[pd.DataFrame, pd.DataFrame]:
    items = pd.DataFrame({"item_id": ["a", "a_rev", "b", "c", "c_rev"], "reversed": [0, 1, 0, 0, 1]})
    captions = pd.DataFrame({"video_id": ["a", "a", "a_rev", "b", "c", "c_rev", "c_rev"]})
    captions["caption"] = ["opens", "is opened", "closes", "sits", "rises", "falls", "sinks"]
    return items, captions


def test_hard_negatives_of_twins_are_their_captions() -> None:
    negatives = negatives_of_twins(*twins_table(), torch.arange(7)[:, None])
    seen = np.stack([negatives.draw(3, epoch) for epoch in range(40)])
    assert [sorted(set(column)) for column in seen.T.tolist()] == [[2], [2], [0, 1], [-1], [5, 6], [4], [4]]
    assert (negatives.draw(3, 5) == seen[5]).all() and (negatives.draw(4, 5) != seen[5]).any()
    entries = negatives.batch(np.array([2, -1]))
    assert entries["negatives"].tolist() == [2, -1] and entries["negative_text"].tolist() == [[2], [0]]


def test_without_captions_of_twins_there_are_none() -> None:
    items, captions = twins_table()
    with refusal("training.hard_negatives"):
        negatives_of_twins(items, captions[~captions["video_id"].str.endswith("_rev")], torch.zeros(4, 1))


# ---- What is refused -------------------------------------------------------------------------------------------------


def test_losses_and_keys_that_do_not_fit_are_refused() -> None:
    retriever = tiny("meanP")
    for name in ("negclip", "ceclip"):
        keys = Training(objective=name)
        with refusal("training.hard_negatives"):
            make_objective(keys).check(retriever, keys)
        with refusal("training.objective"):
            keys = Training(objective=name, hard_negatives="twins", objective_options={"temperature": 0.1})
            make_objective(keys).check(Chance(), keys)
    with refusal("training.hard_negatives"):
        make_objective(Training(hard_negatives="twins"))
    keys = Training(objective="tara", hard_negatives="twins")
    with refusal("training.batch.sampler"):
        make_objective(keys).check(retriever, keys)
    keys = Training(objective="tact")
    with refusal("training.batch.twins_together"):
        make_objective(keys).check(retriever, keys)
    with refusal("training.objective"):
        make_loss("tact").prepare(None, SimpleNamespace(reversed_items=np.zeros(3, bool)), CPU)
    with pytest.raises(ValueError, match="hard_negatives"):
        Training(hard_negatives="words.txt")


def test_normalised_vectors_and_a_temperature_are_the_same_logits() -> None:
    class Cosines(Products):
        def vectors(self, text, items):
            return F.normalize(text["v"], dim=-1), F.normalize(items["v"], dim=-1)

    text, video, hard = ({"v": F.normalize(side, dim=-1)} for side in drawn(4))
    for name in ("negclip", "ceclip"):
        plain, cosine = make_loss(name), make_loss(name, {"temperature": 0.1})
        values = [loss(model, text, video, no_negative_is_true(loss, 4), hard).value.item()
                  for loss, model in ((plain, Products(10.0)), (cosine, Cosines()))]  # fmt: skip
        assert values[0] == pytest.approx(values[1], rel=1e-6)
