"""Make or fetch the source files of a data set that brings its own; or check files of vectors."""

from rewind.config import Dataset
from rewind.video.dataset import make_sources
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        workers = {"workers": job.params.workers}
        dataset = Dataset.model_validate({**job.params.dataset, "video": workers, "image": workers})
        make_sources(dataset, job.params.code, job.output.ready)
