"""Report the items of a data set without clips: of vectors, or of only names."""

from rewind.video.dataset import report_vectors
from rewind.video.sources import job_sources_folder
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import job_dataset

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        dataset = job_dataset(job)
        report_vectors(dataset, job.output[0], job_sources_folder(dataset, job.input))
