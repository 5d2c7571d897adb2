"""Captions that are not true of a clip, pairs of clips with a caption each, and what questions presuppose."""

from rewind.data.questions import make_foils
from rewind.video.sources import job_sources_folder
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import job_dataset

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        dataset, output = job_dataset(job), job.output
        sources = job_sources_folder(dataset, job.input)
        make_foils(dataset, output.foils, output.caption_pairs, output.proficiency, sources)
