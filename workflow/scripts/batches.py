"""What the training batches contained: a table and a figure."""

from pathlib import Path

from rewind.config import Study
from rewind.report.batches import report_batches
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import files_by_run

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        table, figure = Path(job.output[0]), Path(job.output[1]).with_suffix("")  # also as PDF and SVG
        report_batches(Study(**job.params.study), files_by_run(job, job.input), table, figure)
