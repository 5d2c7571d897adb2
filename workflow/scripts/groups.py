"""Which group each test caption is in."""

from rewind.data.groups import make_groups
from rewind.video.sources import job_sources_folder
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import job_dataset

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        dataset = job_dataset(job)
        make_groups(dataset, job.output[0], job_sources_folder(dataset, job.input), job.input.get("traces"))
