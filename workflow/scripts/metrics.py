"""Join the metrics of all runs."""

from rewind.evaluation.run_metrics import join_metrics
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import files_by_run

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        join_metrics(files_by_run(job, job.input.said), job.params.settings, job.output.table)
