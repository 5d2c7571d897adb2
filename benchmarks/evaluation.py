"""Scoring a test set: features and heads once, beside a double loop that runs the head again for every block.

    python benchmarks/evaluation.py [--queries 2000] [--device cuda]
    python benchmarks/evaluation.py --heads     # each head in a process of its own: seconds and peak memory

Random frame and text features stand for ViT-B/32's (12 frames, width 512). The double loop is how CLIP4Clip evaluates:
for every block of 16 captions and 16 clips it runs the temporal head on the clips of the block. It is timed on a few
rows of blocks and extrapolated, as the table says. tightTransf scores pairs: a part of them is timed and extrapolated.
WTI reads 32 tokens of every caption, X-Pool and the others one vector.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Iterable
from pathlib import Path

import pandas as pd
import torch

from rewind.config.evaluation import Evaluation
from rewind.evaluation.similarity import similarity_matrix
from rewind.io.files import write_csv
from rewind.loading.frame_source import CachedFrames
from rewind.models.backbone import Backbone
from rewind.models.clip4clip import Clip4Clip
from rewind.models.heads import HEADS
from rewind.torch_setup import keep_freed_memory

WIDTH, FRAMES, BLOCK, WORDS = 512, 12, 16, 32
PART = {"tightTransf": 200}  # captions, and clips, of which the rest is extrapolated


class Given(Backbone):
    """Features come as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.width = self.feature_width = WIDTH
        self.logit_scale = torch.nn.Parameter(torch.tensor(4.6))

    def encode_text(self, prepared):
        return prepared

    def encode_words(self, prepared):
        return prepared, torch.ones(prepared.shape[:2], dtype=torch.long, device=prepared.device)


def timed(work, device: torch.device) -> float:
    """Seconds that ``work()`` takes."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


@torch.inference_mode()
def double_loop(model: Clip4Clip, text, frames, mask, rows: int, device: torch.device) -> None:
    """The first ``rows`` rows of blocks, the head run again in every block."""
    text, frames, mask = (value.to(device) for value in (text, frames, mask))
    for top in range(0, rows * BLOCK, BLOCK):
        captions = model.encode_text({"text": text[top : top + BLOCK]})
        for left in range(0, len(frames), BLOCK):
            at = slice(left, left + BLOCK)
            items = model.encode_items({"frames": frames[at], "mask": mask[at]})
            model.similarity(captions, items).cpu()


def measured(job: tuple[str, int, str]) -> tuple[float, int]:
    """Seconds of scoring ``count`` captions and clips with a head, and the process's peak memory in MB."""
    name, count, where = job
    device = torch.device(where)
    torch.manual_seed(0)
    keep_freed_memory()
    model = Clip4Clip(Given(), HEADS.find(name)(WIDTH, layers=4, positions=77)).to(device).eval()
    text = torch.randn(count, *([WORDS] if model.head.reads_words else []), WIDTH)
    inputs = CachedFrames(
        torch.randn(count, FRAMES, WIDTH).numpy(), torch.ones(count, FRAMES, dtype=torch.uint8).numpy()
    )
    keys = Evaluation(batch_size=64, pair_batch_size=4096)
    seconds = timed(lambda: similarity_matrix(model, text, inputs, keys, device), device)
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def heads(count: int, device: str, names: Iterable[str]) -> pd.DataFrame:
    """A row for each head; each in a process of its own, of which the kernel tells the peak."""
    rows = []
    for name in ["seqTransf", *(name for name in names if name != "seqTransf")]:
        some = min(count, PART.get(name, count))
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, peak = pool.apply(measured, ((name, some, device),))
        place = {"head": name, "device": device, "pairs": count**2, "scored": some**2}
        rows.append(place | {"seconds": seconds * (count / some) ** 2, "mb": peak})
        print(f"{name}: {seconds:.1f} s, {peak:,} MB", flush=True)
    return pd.DataFrame(rows)


def published(table: pd.DataFrame) -> dict[str, str]:
    """What documents print of ``--heads`` (``python tools/publish evaluation``): a table in Markdown."""
    lines = ["| head | seconds | beside seqTransf | peak memory | scored |", "|---|---|---|---|---|"]
    base = float(table.set_index("head").loc["seqTransf", "seconds"])
    for row in table.itertuples():
        part = (
            "all pairs"
            if row.scored == row.pairs
            else f"{row.scored / row.pairs:.0%} of the pairs; seconds extrapolated"
        )
        cells = [row.head, f"{row.seconds:,.1f}", f"{row.seconds / base:,.1f}×", f"{row.mb:,} MB", part]
        lines.append("| " + " | ".join(cells) + " |")
    return {"heads": "\n".join(lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=2000, help="captions, and as many clips")
    parser.add_argument("--pairs", type=int, default=200, help="captions, and clips, of tightTransf's part")
    parser.add_argument("--rows", type=int, default=2, help="rows of blocks of the double loop that are timed")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--heads", nargs="*", choices=HEADS.names(), help="measure every head alone, or only these")
    parser.add_argument("--out", type=Path, default=Path("results/evaluation.csv"), help="figures of --heads")
    options = parser.parse_args()
    if options.heads is not None:
        found = heads(options.queries, options.device, options.heads or HEADS.names())
        write_csv(options.out, found)
        print(published(found)["heads"], f"all figures: {options.out}", sep="\n\n")
        return
    device, n = torch.device(options.device), options.queries
    torch.manual_seed(0)
    keep_freed_memory()  # as in every job
    text, frames = torch.randn(n, WIDTH), torch.randn(n, FRAMES, WIDTH)
    mask = torch.ones(n, FRAMES, dtype=torch.uint8)
    keys = Evaluation(batch_size=64, pair_batch_size=4096)
    blocks = -(-n // BLOCK)
    print(f"{n} captions x {n} clips of {FRAMES} frames, {device}, {torch.get_num_threads()} threads")
    print(f"{'head':12} {'once':>10} {'double loop':>14} {'ratio':>8}")
    for name in ("meanP", "seqLSTM", "seqTransf"):
        model = Clip4Clip(Given(), HEADS.find(name)(WIDTH, layers=4, positions=77)).to(device).eval()
        inputs = CachedFrames(frames.numpy(), mask.numpy())
        once = timed(lambda m=model, i=inputs: similarity_matrix(m, text, i, keys, device), device)
        part = timed(lambda m=model: double_loop(m, text, frames, mask, options.rows, device), device)
        loop = part * blocks / options.rows
        print(f"{name:12} {once:8.2f} s {loop:12.1f} s {loop / once:7.0f}x")
    print(f"double loop: {options.rows} of {blocks} rows of blocks timed, the rest extrapolated")
    p = options.pairs
    model = Clip4Clip(Given(), HEADS.find("tightTransf")(WIDTH, layers=4, positions=77)).to(device).eval()
    inputs = CachedFrames(frames[:p].numpy(), mask[:p].numpy())
    part = timed(lambda: similarity_matrix(model, text[:p], inputs, keys, device), device)
    whole = part * n * n / p**2
    print(f"tightTransf, {p} x {p} pairs: {part:.1f} s, {p * p / part:.0f} pairs/s")
    print(f"tightTransf, {n} x {n} pairs, extrapolated: {whole / 60:.0f} min")


if __name__ == "__main__":
    main()
