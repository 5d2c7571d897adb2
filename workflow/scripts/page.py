"""One page that opens from a disk: tables, figures, and every query to look into."""

from pathlib import Path

from rewind.config import Dataset, Study
from rewind.report.page.build import PageInputs, make_page
from rewind.statistics.rank_files import ranks_folder
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import report_files

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        study, dataset, inputs = Study(**job.params.study), Dataset(**job.params.dataset), job.input
        pictures = [Path(path) for path in inputs.pictures]
        similarity = dict(zip(study.scored_runs(), inputs.similarity, strict=True))
        page_inputs = PageInputs(Path(inputs.tables), pictures, ranks_folder(inputs.ranks), similarity, inputs.sweep)
        data, page = Path(inputs.item_table).parent, Path(job.output.page)
        make_page(study, dataset, report_files(job, study), page_inputs, data, page, Path(job.output.data))
