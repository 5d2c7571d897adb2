"""Which clips are right answers to each test caption, where there are several."""

from rewind.data.questions import make_answers
from rewind.video.sources import job_sources_folder
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import job_dataset

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        dataset = job_dataset(job)
        make_answers(dataset, job.output[0], job_sources_folder(dataset, job.input))
