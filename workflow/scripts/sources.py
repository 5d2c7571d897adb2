"""Make or fetch the source files of a data set that comes with its own; or check files of vectors."""

from rewind.video.dataset import make_sources
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import job_dataset

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        make_sources(job_dataset(job), job.params.code, job.output.ready)
