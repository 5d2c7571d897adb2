"""Choose max_frames by the validation scores of the trials."""

from rewind.training.sweep import choose_frames
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        choose_frames(list(job.input), job.params.default, job.output.table, job.output.best)
