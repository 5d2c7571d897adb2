"""What happens to a study on a cluster: seen in the queue, disturbed once, and read from accounts and logs."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from rewind.provenance import file_hash
from slurm_cluster import Cluster

WAITED = 15  # seconds that the job of two GPUs is seen waiting before a GPU is freed
COLUMNS = "JobID%6,Comment%44,State%10,Elapsed,Timelimit%10,NodeList%8,AllocTRES%46"


class Watch:
    """Looks at the queue, frees GPUs for the job of two when it has waited, and puts a training run back.

    Args:
        cluster: where it runs.
        folder: its checkout.
        taken: node → the job that holds one of its GPUs.
        state: training state of the run that is put back into the queue.
        say: prints a line.
    """

    def __init__(
        self, cluster: Cluster, folder: Path, taken: dict[str, str], state: Path, say: Callable[[str], None]
    ) -> None:
        self.cluster, self.folder, self.taken, self.state, self.say = cluster, folder, dict(taken), state, say
        self.others = set(taken.values())
        self.waiting_since: float | None = None
        self.waited = 0.0
        self.requeued = ""
        self.began = time.monotonic()

    def look(self) -> None:
        """Once a second."""
        rows = [line.split("|") for line in self.cluster.ask("squeue", "-h", "-o", "%i|%T|%k").splitlines()]
        jobs = {comment: (job, state) for job, state, comment in rows if job not in self.others}
        self._two_gpus(next((state for name, (_, state) in jobs.items() if name.startswith("rule_sanity")), ""))
        self._put_back(jobs)

    def _two_gpus(self, state: str) -> None:
        if not self.taken or not state:
            return
        now = time.monotonic()
        if state == "PENDING":
            self.waiting_since = self.waiting_since or now
            self.waited = now - self.waiting_since
        if self.waited >= WAITED or state != "PENDING":
            used = self.cluster.ask("sinfo", "-h", "-N", "-O", "NodeList:4,GresUsed:20").split()
            self.say(
                f"       the job of two GPUs waits {self.waited:.0f} s, in use: {' '.join(used)}; one node is freed"
            )
            self.cluster.ask("scancel", *self.taken.values())
            self.taken.clear()

    def _put_back(self, jobs: dict[str, tuple[str, str]]) -> None:
        found = next((j for name, j in jobs.items() if name.startswith("rule_train") and "seqLSTM_0" in name), None)
        if self.requeued or found is None or found[1] != "RUNNING" or not self.state.exists():
            return
        time.sleep(3)  # some epochs
        self.requeued = found[0]
        self.cluster.ask("scontrol", "requeue", found[0])
        self.say(f"       job {found[0]} (seqLSTM seed0) is put back into the queue, {self._clock()} after the start")

    def _clock(self) -> str:
        return f"{time.monotonic() - self.began:.0f} s"

    def rows(self) -> list[dict[str, str]]:
        """The accounts of the study's jobs; a job that was put back has a row for each start."""
        names = "JobID,Comment,State,NNodes,NodeList,AllocTRES"
        text = self.cluster.ask("sacct", "-X", "-P", "-S", "now-1days", "--duplicates", "-o", names)
        head, *lines = [line.split("|") for line in text.splitlines()]
        rows = [dict(zip(head, line, strict=True)) for line in lines]
        return [row for row in rows if row["Comment"].startswith(("rule_", "group_"))]

    def table(self) -> str:
        return self.cluster.ask("sacct", "-X", "-S", "now-1days", "--duplicates", "-o", COLUMNS)

    def verdicts(self) -> list[tuple[bool, str]]:
        """What held, and what it says."""
        rows = self.rows()
        ended = [row["Comment"] for row in rows if row["State"] == "TIMEOUT"]
        back = [row for row in rows if row["JobID"] == self.requeued]
        pair = [row for row in rows if row["Comment"].startswith("rule_sanity")]
        where = ", ".join(f"{row['State']} on {row['NodeList']} with {row['AllocTRES']}" for row in pair)
        one = [row for row in pair if row["State"] == "COMPLETED" and row["NNodes"] == "1"]
        return [
            (len({row["JobID"] for row in rows}) > 0, f"{len({row['JobID'] for row in rows})} submissions"),
            (bool(ended), f"hit the wall time: {', '.join(ended) or 'none; a larger --epochs makes the run longer'}"),
            (len(back) > 1 and "REQUEUED" in {r["State"] for r in back}, f"put back: job {self.requeued or 'none'}"),
            (self.waited >= WAITED and len(one) == 1 and "gres/gpu=2" in one[0]["AllocTRES"], f"two GPUs: {where}"),
        ]


def resumed(log: Path) -> list[str]:
    """What a run's log says of resumption."""
    if not log.is_file():
        return []
    return re.findall(r"resumed after epoch \d+(?:, step \d+)?", log.read_text())


def differing(here: Path, there: Path, pattern: str) -> tuple[int, list[str]]:
    """Number of files of a pattern, and those that are not the same bits in both folders."""
    names = {str(p.relative_to(folder)) for folder in (here, there) for p in folder.glob(pattern)}
    same = {n for n in names if all((f / n).is_file() for f in (here, there)) and _bits(here / n) == _bits(there / n)}
    return len(names), sorted(names - same)


def _bits(path: Path) -> str:
    return file_hash(path)
