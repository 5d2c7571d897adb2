"""Draw results by group in one setting."""

from pathlib import Path

from rewind.config import Study
from rewind.report.study import make_group_figure
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        study = Study(**job.params.study)
        make_group_figure(study, job.params.setting, job.input.group_results, Path(job.output[0]))
