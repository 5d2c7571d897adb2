"""Score every test caption against every test item with one run's model."""

from rewind.evaluation.similarity import compute_similarity
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import run_data
from rewind.workflow.launch import run_on_all_gpus

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        run_on_all_gpus(compute_similarity, run_data(job), job.input.model, job.output[0], log=job.log)
