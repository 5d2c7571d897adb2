"""Encode captions and pictures of a data set with frozen networks."""

from pathlib import Path

from rewind.encoders.encode_dataset import make_dataset_vectors
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import made_from

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        data, folder = Path(job.input.item_table).parent, Path(job.output.vectors).parent
        workers = job.threads - 1  # one thread is left to the encoder
        make_dataset_vectors(made_from(job), data, folder, workers)
