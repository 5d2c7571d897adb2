"""What a query costs, in milliseconds: encoding it, and comparing it with a gallery that is already encoded.

Costs are medians over rounds after a warm-up.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rewind.config import RunSpec
from rewind.loading.encode import encode_all_items
from rewind.loading.frame_source import FrameSource
from rewind.loading.run_data import RunData, load_trained_model
from rewind.loading.text import PreparedText, take_text
from rewind.models.retriever import Features, Retriever
from rewind.torch_setup import synchronise

TOP_RESULTS = 10  # best items that a search returns
WARM_UP_CALLS, MIN_ROUNDS, MIN_SECONDS = 5, 20, 0.5  # of each measurement
ITEM_BATCH = 64


@dataclass(frozen=True)
class QueryCost:
    """Milliseconds per query, medians over rounds."""

    device: str
    batch: int  # queries at once
    gallery: int  # items with which each is compared
    forward: float  # from prepared text to features
    search: float  # from features to the ten best items
    rounds: int  # of `forward`, measured after the warm-up


def model_size(retriever: Retriever) -> tuple[int, float]:
    """Number of parameters, and MiB (2²⁰ bytes) of parameters and buffers in their own dtypes.

    >>> model_size(torch.nn.Linear(1023, 256))  # 1024 · 256 numbers of 4 bytes
    (262144, 1.0)
    """
    parameters = sum(p.numel() for p in retriever.parameters())
    tensors = [*retriever.parameters(), *retriever.buffers()]
    return parameters, sum(t.numel() * t.element_size() for t in tensors) / 2**20


@torch.inference_mode()
def query_costs(
    retriever: Retriever,
    text: PreparedText,
    inputs: FrameSource,
    batches: list[int],
    device: torch.device,
    name: str,
    workers: int = 0,
) -> list[QueryCost]:
    """Measure batches of queries against the whole gallery, encoding and searching separately.

    Captions are repeated if a batch is larger than all of them. No decoding process runs while something is timed.
    """
    retriever.eval().to(device)
    gallery = encode_all_items(retriever.encode_items, inputs, ITEM_BATCH, device, workers=workers)
    costs = []
    for batch in batches:
        captions = take_text(text, torch.arange(batch) % len(text))
        queries = {name: value.to(device) for name, value in captions.items()}
        features = retriever.encode_text(queries)
        forward, rounds = _median_seconds(partial(retriever.encode_text, queries), device)
        search, _ = _median_seconds(partial(_search, retriever, features, gallery), device)
        costs.append(QueryCost(name, batch, len(inputs), 1e3 * forward / batch, 1e3 * search / batch, rounds))
    return costs


def _search(retriever: Retriever, text: Features, gallery: Features) -> Tensor:
    scores = retriever.similarity(text, gallery)
    return scores.topk(min(TOP_RESULTS, scores.shape[1]), dim=1).indices


def _median_seconds(work: Callable[[], object], device: torch.device) -> tuple[float, int]:
    """Median seconds of a call, and the number of measured calls: at least MIN_ROUNDS, for at least MIN_SECONDS."""
    for _ in range(WARM_UP_CALLS):
        work()
    synchronise(device)  # the first round must not wait for kernels of the warm-up
    durations: list[float] = []
    began = time.perf_counter()
    while len(durations) < MIN_ROUNDS or time.perf_counter() - began < MIN_SECONDS:
        start = time.perf_counter()
        work()
        synchronise(device)  # CUDA's kernels run on after the call has returned
        durations.append(time.perf_counter() - start)
    return statistics.median(durations), len(durations)


# ---- Finished runs -------------------------------------------------------------------------------------------------

QUERY_BATCH_SIZES = [1, 512]


class MeasuredRun(NamedTuple):
    """A finished run: its method, name in tables, keys and model file."""

    method: str
    label: str
    spec: RunSpec
    model: str


def measure_runs(runs: list[MeasuredRun], data: RunData) -> list[dict[str, Any]]:
    """What each run costs: rows of ``efficiency.csv``, on the CPU, and on the GPU too where this job has one.

    Runs are measured one after the other, so nothing else should run on the machine. ``data`` are those of any run.
    """
    return [row for run in runs for row in _measure_run(run, data)]


def _measure_run(run: MeasuredRun, data: RunData) -> list[dict[str, Any]]:
    run_data = RunData(data.folder, data.dataset, run.spec, data.max_frames, data.cache)
    retriever = load_trained_model(run_data, run.model)
    split = run_data.split("test", retriever)
    parameters, megabytes = model_size(retriever)
    rows = []
    for device, name in _available_devices():
        for cost in query_costs(
            retriever, split.text, split.inputs, QUERY_BATCH_SIZES, device, name, data.spec.frames.workers
        ):
            timings = asdict(cost)
            timings |= {"forward_ms": timings.pop("forward"), "search_ms": timings.pop("search")}
            run_columns = {"method": run.method, "label": run.label, "parameters": parameters, "mb": megabytes}
            rows.append(run_columns | {"threads": torch.get_num_threads()} | timings)
    return rows


def _available_devices() -> list[tuple[torch.device, str]]:
    devices = [(torch.device("cpu"), "CPU")]
    if torch.cuda.is_available():
        devices.append((torch.device("cuda"), torch.cuda.get_device_name(0)))
    return devices
