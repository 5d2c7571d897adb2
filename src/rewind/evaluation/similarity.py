"""The similarity matrix of a run: features are encoded once, then all pairs are scored in blocks, on all processes.

The result is (n_captions, n_items), float32 unless the retriever's ``score_dtype`` is another.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from rewind.config.evaluation import Evaluation
from rewind.data.score_matrix import MAX_SCORES_IN_MEMORY, CaptionsCut, write_score_rows, write_scores
from rewind.data.tokenizers import count_truncated
from rewind.distributed import SINGLE_PROCESS, World, join_process_group
from rewind.errors import RewindError
from rewind.loading.encode import distinct_rows, encode_all_items, encode_all_texts
from rewind.loading.frame_source import FrameSource
from rewind.loading.run_data import RunData, job_device, load_trained_model
from rewind.loading.text import PreparedText
from rewind.models.retriever import Features, Retriever
from rewind.progress import Progress


@torch.inference_mode()
def similarity_matrix(
    retriever: Retriever,
    text: PreparedText,
    inputs: FrameSource,
    keys: Evaluation,
    device: torch.device,
    world: World = SINGLE_PROCESS,
    workers: int = 0,
) -> np.ndarray:
    """Scores of every caption against every item, on every process; puts the retriever into evaluation mode.

    Features are computed once per caption and once per item. Pairs are scored in blocks of at most ``pair_batch_size``,
    which bounds the memory of heads that look at pairs; blocks are the same however many processes share them. If GPU
    memory runs out, the error names the key to lower.
    """
    captions = encode_captions(retriever, text, keys, device, world)
    return score_items(retriever, captions, len(text), inputs, keys, device, world, workers)


@torch.inference_mode()
def encode_captions(
    retriever: Retriever, text: PreparedText, keys: Evaluation, device: torch.device, world: World = SINGLE_PROCESS
) -> Features:
    """The captions' part of :func:`similarity_matrix`, for callers that score several sets of items."""
    retriever.eval().to(device)
    with _explain_out_of_memory(f"{keys.batch_size} rows encoded at once", "evaluation.batch_size"):
        return encode_all_texts(retriever.encode_text, text, keys.batch_size, device, world)


@torch.inference_mode()
def score_items(
    retriever: Retriever,
    captions: Features,
    count: int,
    inputs: FrameSource,
    keys: Evaluation,
    device: torch.device,
    world: World = SINGLE_PROCESS,
    workers: int = 0,
) -> np.ndarray:
    """The rest of :func:`similarity_matrix`: items are encoded, and ``count`` encoded captions scored against them."""
    pairs = encode_pairs(retriever, captions, inputs, keys, device, world, workers)
    with explain_pairs(keys):
        return pairs.rows(slice(0, count), world)


def encode_pairs(
    retriever: Retriever,
    captions: Features,
    inputs: FrameSource,
    keys: Evaluation,
    device: torch.device,
    world: World,
    workers: int,
) -> Pairs:
    """Encode the items of :func:`similarity_matrix`; the result scores them against encoded captions."""
    with _explain_out_of_memory(f"{keys.batch_size} rows encoded at once", "evaluation.batch_size"):
        items = encode_all_items(retriever.encode_items, inputs, keys.batch_size, device, world, workers)
    return Pairs(retriever, captions, items, len(inputs), keys.pair_batch_size)


def explain_pairs(keys: Evaluation) -> contextlib.AbstractContextManager[None]:
    """Around scoring: a lack of GPU memory names the key to lower."""
    return _explain_out_of_memory(f"{keys.pair_batch_size:,} pairs scored at once", "evaluation.pair_batch_size")


@contextlib.contextmanager
def _explain_out_of_memory(what: str, key: str) -> Iterator[None]:
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        raise RewindError(f"out of GPU memory with {what}: lower {key} (scores stay the same).") from error


SCORES_PER_PART = 2**25
"""Scores of a large matrix that are in memory when it is written (128 MiB)."""
MAX_COLUMNS_AT_ONCE = 2**13
"""Items that are scored at once: their vectors may be converted for it, see ``PrecomputedEmbeddings``."""


class Pairs:
    """All pairs of encoded captions and ``m`` encoded items, scored in blocks of at most ``most`` pairs.

    Equal features of items are scored once: two items with the same features tie exactly, whereas a matrix product may
    round differently in different columns. All blocks have one number of rows, so that equal captions tie too.
    """

    def __init__(self, retriever: Retriever, captions: Features, items: Features, m: int, most: int) -> None:
        self.retriever, self.captions, self.count = retriever, captions, m
        self.total = len(next(iter(captions.values())))
        distinct, self.group = distinct_rows(items, m)
        if len(distinct) < m:
            items = {name: value[distinct.to(value.device)] for name, value in items.items()}
        self.items, self.distinct = items, len(distinct)
        self.columns = min(self.distinct, most, MAX_COLUMNS_AT_ONCE)
        self.step = max(1, most // self.columns)

    def rows(self, rows: slice, world: World = SINGLE_PROCESS) -> np.ndarray:
        """Scores of some captions, (r, m), on every process; blocks are shared among the processes."""
        scores = torch.zeros(rows.stop - rows.start, self.count, dtype=self.retriever.score_dtype)
        tops = range(rows.start, rows.stop, self.step)
        for block, (left, top) in enumerate(itertools.product(range(0, self.distinct, self.columns), tops)):
            if block % world.size != world.rank:
                continue
            captions = slice(top, min(top + self.step, rows.stop))
            part = self._rows(captions, slice(left, left + self.columns))
            here = slice(captions.start - rows.start, captions.stop - rows.start)
            if self.distinct == self.count:
                scores[here, left : left + self.columns] = part
            else:
                equal = torch.nonzero((self.group >= left) & (self.group < left + self.columns))[:, 0]
                scores[here, equal] = part[:, self.group[equal] - left]
        # Every process has zeros in the blocks of the others, so the sum is exact.
        return world.sum(scores.to(world.device)).cpu().numpy() if world.size > 1 else scores.numpy()

    def parts(self, world: World = SINGLE_PROCESS) -> Iterator[np.ndarray]:
        """Scores of all captions, some rows at a time, for a matrix that memory need not hold.

        Where no two items differ, each part is the one column that stands for all.
        """
        if self.distinct == 1:
            for top in range(0, self.total, self.step):
                yield self._rows(slice(top, min(top + self.step, self.total)), slice(0, 1)).numpy()
            return
        step = max(1, SCORES_PER_PART // self.count)
        if step > self.step:
            # Whole blocks, which begin at the same captions as those of a matrix that is scored at once.
            step -= step % self.step
        for top in range(0, self.total, step):
            yield self.rows(slice(top, min(top + step, self.total)), world)

    def at(self, rows: np.ndarray, columns: np.ndarray, world: World = SINGLE_PROCESS) -> np.ndarray:
        """Scores (p,) of pairs of ``rows`` and ``columns``, on every process: captions are shared among the processes.

        Equal captions are scored once with equal items, as in a whole matrix.
        """
        distinct, text_group = distinct_rows(self.captions, self.total)
        pairs = text_group.numpy()[rows] * self.distinct + self.group.numpy()[columns]
        distinct_pairs, place = np.unique(pairs, return_inverse=True)
        text, items = np.divmod(distinct_pairs, self.distinct)
        ends = np.searchsorted(text, np.arange(len(distinct) + 1))
        scores = torch.zeros(len(distinct_pairs), dtype=self.retriever.score_dtype)
        progress = Progress("scores", len(distinct_pairs), "pairs")
        for number, caption in enumerate(distinct.tolist()):
            if number % world.size != world.rank:
                continue
            for top in range(ends[number], ends[number + 1], self.step * self.columns):
                here = slice(top, min(top + self.step * self.columns, ends[number + 1]))
                scores[here] = self._block(slice(caption, caption + 1), torch.from_numpy(items[here]))[0]
                progress.advance(here.stop - here.start)
        if world.size > 1:
            scores = world.sum(scores.to(world.device)).cpu()
        return scores.numpy()[place]

    def _rows(self, captions: slice, items: slice) -> Tensor:
        """Scores of at most ``step`` captions, from a block of exactly as many: few rows would round otherwise."""
        first = max(0, min(captions.start, self.total - self.step))
        block = self._block(slice(first, first + self.step), items)
        return block[captions.start - first : captions.stop - first]

    def _block(self, captions: slice, items: slice | Tensor) -> Tensor:
        text = {name: value[captions] for name, value in self.captions.items()}
        gallery = {
            name: value[items.to(value.device) if isinstance(items, Tensor) else items]
            for name, value in self.items.items()
        }
        return self.retriever.similarity(text, gallery).to(self.retriever.score_dtype).cpu()


# ---- Similarity matrix of a trained model --------------------------------------------------------------------------


def compute_similarity(data: RunData, model: str, result: str) -> None:
    """Score every test caption against every test item: one matrix serves Origin, Hard and Binary.

    Started by ``torchrun``, its processes share the work, and rank 0 writes the file.
    """
    with join_process_group() as world:
        _compute_similarity(data, model, result, world)


def count_cut(retriever: Retriever, captions: list[str]) -> CaptionsCut | None:
    """How many captions a text tower with a tokenizer of its own cuts; None where that is not known.

    For towers that read captions with the study's own tokenizer (``text``), the tables count them without the model.
    """
    backbone = retriever.backbone
    if backbone is None or backbone.tokenizer is not None or backbone.max_words is None:
        return None
    counts = backbone.token_counts(captions)
    if counts is None:
        return None
    return CaptionsCut(count_truncated(counts, backbone.max_words), len(captions), backbone.max_words)


def _compute_similarity(data: RunData, model: str, result: str, world: World) -> None:
    retriever = load_trained_model(data, model)
    data.check_tower(retriever)
    split = data.split("test", retriever)
    keys = data.spec.evaluation
    ids = split.captions["caption_id"].to_numpy(dtype=str), split.items["item_id"].to_numpy(dtype=str)
    device = job_device()
    cut = count_cut(retriever, split.captions["caption"].tolist()) if world.rank == 0 else None
    with torch.inference_mode():
        captions = encode_captions(retriever, split.text, keys, device, world)
        pairs = encode_pairs(retriever, captions, split.inputs, keys, device, world, split.workers)
        with explain_pairs(keys):
            if len(ids[0]) * len(ids[1]) > MAX_SCORES_IN_MEMORY:
                parts = pairs.parts(world)
                if world.rank == 0:
                    write_score_rows(result, parts, *ids, cut)
                for _ in parts:  # other processes take part in scoring
                    pass
                return
            scores = pairs.rows(slice(0, len(ids[0])), world)
    if world.rank == 0:
        write_scores(result, scores, *ids, captions_cut=cut)
