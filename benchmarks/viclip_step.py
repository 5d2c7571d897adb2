"""One forward and backward pass of ViCLIP on a CPU, random weights: seconds, seconds of CPU, and peak memory.

    python benchmarks/viclip_step.py [--size b] [--batch 4] [--frames 8] [--mask 0 0.9] [--steps 3] [--threads 1]

Pixels of 224 × 224 and captions of 32 tokens to the InfoNCE loss and back into both towers; no optimiser. Every share
of masked patches is a process of its own, so that its peak memory is its own. The first step is not counted. On a busy
machine the seconds of CPU say what the step costs.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import torch

from rewind.data.tokenizers import ClipTokenizer
from rewind.losses.base import make_loss
from rewind.models.dual_encoder import DualEncoder
from rewind.models.viclip import ViClip, load_viclip_architecture
from rewind.training.grad_cache import exact_step


def measure(size: str, batch: int, frames: int, mask: float, steps: int, threads: int) -> dict[str, float]:
    """Median seconds and CPU seconds of a step, and peak memory in MB, of this process."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    sizes = load_viclip_architecture(f"viclip-{size}")
    model = DualEncoder(ViClip(sizes, ClipTokenizer(), 32, token_mask=mask)).train()
    pixels = torch.randint(0, 256, (batch, frames, 3, sizes.vision.image, sizes.vision.image), dtype=torch.uint8)
    text = torch.randint(1, 49406, (batch, 32))
    text[:, -1] = 49407
    given = {"text": text, "items": torch.arange(batch), "pixels": pixels, "mask": torch.ones(batch, frames)}
    before = _peak()
    seconds, busy = [], []
    for _ in range(steps + 1):
        began, used = time.perf_counter(), time.process_time()
        exact_step(model, make_loss("infonce", {"temperature": 0.07}), given)
        seconds.append(time.perf_counter() - began)
        busy.append(time.process_time() - used)
    vision = sum(p.numel() for p in model.backbone.visual_parameters())
    times = {"seconds": statistics.median(seconds[1:]), "cpu": statistics.median(busy[1:])}
    return times | {"peak_mb": _peak(), "before_mb": before, "vision": vision}


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Measure every share of masked patches in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=["b", "l"], default="b")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--frames", type=int, default=8)
    parser.add_argument("--mask", type=float, nargs="+", default=[0.0, 0.9])
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    keys = parser.parse_args()
    if keys.one:
        print(json.dumps(measure(keys.size, keys.batch, keys.frames, keys.mask[0], keys.steps, keys.threads)))
        return
    print(f"ViCLIP-{keys.size.upper()}, {keys.batch} clips of {keys.frames} frames, {keys.threads} thread(s), float32")
    for mask in keys.mask:
        same = [f"--{name}={getattr(keys, name)}" for name in ("size", "batch", "frames", "steps", "threads")]
        done = subprocess.run(
            [sys.executable, __file__, *same, "--mask", str(mask), "--one"], check=True, capture_output=True, text=True
        )
        row = json.loads(done.stdout.splitlines()[-1])
        print(
            f"masked {mask:.0%}: {row['seconds']:.2f} s ({row['cpu']:.2f} s of CPU), peak {row['peak_mb']:,.0f} MB "
            f"({row['before_mb']:,.0f} MB before the first step; vision tower {row['vision'] / 1e6:.1f} M parameters)"
        )


if __name__ == "__main__":
    main()
