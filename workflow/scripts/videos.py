"""Join the reports and indexes of all shards."""

from rewind.video.dataset import join_reports
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params = job.params
        join_reports(list(job.input.reports), params.max_missing, params.how_to_get, params.kind, job.output.report)
