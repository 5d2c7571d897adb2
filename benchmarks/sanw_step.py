"""What SANW costs per step against InfoNCE, at the shapes of ViT-B/32 with a batch of 256.

    python benchmarks/sanw_step.py [--rounds 40] [--step-rounds 10] [--architecture ViT-B-32-quickgelu]
        [--out results/sanw_step.csv]

First the loss alone: 256 pairs of 512-d unit vectors, forward and backward to the vectors, InfoNCE and SANW's modes in
turn within every round, so that other work on the machine falls on all alike. Then the whole step that a run makes of
256 pairs, with random weights: the demo's tiny CLIP on a CPU, ViT-B/32 in bf16 on a GPU, or what is named. Medians, and
the median ratio to InfoNCE's of the same round; the statistics for metrics.csv are part of every SANW step.
All figures are saved (``--out``), and docs/sanw.md prints them (``python tools/publish sanw_step``).
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

from rewind.config import Backbone, Method, Text
from rewind.io.files import write_csv
from rewind.losses import infonce
from rewind.losses.base import make_loss
from rewind.models.architectures import load_architecture
from rewind.models.clip4clip import build
from rewind.models.retriever import Retriever
from rewind.training.grad_cache import exact_step

BATCH, WIDTH, WORDS = 256, 512, 24
ALONE = "loss alone"
SUBJECTS = ["a dog", "two boats", "a red car", "the sea", "a child", "an old house", "some trees", "a white bird"]
LOSSES = {
    "InfoNCE": infonce.infonce,
    "SANW vanilla": make_loss("sanw", {"mode": "vanilla"}),
    "SANW debias": make_loss("sanw", {"mode": "debias"}),
    "SANW bandpass": make_loss("sanw", {"mode": "bandpass"}),
}


class Vectors(Retriever):
    """Unit vectors that are given, scored as CLIP scores them."""

    def __init__(self) -> None:
        super().__init__()
        self.logit_scale = nn.Parameter(torch.tensor(2.659))

    def similarity(self, text, items):
        return self.logit_scale.exp() * text["text"] @ items["video"].T

    def vectors(self, text, items):
        return text["text"], items["video"]


def loss_alone(objective, device: torch.device):
    """A function that takes one loss and its gradient."""
    torch.manual_seed(0)
    topics = torch.randn(8, WIDTH).repeat(BATCH // 8, 1)  # some pairs are alike
    sides = [F.normalize(topics + torch.randn(BATCH, WIDTH), dim=-1).to(device).requires_grad_() for _ in range(2)]
    model, batch = Vectors().to(device), {"items": torch.arange(BATCH, device=device)}

    def run() -> None:
        loss = objective(model, {"text": sides[0]}, {"video": sides[1]}, batch)
        loss.value.backward()
        {name: float(value) for name, value in loss.logs.items()}

    return run


def whole_step(objective, device: torch.device, model: Retriever, size: int, micro_batch: int | None):
    """A function that takes one exact step of the whole model on images of ``size`` pixels."""
    torch.manual_seed(1)
    draw = torch.randint(len(SUBJECTS), (2, BATCH))
    captions = [f"{SUBJECTS[a]} beside {SUBJECTS[b]}" for a, b in draw.T.tolist()]
    batch = {
        "text": model.backbone.prepare_text(captions),
        "pixels": torch.randint(0, 256, (BATCH, 1, 3, size, size), dtype=torch.uint8),
        "mask": torch.ones(BATCH, 1, dtype=torch.uint8),
        "items": torch.arange(BATCH),
    }
    batch = {name: value.to(device) for name, value in batch.items()}
    precision = "bf16" if device.type == "cuda" else "fp32"
    return lambda: exact_step(model, objective, batch, micro_batch, precision=precision)


def measured(steps: dict, rounds: int, device: torch.device) -> pd.DataFrame:
    """Median of each, taken in turn; one round warms up. On a CPU it is the time that this process had the CPU."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    taken: dict[str, list[float]] = {name: [] for name in steps}
    for n in range(rounds + 1):
        for name, step in steps.items():
            began = clock()
            step()
            if device.type == "cuda":
                torch.cuda.synchronize()
            if n:
                taken[name].append(clock() - began)
    base = taken["InfoNCE"]
    rows = [
        {
            "loss": name,
            "milliseconds": 1000 * statistics.median(values),
            "ratio": statistics.median(a / b for a, b in zip(values, base, strict=True)),
        }
        for name, values in taken.items()
    ]
    return pd.DataFrame(rows)


def published(table: pd.DataFrame) -> dict[str, str]:
    """What documents print of the figures: milliseconds of a loss alone, and what SANW's modes cost in a whole step."""
    alone = table[table["part"] == ALONE].set_index("loss")["milliseconds"]
    found = {f"alone-{name.split()[-1].lower()}": f"{value:.1f}" for name, value in alone.items()}
    whole = table[table["part"] != ALONE].set_index("loss")
    if len(whole):
        ratios = whole["ratio"].drop("InfoNCE")
        ends = [f"{ratio:.2f}" for ratio in (ratios.min(), ratios.max())]
        found["step"] = f"{whole.loc['InfoNCE', 'milliseconds']:.0f}"
        found["step-ratio"] = " to ".join(dict.fromkeys(ends))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40, help="of the loss alone")
    parser.add_argument("--step-rounds", type=int, default=10, help="of the whole step; 0: none")
    parser.add_argument("--micro-batch", type=int, default=None, help="rows encoded at once; all if empty")
    parser.add_argument("--architecture", default=None, help="open_clip's name or a JSON file")
    parser.add_argument("--out", type=Path, default=Path("results/sanw_step.csv"), help="figures")
    given = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = given.architecture or ("ViT-B-32-quickgelu" if device.type == "cuda" else "config/models/tiny.json")
    print(f"{device}, {torch.get_num_threads()} threads, batch {BATCH}")
    alone = {name: loss_alone(loss, device) for name, loss in LOSSES.items()}
    found = [measured(alone, given.rounds, device).assign(part=ALONE)]
    if given.step_rounds:
        torch.manual_seed(0)
        size, words = load_architecture(name)["vision_cfg"]["image_size"], Text(tokenizer="words", max_words=WORDS)
        model = build(Method(), Backbone(architecture=name), words, SUBJECTS).to(device).train()
        steps = {n: whole_step(loss, device, model, size, given.micro_batch) for n, loss in LOSSES.items()}
        found.append(measured(steps, given.step_rounds, device).assign(part=f"whole step of {name}"))
    table = pd.concat(found, ignore_index=True)
    write_csv(given.out, table)
    print(table.to_string(index=False), f"all figures: {given.out}", sep="\n\n")


if __name__ == "__main__":
    main()
