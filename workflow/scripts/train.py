"""Train one run of a study, a trial of its sweep, or its pre-training."""

from pathlib import Path

from rewind.training.run import train_run
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import training_job
from rewind.workflow.launch import run_on_all_gpus

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        output, metrics = job.output, job.output.get("metrics")  # a trial and a pre-training have no table of metrics
        files = Path(output.model), Path(output.history), Path(output.record), Path(metrics) if metrics else None
        run_on_all_gpus(train_run, training_job(job), *files, log=job.log)
