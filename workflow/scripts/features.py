"""Frame features of a frozen visual tower, for all runs that start from the same weights."""

from rewind.loading.features import compute_features
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import run_data

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        seed = job.wildcards.get("part", "").removeprefix("/seed")  # a tower without weights is drawn with it
        compute_features(run_data(job), job.output[0], int(seed or 0))
