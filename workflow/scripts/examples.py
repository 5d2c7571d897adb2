"""Pictures of one run: what it found, a corner of its similarities, its embedding space."""

from pathlib import Path

from rewind.config.report import Figures
from rewind.report.run_pictures import ShownRun, make_pictures
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, data = job.params, Path(job.input.item_table).parent
        run, keys = ShownRun(params.run, job.input.similarity, job.input.embedding), Figures(**params.figures)
        make_pictures(data, params.dataset, run, params.setting, keys, params.size, Path(job.output[0]).parent)
