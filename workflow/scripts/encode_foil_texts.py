"""Encode captions that are not true of a clip with a model that studies name."""

from pathlib import Path

from rewind.config.encoders import Encoding
from rewind.encoders.encode_vectors import make_foil_vectors
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        keys = Encoding(**job.params.encoding, batch_size=job.execution["batch_size"])
        make_foil_vectors(keys, *map(Path, (job.input.captions, job.input.foils, job.output[0])))
