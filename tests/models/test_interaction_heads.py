"""X-Pool and WTI against numbers made by running their authors' own code, and what all heads must keep to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from golden_numbers import agree, load
from messages import refusal
from rewind.config import Method
from rewind.config.evaluation import Evaluation
from rewind.evaluation.ranking import compute_metrics, rank_table
from rewind.evaluation.similarity import similarity_matrix
from rewind.losses.base import make_loss
from rewind.losses.infonce import infonce
from rewind.models.backbone import Backbone
from rewind.models.clip4clip import Clip4Clip
from rewind.models.heads import make_head
from rewind.models.heads.base import sort_by_content, with_head_defaults
from rewind.models.heads.wti import Wti, WtiOptions
from rewind.models.heads.xpool import XPool, XPoolOptions
from rewind.registry import HEADS

CASES = {"xpool": ["one_head", "two_heads"], "wti": ["arch1", "arch2", "ti"]}
EXACT, SINGLE = 1e-10, 1e-5  # absolute, in double and in single precision


class Given(Backbone):
    """Towers whose features are what they are given."""

    def __init__(self, width: int, scale: float) -> None:
        super().__init__()
        self.width = self.feature_width = width
        self.logit_scale = nn.Parameter(torch.tensor(scale))

    def encode_text(self, prepared):
        return prepared

    def encode_words(self, prepared):
        return prepared[..., 1:], prepared[..., 0].long()  # the mask travels as a feature


class Case(Mapping[str, torch.Tensor]):
    """The arrays of one case, floating ones at one precision."""

    def __init__(self, name: str, case: str, dtype: torch.dtype) -> None:
        self.golden, self.case, self.dtype = load(f"{name}.npz"), case, dtype

    def __getitem__(self, key: str) -> torch.Tensor:
        if f"{self.case}/{key}" not in self.golden.arrays:
            raise KeyError(key)
        value = torch.from_numpy(np.array(self.golden[f"{self.case}/{key}"]))
        return value.to(self.dtype) if value.is_floating_point() else value

    def __iter__(self) -> Iterator[str]:
        start = f"{self.case}/"
        return (key.removeprefix(start) for key in self.golden if key.startswith(start))

    def __len__(self) -> int:
        return len(list(iter(self)))


def model_of(name: str, case: str, golden, **options) -> Clip4Clip:
    if name == "xpool":
        head = XPool(golden["in/text"].shape[-1], options=XPoolOptions(heads=int(golden["in/heads"])))
    else:
        chosen = {"weights": "uniform"} if case == "ti" else {"depth": int(golden["in/wti_arch"])}
        head = Wti(golden["in/text"].shape[-1], options=WtiOptions(**chosen, **options))
    head.load_state_dict({k.removeprefix("state/"): golden[k] for k in golden if k.startswith("state/")})
    return Clip4Clip(Given(golden["in/text"].shape[-1], float(golden["in/logit_scale"])), head).eval()


def text_of(golden, prefix: str = "in/"):
    text = golden[f"{prefix}text"]
    return text, golden.get(f"{prefix}text_mask")


def sides(model, text, words, frames, mask=None):
    prepared = text if words is None else torch.cat([words.unsqueeze(-1).to(text.dtype), text], dim=-1)
    mask = torch.ones(frames.shape[:2], dtype=torch.long) if mask is None else mask
    return model.encode_text({"text": prepared}), model.encode_items({"frames": frames, "mask": mask})


PRECISIONS = [(torch.float64, "ref64", EXACT), (torch.float32, "out", SINGLE)]


@pytest.mark.golden
@pytest.mark.parametrize(("dtype", "kind", "limit"), PRECISIONS)
@pytest.mark.parametrize("case", CASES["xpool"])
def test_xpool_equals_upstream(case, dtype, kind, limit):
    golden = Case("xpool", case, dtype)
    model = model_of("xpool", case, golden).to(dtype)
    text, frames = golden["in/text"].requires_grad_(), golden["in/frames"].requires_grad_()
    captions, items = sides(model, text, None, frames)
    pooled = model.head.pooled(captions["query"], items["key"], items["value"], items["mask"])
    agree("X-Pool", "pooled frames", pooled.transpose(0, 1), golden[f"{kind}/pooled"], atol=limit)
    scale = model.backbone.logit_scale.exp()
    logits = model.similarity(captions, items)
    agree("X-Pool", "similarity", logits / scale, golden[f"{kind}/sims_train"], atol=limit)
    loss = infonce(model, captions, items, {"items": torch.arange(len(text))}).value
    agree("X-Pool", "loss", loss, golden[f"{kind}/loss"], atol=limit)
    loss.backward()
    where = "ref64/grad/" if kind == "ref64" else "grad/"
    for name, parameter in model.head.named_parameters():
        agree("X-Pool", "gradients", parameter.grad, golden[where + name], atol=limit)
    agree("X-Pool", "gradients", text.grad, golden[where + "in/text"], atol=limit)
    agree("X-Pool", "gradients", frames.grad, golden[where + "in/frames"], atol=limit)
    agree("X-Pool", "gradients", model.backbone.logit_scale.grad, golden[where + "in/logit_scale"], atol=limit)


@pytest.mark.golden
@pytest.mark.parametrize(("dtype", "kind", "limit"), PRECISIONS)
@pytest.mark.parametrize("case", CASES["xpool"])
def test_xpool_scores_other_texts_short_clips_and_its_start_as_upstream(case, dtype, kind, limit):
    golden = Case("xpool", case, dtype)
    model = model_of("xpool", case, golden).to(dtype)
    scale = model.backbone.logit_scale.exp()
    frames, text = golden["in/frames"], golden["in/text"]
    others, items = sides(model, golden["in/eval_text"], None, frames)
    agree("X-Pool", "similarity", model.similarity(others, items) / scale, golden[f"{kind}/eval_sims"], atol=limit)
    pooled = model.head.pooled(others["query"], items["key"], items["value"], items["mask"]).transpose(0, 1)
    agree("X-Pool", "pooled frames", pooled, golden[f"{kind}/eval_pooled"], atol=limit)
    repeated = sides(model, text, None, golden["in/frames_repeat_last"])
    agree("X-Pool", "similarity", model.similarity(*repeated) / scale, golden[f"{kind}/sims_repeat_last"], atol=limit)
    mask = (torch.arange(frames.shape[1]) < golden["in/real_frames"].unsqueeze(1)).long()
    padded = frames.where(mask.bool().unsqueeze(-1), torch.zeros(()).to(dtype))
    captions, items = sides(model, text, None, padded, mask)
    agree(
        "X-Pool", "similarity", model.similarity(captions, items) / scale, golden[f"{kind}/sims_real_only"], atol=limit
    )
    pooled = model.head.pooled(captions["query"], items["key"], items["value"], items["mask"]).transpose(0, 1)
    agree("X-Pool", "pooled frames", pooled, golden[f"{kind}/pooled_real_only"], atol=limit)
    fresh = Clip4Clip(model.backbone, XPool(text.shape[-1], options=XPoolOptions(heads=int(golden["in/heads"]))))
    captions, items = sides(fresh.eval().to(dtype), text, None, frames)
    agree("X-Pool", "similarity", fresh.similarity(captions, items) / scale, golden[f"{kind}/init_sims"], atol=limit)
    loss = infonce(fresh, captions, items, {"items": torch.arange(len(text))}).value
    agree("X-Pool", "loss", loss, golden[f"{kind}/init_loss"], atol=limit)


@pytest.mark.golden
@pytest.mark.parametrize("case", CASES["xpool"])
def test_xpools_own_evaluation_gives_our_metrics(case):
    golden = Case("xpool", case, torch.float64)
    owners, clips = golden["in/eval_video_of_text"].tolist(), [f"v{n}" for n in range(len(golden["in/frames"]))]
    items = pd.DataFrame({"item_id": clips, "cluster_id": clips, "reversed": 0})
    captions = pd.DataFrame(
        {"video_id": [clips[n] for n in owners], "caption_id": [f"c{n}" for n in range(len(owners))]}
    )
    # Upstream's layout: clip, its k-th caption, scores of all clips; NaN where a clip has fewer captions.
    layout = golden["out/eval_sims_upstream"]
    rows = [layout[owner, owners[:n].count(owner)] for n, owner in enumerate(owners)]
    scores = torch.stack(rows).numpy()
    assert np.array_equal(scores, golden["out/eval_sims"])
    for direction, name in (("text_to_item", "t2v"), ("item_to_text", "v2t")):
        row = compute_metrics(rank_table(scores, captions, items, ["test"], [direction], item_to_text="best_caption"))
        for ours, theirs in (("R@1", "R1"), ("R@5", "R5"), ("MdR", "MedR"), ("MnR", "MeanR")):
            agree("X-Pool", "metrics", row[ours], golden[f"out/eval_{name}_{theirs}"], rtol=1e-9)


@pytest.mark.golden
@pytest.mark.parametrize(("dtype", "kind", "limit"), PRECISIONS)
@pytest.mark.parametrize("padding", ["zero", "masked"])
@pytest.mark.parametrize("case", CASES["wti"])
def test_wti_equals_upstream(case, padding, dtype, kind, limit):
    golden = Case("wti", case, dtype)
    model = model_of("wti", case, golden, padding=padding).to(dtype)
    suffix = "_unpadded" if padding == "masked" else ""
    text, video = golden["in/text"].requires_grad_(), golden["in/video"].requires_grad_()
    scale = model.backbone.logit_scale.exp()
    captions, items = sides(model, text, golden["in/text_mask"], video, golden["in/video_mask"])
    logits = model.similarity(captions, items)
    agree("WTI", "similarity", logits / scale, golden[f"{kind}/sims_eval{suffix}"], atol=limit)
    others = sides(model, golden["in/eval_text"], golden["in/eval_text_mask"], video, golden["in/video_mask"])
    agree("WTI", "similarity", model.similarity(*others) / scale, golden[f"{kind}/eval_sims{suffix}"], atol=limit)
    if case != "ti":
        agree("WTI", "weights", captions["weight"], golden[f"{kind}/text_weight"], atol=limit)
        weights, wanted = (x.sort(dim=1).values for x in (items["weight"], golden[f"{kind}/video_weight"]))
        agree("WTI", "weights", weights, wanted, atol=limit)  # frames are summed in an order of our own
    if padding == "masked":
        return
    agree("WTI", "similarity", logits, golden[f"{kind}/logits_train"], atol=limit * float(scale.detach()))
    loss = infonce(model, captions, items, {"items": torch.arange(len(text))}).value
    agree("WTI", "loss", loss, golden[f"{kind}/plain_loss"], atol=limit)
    if kind == "out":
        return
    loss.backward()
    for name, parameter in model.head.named_parameters():
        agree("WTI", "gradients", parameter.grad, golden[f"ref64/grad/plain/{name}"], atol=limit)
    agree("WTI", "gradients", text.grad, golden["ref64/grad/plain/in/text"], atol=limit)
    agree("WTI", "gradients", video.grad, golden["ref64/grad/plain/in/video"], atol=limit)
    agree("WTI", "gradients", model.backbone.logit_scale.grad, golden["ref64/grad/plain/in/logit_scale"], atol=limit)


@pytest.mark.golden
@pytest.mark.parametrize(("dtype", "kind", "limit"), PRECISIONS)
@pytest.mark.parametrize(("case", "variant"), [("arch2", "cdcr3"), ("arch2", "cdcr3_strong"), ("ti", "cdcr2_strong")])
def test_cdcr_equals_upstream(case, variant, dtype, kind, limit):
    golden = Case("wti", case, dtype)
    model = model_of("wti", case, golden, padding="zero").to(dtype)
    text, video = golden["in/text"].requires_grad_(), golden["in/video"].requires_grad_()
    captions, items = sides(model, text, golden["in/text_mask"], video, golden["in/video_mask"])
    _, diagonal, off_diagonal, strength = golden[f"in/{variant}"].tolist()
    objective = make_loss("cdcr", {"diagonal": diagonal, "off_diagonal": off_diagonal, "strength": strength})
    loss = objective(model, captions, items, {"items": torch.arange(len(text))})
    agree("WTI, CDCR", "regulariser", loss.logs["cdcr"], golden[f"{kind}/{variant}_regulariser"], atol=limit)
    agree("WTI, CDCR", "loss", loss.value, golden[f"{kind}/{variant}_loss"], atol=limit)
    if kind == "out":
        return
    loss.value.backward()
    where = f"ref64/grad/{variant}"
    for name, parameter in model.head.named_parameters():
        agree("WTI, CDCR", "gradients", parameter.grad, golden[f"{where}/{name}"], atol=limit)
    agree("WTI, CDCR", "gradients", text.grad, golden[f"{where}/in/text"], atol=limit)
    agree("WTI, CDCR", "gradients", video.grad, golden[f"{where}/in/video"], atol=limit)
    agree("WTI, CDCR", "gradients", model.backbone.logit_scale.grad, golden[f"{where}/in/logit_scale"], atol=limit)


@pytest.mark.parametrize("same", [1, 0.1])
def test_cdcr_is_a_number_where_all_frames_meet_the_token_that_begins_every_caption(same):
    torch.manual_seed(0)
    head, start, count = drawn("wti", 64).head, torch.randn(64), 6
    text, frames = torch.randn(count, 4, 64), start + 0.1 * torch.randn(count, 3, 64)
    text[:, 0] = start * torch.linspace(same, 1, count).unsqueeze(1)  # the same vector once its length is one
    text.requires_grad_(), frames.requires_grad_()
    captions = head.of_captions({"text": text, "words": torch.ones(count, 4)})
    items = head.of_clips({"frames": frames, "mask": torch.ones(count, 3)})
    assert not head.matches(captions, items)[1].any(), "every frame meets the first token"
    loss = make_loss("cdcr", {"off_diagonal": 0.1}).regulariser(head, captions, items)
    loss.backward()
    assert 0 < float(loss.detach()) < 1e3
    assert all(0 < float(given.grad.abs().max()) < 1e3 for given in (text, frames))


def test_cdcr_asks_for_a_head_that_matches_tokens_with_frames():
    with refusal("training.objective"):
        make_loss("cdcr", {}).check(drawn("xpool", 64), None)


BLIND = {
    "meanP": {},
    "projection": {},
    "xpool": {},
    "wti": {},
    "wti, uniform": {"weights": "uniform"},
    "wti, zero": {"padding": "zero"},
}
WIDTH, WORDS = 512, 5


def drawn(name: str, width: int = WIDTH, **options) -> Clip4Clip:
    torch.manual_seed(0)
    head = make_head(Method(head=name.partition(",")[0], head_layers=1, options=options), width)
    for parameter in head.parameters():  # away from where training starts
        nn.init.normal_(parameter, std=0.05)
    return Clip4Clip(Given(width, 2.0), head).eval()


def clips_and_captions(model: Clip4Clip, count: int, frames: int = 12):
    draw = torch.Generator().manual_seed(1)
    width = model.backbone.width
    text = torch.randn(count, WORDS, width, generator=draw)
    words = (torch.arange(WORDS) < torch.randint(2, WORDS + 1, (count, 1), generator=draw)).float()
    if model.head.reads_words:
        prepared = torch.cat([words.unsqueeze(-1), text * words.unsqueeze(-1)], dim=-1)
    else:
        prepared = text[:, 0]
    real = torch.randint(1, frames + 1, (count,), generator=draw)
    mask = (torch.arange(frames) < real.unsqueeze(1)).long()
    clips = torch.randn(count, frames, width, generator=draw) * mask.unsqueeze(-1)
    mirrored = clips.clone()
    for n, length in enumerate(real):
        mirrored[n, :length] = clips[n, :length].flip(0)
    return prepared, torch.cat([clips, mirrored]), torch.cat([mask, mask])


class Clips:
    """Inputs of a gallery, as evaluation reads them."""

    copies = True

    def __init__(self, frames, mask) -> None:
        self.frames, self.mask = frames, mask

    def __len__(self) -> int:
        return len(self.frames)

    def batch(self, rows):
        return {"frames": self.frames[rows], "mask": self.mask[rows]}


@pytest.mark.parametrize("pairs", [37, 4096])
@pytest.mark.parametrize("name", BLIND)
def test_a_clip_and_its_mirror_tie_exactly_where_order_cannot_be_seen(name, pairs):
    model = drawn(name, **BLIND[name])
    text, frames, mask = clips_and_captions(model, 31)
    keys = Evaluation(batch_size=7, pair_batch_size=pairs)
    scores = similarity_matrix(model, text, Clips(frames, mask), keys, torch.device("cpu"))
    assert np.array_equal(scores[:, :31], scores[:, 31:])
    assert len(np.unique(scores)) > 0.9 * scores.size / 2


def test_with_a_transformer_below_wti_sees_order():
    model = drawn("wti", 64, frames="seqTransf")
    text, frames, mask = clips_and_captions(model, 9)
    captions, items = model.encode_text({"text": text}), model.encode_items({"frames": frames, "mask": mask})
    scores = model.similarity(captions, items).detach()
    longer = mask[:9].sum(dim=1) > 1
    assert ((scores[:, :9] - scores[:, 9:]).abs().amax(dim=0)[longer] > 1e-4).all()


@pytest.mark.parametrize("name", ["xpool", "wti", "tightTransf"])
def test_scores_and_gradients_do_not_depend_on_who_computes_which_rows(name):
    found = []
    for at_once, shares in ((10**6, [slice(None)]), (20, [slice(None)]), (10**6, [slice(0, 4), slice(4, 9)])):
        model = drawn(name, 64).train()
        text, frames, mask = clips_and_captions(model, 9)
        model.pairs_at_once = at_once
        captions, items = model.encode_text({"text": text}), model.encode_items({"frames": frames, "mask": mask})
        rows = []
        for share in shares:
            torch.manual_seed(3)  # every process draws the same numbers
            rows.append(model.similarity_rows(captions, items, share))
        scores = torch.cat(rows)
        F.cross_entropy(scores[:, :9], torch.arange(9)).backward()
        found.append((scores.detach(), [p.grad.clone() for p in model.head.parameters() if p.grad is not None]))
    for scores, gradients in found[1:]:
        torch.testing.assert_close(scores, found[0][0], rtol=0, atol=1e-5)
        for one, other in zip(gradients, found[0][1], strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_dropout_of_xpool_is_drawn_anew_in_training_and_never_in_evaluation():
    model = drawn("xpool", 64)
    text, frames, mask = clips_and_captions(model, 6)
    captions, items = model.encode_text({"text": text}), model.encode_items({"frames": frames, "mask": mask})
    quiet = [model.similarity(captions, items) for _ in range(2)]
    assert torch.equal(*quiet)
    model.train()
    one, other = (model.similarity(captions, items) for _ in range(2))
    assert not torch.equal(one, other)
    assert not torch.equal(one, quiet[0])


def test_options_of_heads_are_read_and_refused_by_their_key():
    assert make_head(Method(head="xpool", options={"heads": 4}), 64).heads == 4
    with refusal("methods.*.options.heads"):
        make_head(Method(head="xpool", options={"heads": 5}), 64)
    with refusal("methods.*.options.depth"):
        make_head(Method(head="wti", options={"depth": 4}), 64)
    with refusal("methods.*.options.heads: head"):
        make_head(Method(head="meanP", options={"heads": 4}), 64)


def test_a_head_that_is_no_subclass_gets_the_defaults_of_what_it_lacks():
    class Plain(nn.Module):
        pairwise = True

        def __init__(self, width, layers, positions):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(()))

        def pairs(self, text, frames, mask):
            return self.scale * text @ frames.mean(dim=1).T

    made = with_head_defaults(Plain)(4, layers=1, positions=77)
    assert not made.scaled
    assert list(made.state_dict()) == ["scale"]
    text, items = {"text": torch.randn(3, 4)}, {"frames": torch.randn(2, 5, 4), "mask": torch.ones(2, 5)}
    assert made.scores(made.of_captions(text), made.of_clips(items), slice(1, 3)).shape == (2, 2)
    assert set(HEADS.names()) == {"meanP", "projection", "seqLSTM", "seqTransf", "tightTransf", "xpool", "wti"}


def test_frames_in_order_of_content_keep_padding_last_and_break_ties_by_the_next_feature():
    frames = torch.tensor([[[2.0, 1.0], [1.0, 5.0], [1.0, 3.0], [0.0, 0.0]]])
    found = sort_by_content(frames, torch.tensor([[1, 1, 1, 0]]))
    assert found.tolist() == [[[1.0, 3.0], [1.0, 5.0], [2.0, 1.0], [0.0, 0.0]]]


def test_a_frame_s_weight_does_not_depend_on_its_place_in_the_batch():
    """A clip and its mirror are at different places where nobody says that they are twins."""
    torch.manual_seed(0)
    head = Wti(width=96).eval()
    for count in (3, 4, 5, 7, 9) * 40:
        frames, place = torch.randn(count, 3, 96), torch.randperm(count)
        there = head.of_clips({"frames": frames[place], "mask": torch.ones(count, 3)})["weight"]
        assert torch.equal(head.of_clips({"frames": frames, "mask": torch.ones(count, 3)})["weight"][place], there)
