"""Write submission.csv of Mamiglia's challenge."""

from rewind.evaluation.submission import write_submission
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import run_data

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        write_submission(run_data(job), job.input.model, job.input.npz, job.output[0])
