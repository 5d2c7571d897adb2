"""Cosines of captions and clips of validation and test."""

from rewind.evaluation.cosine_gap import compute_cosines
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import run_data

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        compute_cosines(run_data(job), job.input.model, job.output[0])
