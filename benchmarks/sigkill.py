"""Kill the demo outright, again and again, and compare its models with those of a run that nobody disturbed.

    python benchmarks/sigkill.py results/demo

The argument is the study's folder of an unbroken run of the same commit. The demo is run in a fresh clone: once in
every stage, while a job of it is at work, and at further random moments, the whole process group gets SIGKILL; then the
same command goes on. At the end every ``model.safetensors`` must have the same bits.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from rewind.provenance import file_hash

ROOT = Path(__file__).resolve().parents[1]
STARTED = re.compile(r"^(?:local)?rule (\w+):")
FINISHED = re.compile(r"^Finished jobid: \d+ \(Rule: (\w+)\)")


class Attempt:
    """One start of the workflow, which is killed or comes to its end."""

    def __init__(self, folder: Path) -> None:
        unlock = [sys.executable, str(folder / "workflow" / "unlock.py")]
        subprocess.run(unlock, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        command = [sys.executable, "-m", "snakemake", "--cores", "all"]
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self.at_work: list[str] = []
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.append(line)
            if found := STARTED.match(line):
                self.at_work.append(found[1])
            elif (found := FINISHED.match(line)) and found[1] in self.at_work:
                self.at_work.remove(found[1])

    def kill(self) -> None:
        """SIGKILL to Snakemake and to all that it started."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def disturb(folder: Path, kills: int, rng: random.Random) -> list[str]:
    """Run to the end with interruptions; says what was killed where."""
    done: list[str] = []
    seen: set[str] = {"all"}
    while True:
        attempt, began = Attempt(folder), time.monotonic()
        moment = rng.uniform(8, 40) if kills else float("inf")
        delay = rng.uniform(0.3, 2.5)
        while attempt.process.poll() is None:
            time.sleep(0.05)
            stage = next((name for name in attempt.at_work if name not in seen), None)
            if stage:
                time.sleep(delay)
                if stage not in attempt.at_work:
                    delay *= 0.6  # it was too quick: sooner, next time
                    continue
                seen.add(stage)
                done.append(f"{stage}, {delay:.1f} s after it began")
                break
            if time.monotonic() - began > moment:
                kills -= 1
                done.append(
                    f"a random moment, {moment:.0f} s after the start, with {attempt.at_work or 'nothing'} at work"
                )
                break
        else:
            if attempt.process.returncode:
                sys.exit("".join(attempt.lines[-60:]) + "\nerror: the workflow failed after these kills: " + str(done))
            return done
        attempt.kill()
        print(f"killed {len(done)}: {done[-1]}", flush=True)


def models(study: Path) -> dict[str, str]:
    """Hash of every model that a study's folder holds."""
    return {str(path.relative_to(study)): file_hash(path) for path in sorted(study.rglob("model.safetensors"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("unbroken", type=Path, help="results/demo of a run that nobody disturbed")
    parser.add_argument("--kills", type=int, default=10, help="random moments, besides one in every stage")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--work", type=Path, help="folder of the clone; a temporary one if left out")
    options = parser.parse_args()
    expected = models(options.unbroken)
    if not expected:
        sys.exit(f"error: {options.unbroken} holds no model; run `make demo` first.")
    folder = Path(options.work or tempfile.mkdtemp(prefix="rewind-")) / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    began = time.monotonic()
    done = disturb(folder, options.kills, random.Random(options.seed))
    found = models(folder / "results" / "demo")
    same = [name for name in expected if found.get(name) == expected[name]]
    print(f"{len(done)} kills, {time.monotonic() - began:.0f} s in all")
    print(f"{len(same)} of {len(expected)} models have the bits of the unbroken run")
    if found != expected:
        sys.exit(
            f"error: these differ: {sorted(expected.keys() - set(same)) or sorted(found.keys() - expected.keys())}"
        )


if __name__ == "__main__":
    main()
