"""Kill a study outright, again and again, and compare all that it makes with a run that nobody disturbed.

    python benchmarks/sigkill.py --kills 100
    python benchmarks/sigkill.py --kills 12 --unbroken FOLDER     # FOLDER: `unbroken` of an earlier call of this commit

A small study (``sigkill_study.py``) is first run to its end in a fresh clone of the last commit, where its jobs say
which moments they pass (``moments/sitecustomize.py``). In a second clone jobs wait at some of these: at their beginning
and end, just before and just after an output gets its name, between two outputs, after a training state. There the
whole process group gets SIGKILL, and the same command goes on. Three quarters of the kills fall so, every stage in
turn; the others at random moments. Whatever a killed job should have made is compared as soon as it is done again, and
all of the results at the end. Bytes must be the same; only clocks in histories, records and the page are left out, and
logs. Nothing may be left over: no draft, no lock, no process, nothing to be done.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from sigkill_compare import Difference, compare, compare_all, left_over
from sigkill_moments import Moment, Target, passed, plan, targets
from sigkill_report import Kill, show
from sigkill_study import TARGETS, Checkout, at_work

PLANNED = 0.75
"""Share of the kills that fall at moments of every stage."""
STARTED = re.compile(r"^(?:local)?(?:rule|checkpoint) (\w+):")
KEY = re.compile(r"^    (output|log|jobid): (.*)")
FINISHED = re.compile(r"^Finished jobid: (\d+) \(Rule: \w+\)")
EARLIEST, LATEST = 2, 25
"""Seconds after its start at which a run is killed at a random moment."""


@dataclass
class Job:
    """A job that Snakemake started."""

    stage: str
    output: list[str] = field(default_factory=list)
    log: str = ""


class Attempt:
    """One start of the workflow, which is killed or comes to its end."""

    def __init__(self, checkout: Checkout) -> None:
        self.process = subprocess.Popen(
            checkout.command(*TARGETS),
            cwd=checkout.folder,
            env=checkout.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.at_work: dict[str, Job] = {}
        self.finished: list[Job] = []
        self.lines: list[str] = []
        atexit.register(self.end)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        job = Job("")
        for line in self.process.stdout:
            self.lines.append(line)
            if found := STARTED.match(line):
                job = Job(found[1])
            elif found := KEY.match(line):
                if found[1] == "jobid":
                    self.at_work[found[2].strip()] = job
                else:
                    setattr(job, found[1], found[2].strip() if found[1] == "log" else found[2].strip().split(", "))
            elif found := FINISHED.match(line):
                self.finished.append(self.at_work.pop(found[1]))

    def kill(self) -> None:
        """SIGKILL to Snakemake and to all that it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()

    def end(self) -> None:
        """The same, if it is at work: nothing goes on behind a benchmark that failed."""
        if self.process.poll() is None:
            self.kill()


class Killing:
    """The run that is killed again and again.

    Args:
        checkout: where it runs.
        expected: results of the unbroken run.
        wanted: moments at which jobs are killed.
        others: how many kills fall at random moments besides.
    """

    def __init__(
        self, checkout: Checkout, expected: Path, wanted: list[Target], others: int, rng: random.Random
    ) -> None:
        self.checkout, self.expected, self.wanted, self.others, self.rng = checkout, expected, wanted, others, rng
        self.kills: list[Kill] = []
        self.differences: list[Difference] = []
        self.survivors: list[str] = []

    def go(self) -> None:
        """Run to the end, with all interruptions."""
        while True:
            self.checkout.unlock()
            chance = self.others / max(1, self.others + len(self.wanted))
            at_random = self.rng.random() < chance
            if self._attempt(at_random):
                return
            last = self.kills[-1]
            print(f"killed {len(self.kills)}: {last.text()}", flush=True)
            self.survivors += at_work(self.checkout.temporary)

    def _attempt(self, at_random: bool) -> bool:
        """One start of the workflow; whether it came to its end."""
        moments = self.checkout.moments
        (moments / "reached.json").unlink(missing_ok=True)
        (moments / "plan.json").write_text(json.dumps({} if at_random else plan(self.wanted)), encoding="utf-8")
        attempt, began = Attempt(self.checkout), time.monotonic()
        moment = self.rng.uniform(EARLIEST, LATEST) if at_random else float("inf")
        while attempt.process.poll() is None:
            time.sleep(0.05)
            self._judge(attempt)
            if (moments / "reached.json").exists():
                self._hit(attempt, Moment(*json.loads((moments / "reached.json").read_text(encoding="utf-8"))))
                return False
            if time.monotonic() - began > moment:
                attempt.kill()
                self._judge(attempt)
                jobs = [(job.stage, job.output[0]) for job in attempt.at_work.values()]
                self.kills.append(Kill("random", f"{moment:.0f} s after the start", jobs))
                self.others -= 1
                return False
        attempt.reader.join()
        self._judge(attempt)
        if attempt.process.returncode:
            sys.exit("".join(attempt.lines[-60:]) + f"\nerror: the workflow failed after {len(self.kills)} kills")
        return True

    def _hit(self, attempt: Attempt, moment: Moment) -> None:
        """Kill a run of which a job waits at a moment, with all other jobs that are at work."""
        attempt.kill()
        self._judge(attempt)
        target = next(target for target in self.wanted if target.moment == moment)
        self.wanted.remove(target)
        beside = [(job.stage, job.output[0]) for job in attempt.at_work.values() if job.output[0] != moment.job]
        self.kills.append(Kill(target.kind, moment.name, [(moment.stage, moment.job), *beside]))

    def _judge(self, attempt: Attempt) -> None:
        """Compare what jobs made that are done since the last look, and note which killed ones are back."""
        while attempt.finished:
            job = attempt.finished.pop(0)
            if not job.output:
                continue  # of the rule all
            found = compare(self.expected, self.checkout.results, job.output)
            self.differences += found
            log = self.checkout.folder / job.log
            resumed = "resumed after" in log.read_text(encoding="utf-8").rpartition("--- this attempt")[2]
            for kill in self.kills:
                kill.back(job.output[0], resumed, not found)
            missed = [target for target in self.wanted if target.moment.job == job.output[0]]
            self.others += len(missed)  # the job went on from where it was, and did not pass there again
            self.wanted = [target for target in self.wanted if target not in missed]


def undisturbed(checkout: Checkout) -> None:
    """Run the study to its end without any kill."""
    began = time.monotonic()
    (checkout.moments / "plan.json").write_text("{}", encoding="utf-8")
    attempt = Attempt(checkout)
    attempt.process.wait()
    attempt.reader.join()
    if attempt.process.returncode:
        sys.exit("".join(attempt.lines[-60:]) + "\nerror: the workflow failed without any kill")
    print(f"unbroken run: {time.monotonic() - began:.0f} s, in {checkout.folder.parent}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100, help="how many in all")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--unbroken", type=Path, help="folder of an unbroken run that an earlier call made")
    parser.add_argument("--work", type=Path, help="folder of the clones; a temporary one if left out")
    options = parser.parse_args()
    work = Path(options.work or tempfile.mkdtemp(prefix="rewind-kills-")).resolve()
    first = Checkout(options.unbroken.resolve()) if options.unbroken else Checkout.new(work / "unbroken")
    checkout = Checkout.new(work / "killed")  # now: the last commit may be another one later
    if first.commit() != checkout.commit():
        sys.exit(f"error: {first.folder} is of another commit; leave out --unbroken.")
    if not options.unbroken:
        undisturbed(first)
    began = time.monotonic()
    wanted = targets(passed(first.moments), round(PLANNED * options.kills))
    killing = Killing(checkout, first.results, wanted, options.kills - len(wanted), random.Random(options.seed))
    killing.go()
    took = time.monotonic() - began
    print(show(killing.kills))
    differences = [*killing.differences, *compare_all(first.results, checkout.results)]
    print(f"\n{len(killing.kills)} kills, {took:.0f} s in all")
    faults = [f"differs: {found}" for found in dict.fromkeys(differences)]
    faults += [f"left over: {path}" for path in left_over(checkout.folder, checkout.temporary)]
    faults += [f"a process outlived its kill: {line}" for line in dict.fromkeys(killing.survivors)]
    faults += [f"never done again: {job}" for kill in killing.kills for job in kill.lost()]
    faults += [f"still to be done: {line}" for line in checkout.stale()]
    if faults:
        sys.exit("\n".join(["error: the end is not that of the unbroken run", *faults]))
    same = sum(not kill.lost() for kill in killing.kills)
    print(f"{len(killing.kills)} kills, {same} identical ends, nothing left over")


if __name__ == "__main__":
    main()
