"""Join annotations with the video report: items.csv, and the captions of every split."""

from rewind.video.dataset import make_captions
from rewind.video.sources import job_sources_folder
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import job_dataset

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        dataset = job_dataset(job)
        inventory = next(iter(job.input.get("inventory") or []), None)
        sources = job_sources_folder(dataset, job.input)
        make_captions(dataset, job.input.report, job.output.item_table, sources, inventory)
