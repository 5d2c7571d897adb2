"""Tables of a study with their footnotes, and all of them as plain text, which the console shows."""

import os
from pathlib import Path

from rewind.config import Dataset, Study
from rewind.report.study import make_tables
from rewind.workflow.job import PRINT_TABLES, start_job
from rewind.workflow.job_inputs import report_files
from rewind.workflow.what_ran import record_study

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        study, dataset = Study(**job.params.study), Dataset(**job.params.dataset)
        folder = Path(job.output.tables)
        text = make_tables(study, dataset, report_files(job, study), folder, folder / "summary.txt")
        record_study(job, study, dataset)
        if os.environ.get(PRINT_TABLES) != "no":
            print(text)
