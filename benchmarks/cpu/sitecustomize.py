"""Put on the path of every job by ``benchmarks/cpu_by_rule.py``: at its end a job says what CPU time it took."""

import atexit
import json
import os
import resource
import sys


def _say() -> None:
    job = getattr(sys.modules.get("__main__"), "snakemake", None)
    if job is None:  # another process than a job's own
        return
    own, programs = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    line = {"rule": job.rule, "own": own.ru_utime + own.ru_stime, "programs": programs.ru_utime + programs.ru_stime}
    with open(os.environ["REWIND_CPU_SECONDS"], "a", encoding="utf-8") as stream:
        stream.write(json.dumps(line | {"output": str(job.output[0])}) + "\n")


if "REWIND_CPU_SECONDS" in os.environ:
    atexit.register(_say)
