"""Curves of training runs in TensorBoard, Weights & Biases or MLflow: a study's key ``tracking``.

A tracker is a process of its own, which reads what to log from a pipe. Whatever it does – raise, hang, end, draw random
numbers – the run that trains goes on and ends with the same bits. No result of Rewind depends on it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any, Protocol

from rewind.config.study import TrackerName
from rewind.hashing import stable_hash

MAX_POINTS = 5000
"""Steps of a run that are logged at most; of longer ones every second, third, … step is."""
END_SECONDS = 60
"""How long the end of a run waits for its tracker to write, or send, what is left."""


def _file_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.\-]+", "-", name)


# ---- In the process that trains --------------------------------------------------------------------------------------


class Tracker:
    """What a run is logged with (``kind`` None: nothing). Every method returns at once, and none raises.

    ``folder`` is ``results/<study>/tracking``; ``facts`` identify the run and can be written as JSON.
    """

    def __init__(self, kind: TrackerName | None, folder: Path, name: str, facts: Mapping[str, Any]) -> None:
        self.kind, self.name, self.log_file = kind, name, folder / "logs" / f"{_file_name(name)}.log"
        self.every, self._lines = 1, queue.SimpleQueue[str | None]()
        self._process: subprocess.Popen[str] | None = None
        if kind is None:
            return
        try:
            self._process = self._start(kind, folder)
        except OSError as error:
            self._complain(f"cannot be started ({error})")
            return
        threading.Thread(target=self._send, args=(self._process,), daemon=True).start()
        self._put({"facts": dict(facts)})

    def expect(self, steps: int, first: int) -> None:
        """Say how many steps the run has, and where it goes on after a kill: later points of an earlier try go."""
        self.every = max(1, -(-steps // MAX_POINTS))
        self._put({"first": first})

    def log_step(self, step: int, values: Mapping[str, float]) -> None:
        """Log values of a step, counted from 1, unless there are too many of them."""
        if step % self.every == 0:
            self.log(step, values)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log values at a step; what is not a finite number is left out."""
        finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        self._put({"step": step, "values": finite})

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Log what the run ended with, and wait up to :data:`END_SECONDS` until the tracker has written all."""
        process = self._process
        if process is None:
            return
        self._put({"summary": dict(summary)})
        self._lines.put(None)
        try:
            status = process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            self._complain(f"had not ended {END_SECONDS} seconds after the run; what it had not written is lost")
        else:
            if status:
                self._complain("failed")
        self._process = None

    def _start(self, kind: str, folder: Path) -> subprocess.Popen[str]:
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", __spec__.name, kind, str(folder), self.name]
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}  # it must not take memory of the GPU
        with self.log_file.open("a", encoding="utf-8") as log:
            # A session of its own: Ctrl-C ends the run, whose pipe then ends, and with it the tracker.
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )

    def _put(self, message: Mapping[str, Any]) -> None:
        if self._process is not None:
            self._lines.put(json.dumps(message, default=str))

    def _send(self, process: subprocess.Popen[str]) -> None:
        """Write queued lines into the pipe; a thread of its own, because the pipe of a tracker that hangs is full."""
        assert process.stdin is not None
        with contextlib.suppress(OSError, ValueError), process.stdin as stream:  # its end is noticed in finish()
            while (line := self._lines.get()) is not None:
                stream.write(line + "\n")
                stream.flush()

    def _complain(self, what: str) -> None:
        print(
            f"tracking: {self.kind} {what}; the run is not affected. See {self.log_file}", file=sys.stderr, flush=True
        )


NO_TRACKER = Tracker(None, Path(), "", {})


# ---- In the tracker's process ----------------------------------------------------------------------------------------


class Writer(Protocol):
    """A library of curves. Called in this order: ``start`` once, ``write`` often, ``end`` once."""

    def start(self, facts: Mapping[str, Any], first: int) -> None:
        """Begin or go on with a run; points after step ``first`` are written again."""

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write values of a step."""

    def end(self, summary: Mapping[str, Any]) -> None:
        """Write what the run ended with; nothing where it was killed."""


class TensorboardWriter:
    """Event files in ``tensorboard/<run>``; needs the package tensorboard."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / "tensorboard" / _file_name(name)

    def start(self, facts: Mapping[str, Any], first: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        if not first:  # curves of an earlier run of this name would be drawn into this one's
            shutil.rmtree(self.folder, ignore_errors=True)
        self.writer = SummaryWriter(str(self.folder), purge_step=first + 1 if first else None, flush_secs=10)
        if not first:
            self.writer.add_text("run", f"```\n{json.dumps(facts, indent=2)}\n```")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def end(self, summary: Mapping[str, Any]) -> None:
        if summary:
            self.writer.add_text("result", f"```\n{json.dumps(summary, indent=2)}\n```")
        self.writer.close()


class WandbWriter:
    """A run in the project ``WANDB_PROJECT``, or one of the study's name; offline with ``WANDB_MODE=offline``."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name

    def start(self, facts: Mapping[str, Any], first: int) -> None:
        import wandb

        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or str(facts.get("study", "rewind")),
            name=self.name,
            id=_run_id(self.name, facts),
            resume="allow" if first else None,  # None: a new run of this id takes the place of the earlier one
            dir=str(self.folder),
            config=dict(facts),
        )

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def end(self, summary: Mapping[str, Any]) -> None:
        self.run.summary.update(dict(summary))
        self.run.finish(exit_code=0 if summary else 1)


class MlflowWriter:
    """A run at ``MLFLOW_TRACKING_URI``, or in the folder ``mlflow``; needs mlflow or mlflow-skinny."""

    def __init__(self, folder: Path, name: str) -> None:
        self.uri = os.environ.get("MLFLOW_TRACKING_URI") or (folder / "mlflow").absolute().as_uri()
        self.name = name

    def start(self, facts: Mapping[str, Any], first: int) -> None:
        # MLflow calls its store of files outdated, and refuses it without this word; it needs no server or data base.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        from mlflow import MlflowClient

        self.client = MlflowClient(self.uri)
        experiment, identity = self._experiment(str(facts.get("study", "rewind"))), _run_id(self.name, facts)
        earlier = self.client.search_runs([experiment], f"tags.rewind_id = '{identity}'") if first else []
        if earlier:
            self.run_id = earlier[0].info.run_id
            self.client.update_run(self.run_id, status="RUNNING")
        else:
            tags = {"rewind_id": identity}
            self.run_id = self.client.create_run(experiment, tags=tags, run_name=self.name).info.run_id
            self.client.log_dict(self.run_id, dict(facts), "run.json")

    def _experiment(self, name: str) -> str:
        with contextlib.suppress(Exception):  # it exists, or another run creates it at this moment
            return str(self.client.create_experiment(name))
        return str(self.client.get_experiment_by_name(name).experiment_id)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        # It takes no `@` in names: R@1 becomes R_at_1.
        named = {name.replace("@", "_at_"): value for name, value in values.items()}
        now = int(time.time() * 1000)
        self.client.log_batch(self.run_id, [Metric(name, value, now, step) for name, value in named.items()])

    def end(self, summary: Mapping[str, Any]) -> None:
        if summary:
            self.client.log_dict(self.run_id, dict(summary), "result.json")
        self.client.set_terminated(self.run_id, "FINISHED" if summary else "KILLED")


WRITERS: Mapping[str, Callable[[Path, str], Writer]] = {
    "tensorboard": TensorboardWriter,
    "wandb": WandbWriter,
    "mlflow": MlflowWriter,
}


def _run_id(name: str, facts: Mapping[str, Any]) -> str:
    """The same for the same run of a study with the same keys, code and data, also after a kill."""
    return stable_hash(name, facts.get("study"), facts.get("fingerprint"))[:16]


def write_messages(lines: Iterable[str], writer: Writer) -> None:
    """Write what a :class:`Tracker` sends, one JSON object a line, until the run's summary, or its death."""
    facts: dict[str, Any] = {}
    started = False
    for line in lines:
        message = json.loads(line)
        facts = message.get("facts", facts)
        if "first" in message:
            writer.start(facts, message["first"])
            started = True
        if "values" in message:
            writer.write(message["step"], message["values"])
        if "summary" in message:
            # The pipe itself may stay open: processes that load data have inherited it.
            if started:
                writer.end(message["summary"])
            return
    if started:
        writer.end({})


def main(arguments: list[str], lines: IO[str]) -> None:
    """``python -m rewind.training.tracking KIND FOLDER NAME``, the tracker's process."""
    kind, folder, name = arguments
    write_messages(lines, WRITERS[kind](Path(folder), name))


if __name__ == "__main__":
    main(sys.argv[1:], sys.stdin)
