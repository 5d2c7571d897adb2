"""CPU seconds of a study by rule, of jobs' processes and of the programs that they start (ffmpeg); and the wall time.

    python benchmarks/cpu_by_rule.py demo [--cores 2] [--json FILE]

Run it in a fresh checkout: only jobs that run are counted. Snakemake's own time is the row ``snakemake``. Its benchmark
files sample a job now and then and miss what short ones do.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study")
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        said = Path(folder) / "jobs.jsonl"
        said.touch()
        path = os.pathsep.join(filter(None, [str(HERE / "cpu"), os.environ.get("PYTHONPATH", "")]))
        env = os.environ | {"REWIND_CPU_SECONDS": str(said), "PYTHONPATH": path}
        command = [sys.executable, "-m", "snakemake", "--cores", str(options.cores)]
        start = time.monotonic()
        code = subprocess.run([*command, "--config", f"studies=[{options.study}]"], env=env, check=False).returncode
        wall = time.monotonic() - start
        jobs = [json.loads(line) for line in said.read_text(encoding="utf-8").splitlines()]
    if code:
        sys.exit(code)
    whole = resource.getrusage(resource.RUSAGE_CHILDREN)
    rows: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    for job in jobs:
        row = rows[job["rule"]]
        row[0] += 1
        row[1] += job["own"]
        row[2] += job["programs"]
    total = whole.ru_utime + whole.ru_stime
    rows["snakemake"] = [1, total - sum(own + programs for _, own, programs in rows.values()), 0.0]
    print("| rule | jobs | CPU seconds | of them programs |\n|---|---:|---:|---:|")
    for rule, (count, own, programs) in sorted(rows.items(), key=lambda row: -row[1][1] - row[1][2]):
        print(f"| {rule} | {count} | {own + programs:.1f} | {programs:.1f} |")
    print(f"| **all** | {len(jobs)} | **{total:.0f}** | {sum(row[2] for row in rows.values()):.0f} |")
    print(f"\nwall {wall / 60:.1f} minutes, {options.cores} cores")
    if options.json:
        content = {"wall": wall, "cpu": total, "rules": rows, "jobs": jobs}
        options.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
