"""What a device is, and how fast: products of matrices, a training step, reading frames, scoring, the demo."""

from __future__ import annotations

import contextlib
import io
import math
import subprocess
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch.utils.flop_counter import FlopCounterMode

from gpu_check.check import CannotRun, Check, Session, Sizes
from gpu_check.correctness import MadeUpClips, full_float32, has_bf16
from rewind.cli.new import make_working_folder
from rewind.config import Backbone, Frames, Method, Text, Training
from rewind.config.evaluation import Evaluation
from rewind.config.training import Batch
from rewind.data.dummy import DummyItem, SplitSizes, draw_clip, make_dummy_items
from rewind.distributed import SINGLE_PROCESS
from rewind.errors import RewindError
from rewind.evaluation.similarity import similarity_matrix
from rewind.loading.frame_source import CachedFrames, FrameSource, StoredFrames
from rewind.loading.run_data import TrainingData
from rewind.models.backbone import Backbone as Towers
from rewind.models.clip import ClipTowers
from rewind.models.clip4clip import Clip4Clip, build
from rewind.models.heads import make_head
from rewind.models.retriever import Features
from rewind.packaged import checkout_folder, workflow_home
from rewind.platform import nvidia_driver_version, usable_cores
from rewind.processes import run_snakemake
from rewind.torch_setup import seed_everything, synchronise
from rewind.training.loop import training_step
from rewind.training.order import BatchOrder
from rewind.training.step_time import Stepper
from rewind.video.frame_store import FrameView
from rewind.video.store_frames import make_frame_store

TINY = str(workflow_home() / "config/models/tiny.json")
ON_GPU = Sizes(
    matmul=8192,
    architecture="ViT-B-32-quickgelu",
    size=224,
    frames=12,
    words=32,
    clips=(128, 32),
    steps=20,
    warm_up=3,
    memory_clips=2048,
    stored_clips=256,
    scored=2000,
    scoring_seconds=20.0,
    has_goals=True,
)
ON_CPU = Sizes(
    matmul=256,
    architecture=TINY,
    size=32,
    frames=4,
    words=12,
    clips=(8, 4),
    steps=2,
    warm_up=1,
    memory_clips=64,
    stored_clips=8,
    scored=64,
    scoring_seconds=1.0,
    has_goals=False,
)
"""Sizes at which a CPU shows in seconds that the checks run; their figures mean nothing."""

# ---- Clocks --------------------------------------------------------------------------------------------------------


def seconds_each(work: Callable[[], Any], device: torch.device, count: int) -> float:
    """Mean seconds of ``count`` calls: between two events on a GPU, by the clock elsewhere."""
    if device.type != "cuda":
        began = time.perf_counter()
        for _ in range(count):
            work()
        return (time.perf_counter() - began) / count
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        work()
    end.record()
    torch.cuda.synchronize(device)
    return start.elapsed_time(end) / 1000 / count  # it is in milliseconds


# ---- The device, and its peak --------------------------------------------------------------------------------------


def check_device(session: Session) -> Check:
    """Name, memory, driver, CUDA, cuDNN, and whether it computes in bf16 itself."""
    if not session.on_gpu:
        return Check(True, {"threads": torch.get_num_threads()}, "the CPU, which only shows that the checks run")
    properties = torch.cuda.get_device_properties(session.device)
    bf16 = "bf16" if has_bf16(session.device) else "no bf16"
    detail = (
        f"{properties.name}, compute capability {properties.major}.{properties.minor}, driver "
        f"{nvidia_driver_version() or 'unknown'}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
        f"torch {torch.__version__}, {bf16}"
    )
    return Check(True, {"GB": properties.total_memory / 1e9, "GPUs": torch.cuda.device_count()}, detail)


FORMATS = {"fp32": torch.float32, "TF32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
PRODUCT_BOUNDS = {"fp32": 1e-4, "TF32": 1e-2, "bf16": 5e-2, "fp16": 3e-2}
"""Largest error of the product, relative to the standard deviation of its entries. The result itself is rounded to 8
bits in bf16 and to 11 in fp16, and torch lets GPUs add up parts of it in these formats."""


def check_matmul(session: Session) -> Check:
    """TFLOP/s of a product of square matrices in every number format, and whether its first rows are right."""
    n, figures, wrong = session.sizes.matmul, {}, []
    for name, dtype in FORMATS.items():
        if not {"bf16": has_bf16(session.device), "TF32": session.on_gpu}.get(name, True):
            continue
        torch.manual_seed(0)
        left, right = (torch.randn(n, n).to(session.device, dtype) for _ in range(2))
        with full_float32() if name == "fp32" else contextlib.nullcontext():
            product = left @ right
            seconds = seconds_each(partial(torch.matmul, left, right), session.device, session.sizes.steps)
        figures[f"{name} TFLOP/s"] = session.matmul_tflops[name] = 2 * n**3 / seconds / 1e12
        exact = left[:8].cpu().double() @ right.cpu().double()
        error = ((product[:8].cpu().double() - exact).abs().max() / exact.std()).item()
        if not error <= PRODUCT_BOUNDS[name]:
            wrong.append(f"{name}: the product is wrong by {error:.1e} (bound {PRODUCT_BOUNDS[name]:g})")
    return Check(not wrong, figures, "; ".join(wrong) or f"{n} × {n}")


# ---- A training step at full size ----------------------------------------------------------------------------------

GOAL_SHARE_OF_PEAK, GOAL_WAITING = 0.40, 0.05
_ATTENTION = {
    "aten._scaled_dot_product_flash_attention": "flash",
    "aten._scaled_dot_product_efficient_attention": "memory-efficient",
    "aten._scaled_dot_product_cudnn_attention": "cuDNN",
}
"""torch's fused attentions on GPUs by their operation; any other attention consists of plain products."""


def full_model(sizes: Sizes) -> Clip4Clip:
    """CLIP4Clip with meanP and random weights."""
    seed_everything(0)
    return build(
        Method(head="meanP"),
        Backbone(architecture=sizes.architecture),
        Text(tokenizer="words" if sizes.architecture == TINY else "clip", max_words=sizes.words),
        ["a red ring"],
    )


def made_up_data(model: Clip4Clip, inputs: FrameSource, words: int) -> TrainingData:
    """A caption of random tokens for every item, of 10 tokens up to ``words`` (RTime's have 25 on average)."""
    count, draw = len(inputs), torch.Generator().manual_seed(2)
    assert isinstance(model.backbone, ClipTowers)  # of both sizes
    vocabulary = model.backbone.clip.token_embedding.num_embeddings
    lengths = torch.linspace(min(10, words), words, count).long()
    tokens = torch.randint(1, vocabulary - 2, (count, words), generator=draw)
    tokens = tokens.where(torch.arange(words) < lengths[:, None] - 1, 0)
    tokens[torch.arange(count), lengths - 1] = vocabulary - 1  # the end of a caption is CLIP's highest token
    rows = np.arange(count)
    return TrainingData(inputs, tokens, rows, rows, [str(row) for row in rows], [f"caption {row}" for row in rows])


def step_keys(session: Session, clips: int, compiled: bool = False, deterministic: bool = True) -> Training:
    """Keys of the step that is timed: bf16 where the device has it, the whole batch at once."""
    return Training(
        epochs=1000,
        batch=Batch(size=clips),
        precision="bf16" if has_bf16(session.device) else "fp32",
        micro_batch=None,
        compile=compiled,
        deterministic=deterministic,
    )


def restore_blocks(model: torch.nn.Module) -> None:
    """Let CLIP's blocks compute as open_clip has them (see :mod:`rewind.models.autocast`)."""
    for block in model.modules():
        vars(block).pop("forward", None)


def check_step(
    session: Session, compiled: bool = False, deterministic: bool = True, library_blocks: bool = False
) -> Check:
    """Clips and TFLOP a second, share of the measured peak, and peak memory of a step, of the largest batch that fits.

    A step is what the training loop does, from pixels on the device to new weights. Its FLOPs are counted by torch.
    With ``library_blocks`` the towers compute as open_clip has it, and not as :mod:`rewind.models.autocast` says.
    """
    too_large: list[int] = []
    for clips in session.sizes.clips:
        try:
            return _time_step(
                session, clips, step_keys(session, clips, compiled, deterministic), library_blocks, too_large
            )
        except (torch.cuda.OutOfMemoryError, RewindError) as error:
            if compiled and "training.compile" in str(error):
                raise CannotRun(str(error)) from error
            if not isinstance(error.__cause__ or error, torch.cuda.OutOfMemoryError):
                raise
            too_large.append(clips)
        torch.cuda.empty_cache()
    return Check(False, detail=f"out of memory with {too_large[-1]} clips of {session.sizes.frames} frames")


def _time_step(session: Session, clips: int, keys: Training, library_blocks: bool, too_large: list[int]) -> Check:
    sizes, device = session.sizes, session.device
    flops, attention = _count_flops(session, keys, clips)
    model = full_model(sizes)
    if library_blocks:
        restore_blocks(model)
    seed_everything(0, keys.deterministic)
    data = made_up_data(model, MadeUpClips(clips, sizes.frames, sizes.size), sizes.words)
    batch = {name: value.to(device) for name, value in data.batch(np.arange(clips)).items()}
    began = time.perf_counter()
    stepper = Stepper(model, data, keys, device)
    losses = [training_step(stepper, batch, keys).value for _ in range(sizes.warm_up)]
    synchronise(device)
    figures = {"seconds to start": time.perf_counter() - began} if keys.compile else {}
    if session.on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    seconds = seconds_each(lambda: losses.append(training_step(stepper, batch, keys).value), device, sizes.steps)
    figures |= {"clips": clips, "s/step": seconds, "clips/s": clips / seconds}
    if session.on_gpu:
        figures["peak GB"] = torch.cuda.max_memory_allocated(device) / 1e9
    figures |= {"TFLOP": flops / 1e12, "TFLOP/s": flops / seconds / 1e12}
    missed = []
    if peak := session.matmul_tflops.get(keys.precision):
        figures["% of peak"] = 100 * figures["TFLOP/s"] / peak
        if sizes.has_goals and figures["% of peak"] < 100 * GOAL_SHARE_OF_PEAK:
            missed = [f"{figures['% of peak']:.0f}% of the measured peak; the goal is {GOAL_SHARE_OF_PEAK:.0%}"]
    said = [
        keys.precision,
        *([attention] if session.on_gpu else []),
        *(f"{count} clips do not fit" for count in too_large),
    ]
    finite = all(map(math.isfinite, losses))
    return Check(finite, figures, "; ".join(said if finite else ["a loss is not finite", *said]), tuple(missed))


def _count_flops(session: Session, keys: Training, clips: int) -> tuple[float, str]:
    """FLOPs of a step of this many clips, forward and backward, and torch's attention that ran.

    They are counted in a step of a few clips, with which they grow (but for the loss's matrix, which is small).
    """
    sizes, few = session.sizes, min(4, clips)
    model = full_model(sizes)
    data = made_up_data(model, MadeUpClips(few, sizes.frames, sizes.size), sizes.words)
    stepper = Stepper(model, data, keys.model_copy(update={"compile": False}), session.device)
    with FlopCounterMode(display=False) as counter:
        training_step(stepper, data.batch(np.arange(few)), keys)
    names = {str(operation) for operation in counter.get_flop_counts()["Global"]}
    used = [word for operation, word in _ATTENTION.items() if operation in names]
    return counter.get_total_flops() * clips / few, f"attention: {', '.join(used) or 'plain'}"


# ---- Whether the device waits for frames ---------------------------------------------------------------------------


def check_waiting(session: Session) -> Check:
    """Steps fed from a frame store of drawn clips, compared with steps on one batch that stays on the device."""
    sizes = session.sizes
    frames = Frames(size=sizes.size, max_frames=sizes.frames, workers=min(4, usable_cores()))
    began = time.perf_counter()
    items = _draw_clips(session.folder / "waiting", sizes)
    drawn = time.perf_counter()
    index, view = session.folder / "waiting/store/index.json", FrameView.of(frames, sizes.frames)
    with contextlib.redirect_stdout(io.StringIO()):
        make_frame_store(str(session.folder / "waiting/items.csv"), str(index), view, "gpu check", usable_cores())
    figures = {"clips decoded/s": len(items) / (time.perf_counter() - drawn), "seconds to draw": drawn - began}
    for clips in (size for size in sizes.clips if size <= len(items)):
        try:
            return _time_fed_steps(session, clips, StoredFrames(items, index, frames, sizes.frames), figures)
        except (torch.cuda.OutOfMemoryError, RewindError) as error:
            if not isinstance(error.__cause__ or error, torch.cuda.OutOfMemoryError):
                raise
        torch.cuda.empty_cache()
    raise CannotRun(f"out of memory with {sizes.clips[-1]} clips")


def _time_fed_steps(session: Session, clips: int, inputs: FrameSource, figures: dict[str, float]) -> Check:
    sizes, device, keys = session.sizes, session.device, step_keys(session, clips)
    model = full_model(sizes)
    data = made_up_data(model, inputs, sizes.words)
    stepper = Stepper(model, data, keys, device)
    resident = {name: value.to(device) for name, value in data.batch(np.arange(clips)).items()}
    for _ in range(sizes.warm_up):
        training_step(stepper, resident, keys)
    own = seconds_each(lambda: training_step(stepper, resident, keys), device, sizes.steps)
    feed = BatchOrder(data, keys, 0, SINGLE_PROCESS).feed(0, workers=4, device=device)
    waited = []

    def fed_step() -> None:
        began = time.perf_counter()
        batch = next(feed)
        waited.append(time.perf_counter() - began)
        training_step(stepper, batch, keys)

    for _ in range(sizes.warm_up):
        fed_step()
    waited.clear()
    # The processor may wait for a batch while the device is still at work, so that the difference counts, not the wait.
    fed = seconds_each(fed_step, device, sizes.steps)
    cast("Generator[Features]", feed).close()  # ends its threads
    share = max(0.0, fed - own) / own
    figures = {
        "clips": clips,
        "s/step": own,
        "s/step fed": fed,
        "s waited": float(np.mean(waited)),
        "% added": 100 * share,
    } | figures
    missed = [f"reading adds {share:.0%} to a step; the goal is less than {GOAL_WAITING:.0%}"]
    pinned = "page-locked memory" if session.on_gpu else "ordinary memory"
    return Check(True, figures, pinned, tuple(missed) if sizes.has_goals and share >= GOAL_WAITING else ())


def _draw_clips(folder: Path, sizes: Sizes) -> pd.DataFrame:
    """Clips of moving shapes and their ``items.csv``."""
    drawn: list[DummyItem] = make_dummy_items(SplitSizes(sizes.stored_clips, 0, 0), captions=1)
    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(lambda item: draw_clip(item, folder / f"{item.name}.mp4", sizes.size, seconds=2.0), drawn))
    names = [item.name for item in drawn]
    items = pd.DataFrame({"item_id": names, "path": [f"{name}.mp4" for name in names]})
    items = items.assign(split="train", cluster_id=items["item_id"], reversed=0, status="ok")
    items.to_csv(folder / "items.csv", index=False)
    return items


# ---- Scoring -------------------------------------------------------------------------------------------------------

WIDTH = 512


class GivenFeatures(Towers):
    """Towers whose features are given: for captions (n, D) or (n, words, D), for frames (n, T, D)."""

    def __init__(self) -> None:
        super().__init__()
        self.width = self.feature_width = WIDTH
        self.logit_scale = torch.nn.Parameter(torch.tensor(4.6))

    def encode_text(self, prepared: torch.Tensor) -> torch.Tensor:
        """As they are."""
        return prepared

    def encode_words(self, prepared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As they are; every word counts."""
        return prepared, torch.ones(prepared.shape[:2], dtype=torch.long, device=prepared.device)

    def encode_frames(self, features: torch.Tensor) -> torch.Tensor:
        """As they are."""
        return features


def check_scoring(session: Session, head: str) -> Check:
    """Seconds for scoring captions against as many clips with a head; what exceeds its time is extrapolated."""
    sizes, device = session.sizes, session.device
    seed_everything(0)
    try:
        model = Clip4Clip(GivenFeatures(), make_head(Method(head=head, head_start="random"), WIDTH))
    except RewindError as error:
        raise CannotRun(str(error)) from error
    model.to(device).eval()
    keys = Evaluation(batch_size=64, pair_batch_size=4096)
    count, part = sizes.scored, max(8, sizes.scored // 10)

    def seconds_of(some: int) -> float:
        text = torch.randn(some, *([sizes.words] if model.head.reads_words else []), WIDTH)
        frames = torch.randn(some, sizes.frames, WIDTH).numpy()
        inputs = CachedFrames(frames, np.ones((some, sizes.frames), np.uint8))
        began = time.perf_counter()
        scores = similarity_matrix(model, text, inputs, keys, device)
        if not np.isfinite(scores).all():
            raise RewindError(f"{head}: a score is not finite.")
        return time.perf_counter() - began

    seconds_of(part // 4)  # kernels are chosen
    guess = seconds_of(part) * (count / part) ** 2
    if guess <= sizes.scoring_seconds or not model.head.pairwise:
        return Check(True, {"seconds": seconds_of(count)}, f"{count:,} × {count:,}, all pairs")
    # As many as fit into half of the time: a pair costs the same anywhere in the matrix.
    some = int(count * math.sqrt(sizes.scoring_seconds / 2 / guess))
    seconds = guess if some <= part else seconds_of(some) * (count / some) ** 2
    some = max(some, part)
    return Check(True, {"seconds": seconds}, f"{count:,} × {count:,}, extrapolated from {some:,} × {some:,}")


# ---- The demo ------------------------------------------------------------------------------------------------------


def check_demo(session: Session) -> Check:
    """The main study on moving shapes, in a new folder; only where it was asked for."""
    if not session.demo:
        command = "make demo" if checkout_folder() else "rewind new FOLDER && cd FOLDER && snakemake --cores all"
        raise CannotRun(f"start it with `{command}`, or give --demo")
    folder, log = session.folder / "demo", session.folder / "demo.log"
    with contextlib.redirect_stdout(io.StringIO()):
        make_working_folder(folder, False)
    with log.open("w", encoding="utf-8") as stream:
        code = run_snakemake(["--cores", "all"], folder, stdout=stream, stderr=subprocess.STDOUT)
    if code:
        lines = log.read_text(encoding="utf-8").strip().splitlines()
        return Check(False, detail=f"exit code {code}: {lines[-1] if lines else 'no message'}")
    records = [*folder.glob("results/demo/runs/*/*/run.json")]
    return Check(bool(records), {"runs": len(records)}, "" if records else "it wrote no run")
