"""Baselines that need no gradient descent: ``model: chance``, ``bow``, ``ridge`` and ``pixels``.

- ``chance`` scores every pair 0: the floor of every table.
- ``bow`` finds an item by the word counts of its other captions.
- ``ridge`` maps text features linearly to the time-averaged features of frozen towers, or the other way round.
- ``pixels`` maps word counts linearly to the pixels of a few small frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from scipy.sparse import csr_matrix
from torch import Tensor
from torch.nn import functional as F

from rewind.config import Backbone as BackboneKeys
from rewind.config import Method
from rewind.config import Text as TextKeys
from rewind.data.tokenizers import MiniclipTokenizer
from rewind.errors import RewindError
from rewind.models.backbone import Backbone
from rewind.models.closed_form import compute_moments, split_pairs
from rewind.models.registry import build_backbone
from rewind.models.retriever import Features, Retriever, masked_mean
from rewind.registry import MODELS

# ---- Shared: cosine of pooled features, checked options ------------------------------------------------------------


class PooledBaseline(Retriever):
    """Cosine of one vector per caption and one per item; nothing is learnt by gradient descent.

    Subclasses map ``batch['text']`` (n, dt) and the frame features averaged over time (n, di) to one space.

    >>> class SameSpace(PooledBaseline):
    ...     map_text = map_items = staticmethod(lambda features: features)
    >>> model = SameSpace()
    >>> text = model.encode_text({"text": torch.rand(3, 8)})
    >>> items = model.encode_items({"frames": torch.rand(2, 5, 8), "mask": torch.ones(2, 5)})
    >>> model.similarity(text, items).shape
    torch.Size([3, 2])
    """

    def map_text(self, text: Tensor) -> Tensor:
        """Prepared text features (n, dt) → (n, d)."""
        raise NotImplementedError

    def map_items(self, items: Tensor) -> Tensor:
        """Pooled item features (n, di) → (n, d)."""
        raise NotImplementedError

    def encode_text(self, batch: Features) -> Features:
        """``text`` (n, dt) → ``text`` (n, d), of unit length."""
        return {"text": F.normalize(self.map_text(batch["text"].float()), dim=1)}

    def encode_items(self, batch: Features) -> Features:
        """``frames`` (n, T, F) and ``mask`` (n, T) → ``items`` (n, d), of unit length."""
        return {"items": F.normalize(self.map_items(masked_mean(batch["frames"], batch["mask"])), dim=1)}

    def similarity(self, text: Features, items: Features) -> Tensor:
        return text["text"] @ items["items"].T


def check_baseline_options(options: Mapping[str, Any], known: tuple[str, ...], method: str) -> None:
    """Refuse options that a baseline does not have."""
    unknown = sorted(set(options) - set(known))
    if unknown:
        valid = ", ".join(known) or "none"
        raise RewindError(f"methods: options.{unknown[0]}: the baseline {method!r} has no such option; valid: {valid}.")


# ---- model: chance -------------------------------------------------------------------------------------------------


class Chance(Retriever):
    """Scores every pair 0.

    All items tie. Metrics are expectations over the order of ties, so they are exactly those of chance: R@k = k/n and a
    mean rank of (n + 1)/2.
    """

    def from_captions(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[RowNumberSource, Tensor]:
        return RowNumberSource(len(items)), torch.arange(len(captions))[:, None]

    def encode_text(self, batch: Features) -> Features:
        return {"text": _empty_rows(batch["text"])}

    def encode_items(self, batch: Features) -> Features:
        return {"items": _empty_rows(next(iter(batch.values())))}

    def similarity(self, text: Features, items: Features) -> Tensor:
        return text["text"] @ items["items"].T  # sums of no products


def _empty_rows(like: Tensor) -> Tensor:
    return torch.zeros(len(like), 0, device=like.device)


def make_chance(options: Mapping[str, Any] | None = None) -> Chance:
    check_baseline_options(options or {}, (), "chance")
    return Chance()


@MODELS.register("chance", tags=("no backbone", "no towers"))
def build_chance(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Chance:
    return make_chance(method.options)


# ---- model: bow – bag of words, which looks at no image ------------------------------------------------------------
# This is caption→caption retrieval, not text→image: a floor for what words alone say. Upstream (MiniCLIP) ranks
# captions; here an item has the score of its best caption, so that ranks are among items, like those of other methods.


class BagOfWords(Retriever):
    """Score of (caption, item): the largest cosine of word counts between the caption and the item's captions.

    A caption is never compared with itself. The only caption of an item therefore tells nothing about that item: it
    scores all items 0 and ranks as chance does (upstream leaves such captions out). Features are row numbers of the
    split that :meth:`from_captions` saw last.

    >>> items = pd.DataFrame({"item_id": ["a", "b"]})
    >>> words = ["red ball", "red ball rolls", "dog runs", "brown dog"]
    >>> captions = pd.DataFrame({"video_id": ["a", "a", "b", "b"], "caption": words})
    >>> model = BagOfWords()
    >>> source, text = model.from_captions(items, captions)
    >>> text, rows = model.encode_text({"text": text}), model.encode_items(source.batch(np.arange(2)))
    >>> model.similarity(text, rows).argmax(dim=1)
    tensor([0, 0, 1, 1])
    """

    def from_captions(self, items: pd.DataFrame, captions: pd.DataFrame) -> tuple[RowNumberSource, Tensor]:
        """Count a split's words by its ``item_id`` and its ``video_id`` and ``caption``; return its row numbers."""
        row_of_item = pd.Series(np.arange(len(items)), index=items["item_id"])
        self.item = row_of_item[captions["video_id"]].to_numpy()
        self.counts = word_counts(captions["caption"].tolist())
        self.squares = np.asarray(self.counts.multiply(self.counts).sum(axis=1)).ravel()
        sizes = np.bincount(self.item, minlength=len(items))
        self.alone = sizes[self.item] == 1
        if self.alone.any():
            print(
                f"bow: {self.alone.sum():,} of {len(captions):,} captions are the only caption of their item: they "
                "have nothing to compare with and score all items the same"
            )
        return RowNumberSource(len(items)), torch.arange(len(captions))[:, None]

    def encode_text(self, batch: Features) -> Features:
        return {"captions": batch["text"]}

    def encode_items(self, batch: Features) -> Features:
        return {"items": batch["rows"]}

    def similarity(self, text: Features, items: Features) -> Tensor:
        """Cosines, float32 (n_text, n_items). Rounded from double precision, so that equal ratios tie."""
        queries, gallery = text["captions"][:, 0].cpu().numpy(), items["items"][:, 0].cpu().numpy()
        # Column of each item in the result, -1 if it is not in the gallery.
        column = np.full(max(self.item.max(initial=0), gallery.max(initial=0)) + 1, -1)
        column[gallery] = np.arange(len(gallery))
        candidates = np.flatnonzero(column[self.item] >= 0)
        # Captions of one item side by side: reduceat then takes the maximum of each run of columns.
        candidates = candidates[np.argsort(column[self.item[candidates]], kind="stable")]
        scores = np.zeros((len(queries), len(gallery)), np.float32)
        if len(candidates):
            cosines = self._cosines(queries, candidates)
            columns, starts = np.unique(column[self.item[candidates]], return_index=True)
            # Where −1 is the maximum, the item's only caption is the query itself; it scores 0.
            scores[:, columns] = np.maximum(np.maximum.reduceat(cosines, starts, axis=1), 0)
        scores[self.alone[queries]] = 0
        return torch.from_numpy(scores).to(text["captions"].device)

    def _cosines(self, queries: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Cosines (n, m) between captions, -1 of a caption with itself."""
        products = (self.counts[queries] @ self.counts[others].T).toarray()
        norms = np.sqrt(np.outer(self.squares[queries], self.squares[others]))
        cosines = products / np.maximum(norms, 1)  # counts have a norm of 1 or more, or 0 without any word
        cosines[queries[:, None] == others] = -1
        return cosines


class RowNumberSource:
    """A frame source that gives row numbers of items, ``rows`` (n, 1), and reads no file."""

    copies = True

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def batch(self, rows: np.ndarray) -> Features:
        return {"rows": torch.as_tensor(rows)[:, None]}


def word_counts(captions: list[str]) -> csr_matrix:
    """How often each word occurs in each caption, sparse float64 (n, words); words as MiniCLIP splits them.

    >>> word_counts(["a red red ball", "a dog"]).shape
    (2, 4)
    """
    counts = [Counter(MiniclipTokenizer.words(caption)) for caption in captions]
    ids = {word: number for number, word in enumerate(dict.fromkeys(word for c in counts for word in c))}
    rows = np.repeat(np.arange(len(counts)), [len(c) for c in counts])
    columns = [ids[word] for c in counts for word in c]
    values = [float(value) for c in counts for value in c.values()]
    return csr_matrix((values, (rows, columns)), shape=(len(counts), max(1, len(ids))))


def make_bow(options: Mapping[str, Any] | None = None) -> BagOfWords:
    check_baseline_options(options or {}, (), "bow")
    return BagOfWords()


@MODELS.register("bow", tags=("no backbone", "no towers", "cosines"))
def build_bow(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> BagOfWords:
    return make_bow(method.options)


# ---- model: ridge – ridge regression between text features and time-averaged features of frozen towers -------------

ALPHAS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Strengths tried on validation, as multiples of the mean eigenvalue of the source features' covariance."""

DIRECTIONS = ("text_to_items", "items_to_text")


class Ridge(PooledBaseline):
    """Cosine of predicted and true features, both minus the training pairs' mean.

    With ``text_to_items`` the prediction is ``(text − text_mean) W``, compared with ``items − item_mean``; with
    ``items_to_text`` the other way round. ``W = (X'X + alpha m I)⁻¹ X'Y``, where X and Y are the centred training pairs
    and m = trace(X'X)/width: ``alpha`` means the same for any number of pairs and any scale. Without one, it is chosen
    among :data:`ALPHAS` on validation. The map knows nothing of the order of frames.

    >>> ridge = Ridge(text_width=4, item_width=3, alpha=0.1)
    >>> ridge.fit(torch.rand(50, 4), torch.rand(50, 3))
    >>> ridge.map_text(torch.rand(2, 4)).shape
    torch.Size([2, 3])
    """

    weight: Tensor
    text_mean: Tensor
    item_mean: Tensor
    alpha: Tensor

    def __init__(
        self, text_width: int, item_width: int, alpha: float | None = None, direction: str = DIRECTIONS[0]
    ) -> None:
        super().__init__()
        self.fixed_alpha, self.from_text = alpha, direction == "text_to_items"
        widths = (text_width, item_width) if self.from_text else (item_width, text_width)
        self.register_buffer("weight", torch.zeros(widths))
        self.register_buffer("text_mean", torch.zeros(text_width))
        self.register_buffer("item_mean", torch.zeros(item_width))
        self.register_buffer("alpha", torch.tensor(float("nan")))

    @torch.no_grad()
    def fit(
        self, text: Tensor, items: Tensor, valid_text: Tensor | None = None, valid_items: Tensor | None = None
    ) -> None:
        """Solve for the map of pairs (n, dt) and (n, di), items pooled by ``masked_mean``; deterministic, in float64.

        Validation pairs are needed where no ``alpha`` was given.
        """
        self._check(text, items, "training")
        if self.fixed_alpha is None:
            if valid_text is None or valid_items is None:
                raise RewindError(
                    "ridge: options.alpha is not set and there are no validation pairs to choose it with."
                )
            self._check(valid_text, valid_items, "validation")
        pairs = compute_moments(split_pairs(text, items) if self.from_text else split_pairs(items, text), both=False)
        means = (pairs.x_mean, pairs.y_mean) if self.from_text else (pairs.y_mean, pairs.x_mean)
        self.text_mean.copy_(means[0])
        self.item_mean.copy_(means[1])
        # One eigendecomposition serves every alpha: with X'X = V Λ V', W = V (Λ + alpha m I)⁻¹ V' X'Y.
        values, vectors = torch.linalg.eigh(pairs.xx)
        right = vectors.T @ pairs.xy

        def solve(alpha: float) -> None:
            strength = alpha * values.mean().clamp(min=1e-12)  # m; features that never vary would make it 0
            self.weight.copy_(vectors @ (right / (values.clamp(min=0) + strength)[:, None]))
            self.alpha.fill_(alpha)

        def score(alpha: float) -> float:
            solve(alpha)
            return mean_reciprocal_rank(self, cast(Tensor, valid_text), cast(Tensor, valid_items))  # checked above

        # max takes the first of equals: from the back, the largest of equally good strengths, the smoother map.
        solve(self.fixed_alpha if self.fixed_alpha is not None else max(reversed(ALPHAS), key=score))

    def translate(self, text: Tensor) -> Tensor:
        """Vectors (n, dt) of captions → unit vectors (n, di): the prediction plus the items' mean."""
        if not self.from_text:
            raise RewindError("methods.*.options.direction: items_to_text maps no caption into the space of items.")
        return F.normalize(self.map_text(text.float()) + self.item_mean, dim=1)

    def map_text(self, text: Tensor) -> Tensor:
        """(n, dt) → (n, di), or with ``items_to_text`` (n, dt)."""
        return self._map(text - self.text_mean, self.from_text)

    def map_items(self, items: Tensor) -> Tensor:
        """(n, di) → (n, di), or with ``items_to_text`` (n, dt)."""
        return self._map(items - self.item_mean, not self.from_text)

    def _map(self, centred: Tensor, source: bool) -> Tensor:
        """Centred features times W if they are the side that is mapped (``source``), else as they are."""
        if torch.isnan(self.alpha):
            raise RewindError("ridge: the map has not been fitted; call fit() or load a fitted checkpoint.")
        return centred @ self.weight if source else centred

    def _check(self, text: Tensor, items: Tensor, which: str) -> None:
        widths = len(self.text_mean), len(self.item_mean)
        expected = (len(text), widths[0]), (len(text), widths[1])
        if (tuple(text.shape), tuple(items.shape)) != expected or not len(text):
            raise RewindError(
                f"ridge: {which} pairs have shapes {tuple(text.shape)} and {tuple(items.shape)}; there must be "
                f"one row per caption in each, with widths {widths[0]} and {widths[1]}."
            )
        if not (torch.isfinite(text).all() and torch.isfinite(items).all()):
            raise RewindError(f"ridge: {which} features contain NaN or infinity; look for a broken clip or checkpoint.")


def mean_reciprocal_rank(ridge: Ridge, text: Tensor, items: Tensor) -> float:
    """Mean of 1/rank of pair i's item among the distinct items, ties at their mean rank."""
    # Several captions have one item, which must be one candidate and not several that tie.
    distinct, row = torch.unique(items.float(), dim=0, return_inverse=True)
    targets = F.normalize(ridge.map_items(distinct), dim=1)
    scores = F.normalize(ridge.map_text(text.float()), dim=1) @ targets.T
    true_scores = scores.gather(1, row[:, None])
    ranks = 1 + (scores > true_scores).sum(1) + ((scores == true_scores).sum(1) - 1) / 2
    return float((1 / ranks).mean())


def make_ridge(text_width: int, item_width: int, options: Mapping[str, Any] | None = None) -> Ridge:
    """The baseline ``ridge``, not yet fitted; ``options`` may set its ``alpha`` and its ``direction``."""
    options = options or {}
    check_baseline_options(options, ("alpha", "direction"), "ridge")
    alpha, direction = options.get("alpha"), options.get("direction", DIRECTIONS[0])
    is_positive = isinstance(alpha, int | float) and not isinstance(alpha, bool) and 0 < alpha < 1e12
    if alpha is not None and not is_positive:
        raise RewindError(
            f"methods: options.alpha: {alpha!r} is not a positive number; leave it out to have it chosen."
        )
    if direction not in DIRECTIONS:
        raise RewindError(f"methods: options.direction: {direction!r} is not one of {', '.join(DIRECTIONS)}.")
    return Ridge(text_width, item_width, None if alpha is None else float(alpha), direction)


@MODELS.register("ridge", tags=("no towers", "cosines"))
def build_ridge(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> Ridge:
    """``Ridge`` for the widths of the study's backbone, whose prepared text must be a feature vector."""
    towers = build_backbone(backbone, text, train_captions)
    if towers.text_width is None:
        raise RewindError(
            f"methods: ridge maps sentence features, but backbone.kind {backbone.kind!r} reads token ids; use it with "
            "kind: towers."
        )
    return make_ridge(towers.text_width, towers.feature_width, method.options)


# ---- model: pixels – ridge regression from word counts to the pixels of a few small frames, without any network ----
# What it finds can be told from colours and coarse movements; a network has to do better. It sees the order of frames.

PIXELS_FRAMES, PIXELS_SIZE = 4, 8  # frames of a clip, and the side of each in pixels
FREEZE_KEY = "methods.*.training.freeze"


class PixelFeatures(Backbone):
    """Captions as square roots of word counts, clips as ``PIXELS_FRAMES`` frames of ``PIXELS_SIZE``² pixels, flattened.

    The words are those of ``captions``, the training split's; others are left out.

    >>> features = PixelFeatures(["a red ball", "a dog"])
    >>> features.prepare_text(["a red dog", "unheard"]).shape
    torch.Size([2, 4])
    >>> features.clip_features(torch.zeros(2, 6, 3, 16, 16, dtype=torch.uint8), torch.ones(2, 6)).shape
    torch.Size([2, 6, 768])
    """

    text_width: int

    def __init__(self, captions: list[str]) -> None:
        super().__init__()
        words = sorted({word for caption in captions for word in MiniclipTokenizer.words(caption)})
        self.place = {word: at for at, word in enumerate(words)}
        self.text_width, self.feature_width = max(1, len(words)), PIXELS_FRAMES * 3 * PIXELS_SIZE * PIXELS_SIZE

    def prepare_text(self, captions: list[str]) -> Tensor:
        rows = torch.zeros(len(captions), self.text_width)
        for row, caption in zip(rows, captions, strict=True):
            for word, count in Counter(MiniclipTokenizer.words(caption)).items():
                if word in self.place:
                    row[self.place[word]] = count**0.5
        return rows

    def clip_features(self, pixels: Tensor, mask: Tensor) -> Tensor:
        """uint8 (n, T, 3, S, S) and mask (n, T) → (n, T, PIXELS_FRAMES · 3 · PIXELS_SIZE²), equal at every frame."""
        vectors = []
        for clip, real in zip(pixels, mask.sum(dim=1).tolist(), strict=True):
            # Centres of equal segments; the second half mirrors the first, so a twin shows the same frames in reverse.
            at = (2 * torch.arange(PIXELS_FRAMES) + 1) * int(real) // (2 * PIXELS_FRAMES)
            at[PIXELS_FRAMES - PIXELS_FRAMES // 2 :] = int(real) - 1 - at[: PIXELS_FRAMES // 2].flip(0)
            small = F.adaptive_avg_pool2d(clip[at].float() / 255, PIXELS_SIZE)
            vectors.append(small.flatten())
        return torch.stack(vectors)[:, None].expand(-1, pixels.shape[1], -1)


class PixelBaseline(Ridge):
    """Ridge regression on :class:`PixelFeatures`; its strength is chosen on validation."""

    backbone: PixelFeatures

    def __init__(self, captions: list[str]) -> None:
        pictures = PixelFeatures(captions)
        super().__init__(pictures.text_width, pictures.feature_width)
        self.backbone = pictures

    def encode_items(self, batch: Features) -> Features:
        if "frames" not in batch:
            batch = batch | {"frames": self.backbone.clip_features(batch["pixels"], batch["mask"])}
        return super().encode_items(batch)


def check_pixels(method: Method, backbone: BackboneKeys) -> None:
    check_baseline_options(method.options, (), "pixels")
    if backbone.kind == "embeddings":
        raise RewindError("methods.*.model: pixels looks at clips or images, and the dataset consists of vectors.")
    if method.training.freeze:
        raise RewindError(
            f"{FREEZE_KEY}: {', '.join(method.training.freeze)}: pixels has no towers; cached features belong "
            "to other towers, so set freeze: [] for this method."
        )


@MODELS.register("pixels", tags=("no backbone", "no towers", "cosines"), check=check_pixels)
def build_pixels(method: Method, backbone: BackboneKeys, text: TextKeys, train_captions: list[str]) -> PixelBaseline:
    return PixelBaseline(train_captions)
