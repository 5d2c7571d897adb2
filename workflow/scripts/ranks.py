"""Ranks of every query of one run, and its metrics."""

from pathlib import Path

from rewind.evaluation.run_metrics import compute_ranks
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, data = job.params, Path(job.input.item_table).parent
        views = params.settings, params.directions
        files = job.input.similarity, job.output.ranks, job.output.said
        compute_ranks(data, params.dataset, *views, *files, params.item_to_text)
