"""Join the reports and indexes of all shards."""

from rewind.video.dataset import join_reports
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        keys, reports = job.execution["keys"], list(job.input.reports)
        join_reports(reports, keys["max_missing"], keys["how_to_get"], job.params.kind, job.output.report)
