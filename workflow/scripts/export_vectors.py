"""Vectors of test captions and items by one run's model."""

from rewind.evaluation.embedding import write_run_vectors
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import run_data

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        write_run_vectors(run_data(job), job.input.model, job.output[0])
