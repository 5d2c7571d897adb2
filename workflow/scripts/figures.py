"""Figures of all runs of a study."""

from pathlib import Path

from rewind.config import Dataset, Study
from rewind.report.study import make_figures
from rewind.statistics.rank_files import ranks_folder
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import report_files, study_files_by_run

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        study, dataset = Study(**job.params.study), Dataset(**job.params.dataset)
        histories, ranks = study_files_by_run(study, job.input.histories), ranks_folder(job.input.ranks)
        make_figures(study, dataset, report_files(job, study), histories, ranks, Path(job.output[0]).parent)
