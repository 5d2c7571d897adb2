"""Write qrels and runs as TREC files."""

from pathlib import Path

from rewind.evaluation.trec import export_trec
from rewind.job_values import files_by_run
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, data = job.params, Path(job.input.item_table).parent
        similarity, folder = files_by_run(job, job.input.similarity), Path(job.output.files)
        export_trec(data, params.dataset, params.settings, params.directions, similarity, folder)
