"""Time training steps of the verdict's methods, in turn on the same batches."""

from rewind.training.step_time import measure_step_times
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import training_jobs

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        measure_step_times(training_jobs(job), job.params.baseline, job.params.rounds, job.output[0])
