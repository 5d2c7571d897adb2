"""Which group each test caption is in."""

from rewind.config import Dataset
from rewind.data.groups import make_groups
from rewind.video.sources import job_sources_folder
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        dataset = Dataset(**job.params.dataset)
        make_groups(dataset, job.output[0], job_sources_folder(dataset, job.input))
