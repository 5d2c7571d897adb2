"""One training step at real size: ViT-B/32, 224 pixels, 12 frames, random weights; seconds and peak memory.

    python benchmarks/real_step.py [--heads meanP seqTransf] [--clip4clip FOLDER]

On the CPU: a batch of 8 clips (96 frames) with BertAdam on 2 threads, encoded at once and in parts of 2, and, with
`--clip4clip`, CLIP4Clip's own step on the same weights, pixels and captions. On a GPU: a batch of 128 with fused AdamW
in fp32, bf16, and bf16 compiled, then bf16 with activations computed again; the five operations that take longest.

Every variant is a process of its own, so that its peak memory is its own; one step is done by each in turn, so that
other work on the machine falls on all alike. A step is what the training loop does: pixels to logits to loss, backward,
clipping to norm 1, the optimiser, the clamp.

CLIP4Clip's code is not part of this repository:

    git clone https://github.com/ArrowLuo/CLIP4Clip && git -C CLIP4Clip checkout 508ffa3

Its modules for downloads (boto3, botocore, requests) are replaced by empty ones where they are not installed, and its
weights are put into float32 (it has fp16 ones, which a CPU cannot train). It is given pixels that are normalised
already, where Rewind normalises within the step.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path

import torch

from rewind.config import Backbone, Method, Text, Training
from rewind.losses.infonce import infonce
from rewind.models.clip4clip import Clip4Clip, build
from rewind.models.clip4clip_checkpoint import write_clip4clip_state
from rewind.models.heads import HEADS
from rewind.models.retriever import Features
from rewind.training.grad_cache import exact_step
from rewind.training.loop import speed_up
from rewind.training.optim import make_optimiser

ARCHITECTURE, SIZE, FRAMES, WORDS = "ViT-B-32-quickgelu", 224, 12, 32
THREADS = 2
PLAIN = {"precision": "fp32", "compile": False, "gradient_checkpointing": False}
Step = Callable[[], float]


def variants(head: str, clip4clip: Path | None) -> dict[str, dict]:
    """What is measured, by the name in the table."""
    base = PLAIN | {"head": head}
    if torch.cuda.is_available():
        base |= {"batch": 128, "micro_batch": None, "optimiser": "adamw"}
        half = base | {"precision": "bf16"}
        return {
            "fp32": base,
            "bf16": half,
            "bf16, compiled": half | {"compile": True},
            "bf16, activations computed again": half | {"gradient_checkpointing": True},
        }
    base |= {"batch": 8, "optimiser": "bert_adam"}
    found = {f"micro-batch {rows}": base | {"micro_batch": rows} for rows in (8, 2)}
    found["micro-batch 8, activations computed again"] = base | {"micro_batch": 8, "gradient_checkpointing": True}
    return found | ({"CLIP4Clip": base | {"clip4clip": str(clip4clip.resolve())}} if clip4clip else {})


def example(keys: dict) -> tuple[Clip4Clip, Features]:
    """The model with random weights and a batch, the same in every process of one head."""
    torch.manual_seed(0)
    method = Method(head=keys["head"])
    text = Text(tokenizer="clip", max_words=WORDS)
    model = build(method, Backbone(architecture=ARCHITECTURE), text, [])
    rows = keys["batch"]
    # Captions of 10 to 32 tokens; RTime's have 25 on average. All frames are real.
    lengths = torch.linspace(10, WORDS, rows).long()
    tokens = torch.randint(1, 49_000, (rows, WORDS)).where(torch.arange(WORDS) < lengths[:, None] - 1, 0)
    tokens[torch.arange(rows), lengths - 1] = 49_407
    pixels = torch.randint(0, 256, (rows, FRAMES, 3, SIZE, SIZE), dtype=torch.uint8)
    mask = torch.ones(rows, FRAMES, dtype=torch.uint8)
    return model.train(), {"text": tokens, "pixels": pixels, "mask": mask, "items": torch.arange(rows)}


def rewind_step(keys: dict) -> Step:
    model, batch = example(keys)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    batch = {name: value.to(device) for name, value in batch.items()}
    own = ("precision", "compile", "gradient_checkpointing", "optimiser")
    training = Training(**{name: keys[name] for name in own})
    optimiser, _ = make_optimiser(model, training, steps=1000)
    for group in optimiser.param_groups:  # BertAdam's first rate is 0
        group["lr"] = group["initial_lr"]
    speed_up(model, training)

    def step() -> float:
        loss = exact_step(model, infonce, batch, keys["micro_batch"], precision=keys["precision"]).value
        torch.nn.utils.clip_grad_norm_([p for group in optimiser.param_groups for p in group["params"]], 1.0)
        optimiser.step()
        model.clamp()
        return loss

    return step


def clip4clip_step(keys: dict) -> Step:
    """CLIP4Clip's own model, loss and optimiser, as its train_epoch calls them."""
    for name in ("boto3", "botocore", "botocore.exceptions", "requests"):
        try:
            __import__(name)
        except ImportError:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].ClientError = OSError
    sys.path.insert(0, keys["clip4clip"])
    from modules.modeling import CLIP4Clip
    from modules.module_cross import CrossConfig
    from modules.optimization import BertAdam

    ours, batch = example(keys)
    state = upstream_state(ours, keys["head"])
    config = CrossConfig.from_json_file(str(Path(keys["clip4clip"], "modules/cross-base/cross_config.json")))
    task = argparse.Namespace(
        max_words=WORDS,
        max_frames=FRAMES,
        loose_type=keys["head"] != "tightTransf",
        linear_patch="2d",
        sim_header=keys["head"],
        cross_num_hidden_layers=4,
        local_rank=0,
        rank=0,
        world_size=1,
    )
    towers = {name.removeprefix("clip."): value for name, value in state.items() if name.startswith("clip.")}
    model = CLIP4Clip(config, towers, task).float().train()
    model.load_state_dict(state)
    join_alone()
    optimiser = BertAdam(
        model.parameters(), lr=1e-4, warmup=-1, t_total=-1, b2=0.98, weight_decay=0.2, max_grad_norm=1.0
    )
    pixels = ((batch["pixels"] - ours.backbone.mean) / ours.backbone.std)[:, None, :, None]
    tokens, mask = batch["text"], batch["mask"].long()
    words = (torch.arange(tokens.shape[1], device=tokens.device) <= tokens.argmax(dim=1, keepdim=True)).long()
    del ours

    def step() -> float:
        loss = model(tokens, torch.zeros_like(tokens), words, pixels, mask)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        model.clip.logit_scale.data.clamp_(max=4.6052)
        return loss.item()

    return step


def upstream_state(model: Clip4Clip, head: str) -> dict[str, torch.Tensor]:
    """The model's weights under CLIP4Clip's names."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "pytorch_model.bin")
        write_clip4clip_state(model.state_dict(), head, path)
        return torch.load(path, weights_only=True)


def join_alone() -> None:
    """A group of one process, which CLIP4Clip's loss asks for."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)


# --- the processes


def serve(keys: dict) -> None:
    """Do one step for every line read, and answer with its seconds, loss and the peak memory so far."""
    answers = os.fdopen(os.dup(1), "w")
    torch.set_num_threads(THREADS)
    with contextlib.redirect_stdout(sys.stderr):
        step = clip4clip_step(keys) if "clip4clip" in keys else rewind_step(keys)
        for line in sys.stdin:
            answer = profiled(step) if line.strip() == "profile" else timed(step)
            print(json.dumps(answer), file=answers, flush=True)


def timed(step: Step) -> dict:
    began = time.perf_counter()
    loss = step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return {"seconds": time.perf_counter() - began, "loss": loss, "gb": peak_memory()}


def peak_memory() -> float:
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def profiled(step: Step) -> dict:
    with torch.profiler.profile() as profile:
        step()
    key = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    # A kernel's time stands beside the operation that started it, and once more on its own.
    operations = [row for row in profile.key_averages() if row.device_type == torch.autograd.DeviceType.CPU]
    rows = sorted(operations, key=lambda row: getattr(row, key), reverse=True)
    total = sum(getattr(row, key) for row in rows)
    return {"top": [[row.key, getattr(row, key) / total] for row in rows[:5]]}


def measure(found: dict[str, dict], steps: int, profile: bool) -> dict[str, dict]:
    """Seconds of each variant's steps in turn, after one to warm up; memory, loss of the first step, operations."""
    processes = {name: start(keys) for name, keys in found.items()}
    try:
        results = {name: ask(process) | {"all": []} for name, process in processes.items()}
        for _ in range(steps):
            for name, process in processes.items():
                answer = ask(process)
                results[name]["all"].append(answer["seconds"])
                results[name]["gb"] = answer["gb"]
        if profile:
            for name, process in processes.items():
                results[name] |= ask(process, "profile")
        return results
    finally:
        for process in processes.values():
            process.stdin.close()
            process.wait()


def start(keys: dict) -> subprocess.Popen:
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS)}
    command = [sys.executable, __file__, "--serve", json.dumps(keys)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def ask(process: subprocess.Popen, what: str = "step") -> dict:
    process.stdin.write(what + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        sys.exit("A variant's process ended early; what it said stands above.")
    return json.loads(line)


def table(head: str, results: dict[str, dict], batch: int) -> str:
    theirs = results.get("CLIP4Clip")
    lines = [
        f"| {head} | s/step | fastest | clips/s | peak GB | loss of step 1 |"
        + (" time ÷ CLIP4Clip's |" if theirs else "")
    ]
    lines.append("|---|---:|---:|---:|---:|---:|" + ("---:|" if theirs else ""))
    for name, row in results.items():
        seconds = statistics.median(row["all"])
        ratio = f" {seconds / statistics.median(theirs['all']):.2f} |" if theirs else ""
        lines.append(
            f"| {name} | {seconds:.2f} | {min(row['all']):.2f} | {batch / seconds:.1f} | "
            f"{row['gb']:.2f} | {row['loss']:.5f} |{ratio}"
        )
    for name, row in results.items():
        if "top" in row:
            lines.append(f"\n{name}: " + ", ".join(f"{key} {share:.0%}" for key, share in row["top"]))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", nargs="+", choices=HEADS.names())
    parser.add_argument("--steps", type=int, help="timed steps after the one to warm up (CPU 2, GPU 20)")
    parser.add_argument("--clip4clip", type=Path, metavar="FOLDER", help="a checkout of CLIP4Clip (CPU only)")
    parser.add_argument("--profile", action="store_true", help="operations on the CPU too")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(json.loads(given.serve))
        return
    gpu = torch.cuda.is_available()
    for head in given.heads or (HEADS.names() if gpu else ["meanP"]):
        found = variants(head, given.clip4clip)
        # Four models of a GPU's batch do not fit side by side: there every variant runs alone.
        groups = [{name: keys} for name, keys in found.items()] if gpu else [found]
        results = {}
        for group in groups:
            results |= measure(group, given.steps or (20 if gpu else 2), gpu or given.profile)
        print(table(head, results, next(iter(found.values()))["batch"]) + "\n")
    if not given.clip4clip:
        print("CLIP4Clip's own step is left out; --help tells how to get it.")


if __name__ == "__main__":
    main()
