"""Classify labelled images by prompts with one run's model."""

from rewind.evaluation.zero_shot import compute_zero_shot
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import run_data
from rewind.workflow.launch import run_on_all_gpus

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        run_on_all_gpus(compute_zero_shot, run_data(job), job.input.model, job.output[0], log=job.log)
