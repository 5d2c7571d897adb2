"""Measure sizes and times of methods, one after the other."""

from pathlib import Path

from rewind.analyses.efficiency import write_efficiency
from rewind.evaluation.efficiency import measure_runs
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import measured_runs, run_data

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        costs = measure_runs(measured_runs(job), run_data(job))
        write_efficiency(costs, job.params.title, Path(job.output.files), job.params.prefix)
