"""Order controls: the same model and captions, with every clip's frames in another order, or only one frame.

What R@1 loses when frames are shuffled is how much a run uses their order. Frames are manipulated after they were
chosen and before anything sees two of them: features of a tower that sees each frame by itself are put in another
order, and otherwise the frames themselves.

Comparable controls: one frame against several (Singularity, arXiv 2206.03428; ATP, arXiv 2206.01720).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from rewind.distributed import World, join_process_group
from rewind.errors import RewindError
from rewind.evaluation.ranking import rank_table, setting_without_twins
from rewind.evaluation.similarity import encode_captions, score_items
from rewind.hashing import stable_hash
from rewind.io.files import write_parquet
from rewind.loading.encode import frame_features
from rewind.loading.frame_source import FrameSource
from rewind.loading.run_data import PreparedSplit, RunData, job_device, load_trained_model
from rewind.models.retriever import Features, Retriever


def shown_frames(control: str, count: int, item: str) -> np.ndarray:
    """Positions of the frames that a control shows, of the ``count`` real ones of an item, in the order shown.

    Controls are ``reversed``; ``shuffled``, in an order drawn with the item's id as seed; ``halves``, the second half
    before the first; ``single``, only the middle frame; ``frozen``, the middle frame in place of all.

    >>> [shown_frames(control, 5, "a").tolist() for control in ("reversed", "halves", "single", "frozen")]
    [[4, 3, 2, 1, 0], [2, 3, 4, 0, 1], [2], [2, 2, 2, 2, 2]]
    """
    positions = np.arange(count)
    match control:
        case "reversed":
            return positions[::-1]
        case "shuffled":
            # Not hash(): that of a text differs from one Python process to the next.
            return np.random.default_rng(int(stable_hash("shuffled", item), 16)).permutation(count)
        case "halves":
            return np.roll(positions, -(count // 2))
        case "single":
            return positions[(count - 1) // 2 : (count + 1) // 2]  # a slice, which is empty for no frames
        case "frozen":
            return np.full(count, (count - 1) // 2)
    raise ValueError(f"{control!r} is no order control")


class ReorderedFrames:
    """A frame source whose items show their frames as :func:`shown_frames` states; padding stays at the end.

    Batches of ``inputs`` have ``frames`` (n, T, F) or ``pixels`` (n, T, 3, S, S), and ``mask`` (n, T).
    """

    def __init__(self, inputs: FrameSource, control: str, item_ids: Sequence[str]) -> None:
        self.inputs, self.control, self.item_ids = inputs, control, list(item_ids)
        # The inputs of a user's own model may lack these attributes.
        self.copies, self.twins = getattr(inputs, "copies", False), getattr(inputs, "twins", None)

    def __len__(self) -> int:
        return len(self.inputs)

    def batch(self, rows: np.ndarray) -> Features:
        batch = self.inputs.batch(rows)
        counts = batch["mask"].sum(dim=1).tolist()
        positions = torch.zeros(batch["mask"].shape, dtype=torch.long)
        mask = torch.zeros_like(batch["mask"])
        for at, (row, count) in enumerate(zip(rows.tolist(), counts, strict=True)):
            shown = shown_frames(self.control, int(count), self.item_ids[row])
            positions[at, : len(shown)] = torch.from_numpy(shown.copy())
            mask[at, : len(shown)] = 1
        moved = {name: _taken(batch[name], positions, mask) for name in ("frames", "pixels") if name in batch}
        return batch | moved | {"mask": mask}


def _taken(values: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
    """(n, T, …) with its frames at ``positions`` (n, T); zeros where ``mask`` (n, T) is 0, as in padding."""
    taken = values[torch.arange(len(values))[:, None], positions]
    taken[mask == 0] = 0
    return taken


# ---- One run ---------------------------------------------------------------------------------------------------------


def compute_order_controls(data: RunData, model: str, setting: str, controls: Sequence[str], result: str) -> None:
    """Write the ranks of one run's captions under every control, a Parquet file with the column ``control``.

    Queries and clips are those of the setting ``origin`` or ``test``. Cached features of a tower that sees several
    frames at once are refused: they cannot be put in another order.
    """
    with join_process_group() as world:
        _compute_order_controls(data, model, setting, controls, result, world)


def _compute_order_controls(
    data: RunData, model: str, setting: str, controls: Sequence[str], result: str, world: World
) -> None:
    retriever = load_trained_model(data, model)
    data.check_tower(retriever)
    _check_frames(data, retriever)
    split, keys = data.split("test", retriever), data.spec.evaluation
    captions = encode_captions(retriever, split.text, keys, job_device(), world)
    source = _frame_features(retriever, split, keys.batch_size, world)
    twins = (split.items["reversed"] == 1).any()
    ranked, ids = setting if twins else setting_without_twins(setting), split.items["item_id"].tolist()
    tables = []
    for control in controls:
        inputs = ReorderedFrames(source, control, ids)
        # All items, as in the run's own matrix: batches of other sizes would round differently, and a difference that
        # is 0 by construction would not be 0.
        scores = score_items(retriever, captions, len(split.text), inputs, keys, job_device(), world, split.workers)
        ranks = rank_table(scores, split.captions, split.items, [ranked], ["text_to_item"], model)
        tables.append(ranks.assign(control=control, setting=setting))
    if world.rank == 0:
        write_parquet(result, pd.concat(tables, ignore_index=True))


def _frame_features(retriever: Retriever, split: PreparedSplit, size: int, world: World) -> FrameSource:
    """The split's frames as features, encoded once for all controls, where each frame is encoded by itself."""
    backbone = retriever.backbone
    if backbone is None or retriever.reads_ids or not backbone.sees_single_frames:
        return split.inputs
    return frame_features(backbone, split.inputs, size, job_device(), world, split.workers)


def _check_frames(data: RunData, retriever: Retriever) -> None:
    backbone = retriever.backbone
    cached = data.cache is not None and data.cache.suffix == ".npz"
    if backbone is not None and cached and not backbone.sees_single_frames:
        raise RewindError(
            "evaluation.order: the backbone sees several frames at once, and its features were computed once for all "
            f"runs ({data.cache}): they cannot be put in another order. Remove visual from training.freeze, or the key."
        )
