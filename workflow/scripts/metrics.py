"""Join the metrics of all runs."""

from rewind.evaluation.run_metrics import join_metrics
from rewind.job_values import files_by_run
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        join_metrics(files_by_run(job, job.input.said), job.params.settings, job.output.table)
