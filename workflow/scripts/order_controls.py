"""Ranks of one run's captions with every clip's frames in another order."""

from rewind.evaluation.order import compute_order_controls
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import run_data
from rewind.workflow.launch import run_on_all_gpus

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        what = job.params.setting, list(job.params.controls), job.output[0]
        run_on_all_gpus(compute_order_controls, run_data(job), job.input.model, *what, log=job.log)
