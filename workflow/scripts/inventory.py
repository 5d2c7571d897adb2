"""List every clip or image that the annotations name, and where its source is."""

from rewind.config import Dataset
from rewind.video.dataset import make_inventory
from rewind.video.sources import job_sources_folder
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        dataset = Dataset(**job.params.dataset)
        make_inventory(dataset, job.output[0], job_sources_folder(dataset, job.input))
