"""Encode test captions and items with a model that studies name."""

from pathlib import Path

from rewind.config.encoders import Encoding
from rewind.encoders.encode_vectors import make_test_vectors
from rewind.workflow.job import start_job
from rewind.workflow.launch import run_on_all_gpus

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params = job.params
        keys = Encoding(**params.encoding, batch_size=job.execution["batch_size"])
        data, folder = Path(job.input.item_table).parent, Path(job.output.record).parent
        work = (make_test_vectors, keys, data, params.dataset, folder, params.code, job.threads)
        run_on_all_gpus(*work, log=job.log)
