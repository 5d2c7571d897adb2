"""Captions of Binary with clip and twin, and which of the two each method preferred."""

from pathlib import Path

from rewind.config.report import Figures
from rewind.report.run_pictures import make_twin_picture
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, data = job.params, Path(job.input.item_table).parent
        runs = dict(zip(params.methods, job.input.similarity, strict=True))
        count, path = Figures(**params.figures).examples, Path(job.output[0]).with_suffix("")
        make_twin_picture(data, params.dataset, runs, params.pictured, count, params.size, path)
