"""Over-fit a tiny subset before real runs start."""

from pathlib import Path

from rewind.config.training import Sanity
from rewind.training.run import sanity_check
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import training_job
from rewind.workflow.launch import run_on_all_gpus

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        keys, result = Sanity(**job.params.settings), Path(job.output[0])
        run_on_all_gpus(sanity_check, training_job(job), keys, result, log=job.log)
