"""Measure traces of how the clips of a data set were made."""

from pathlib import Path

from rewind.config.dataset import Video
from rewind.video.sources import unpack_sources
from rewind.video.traces import make_traces
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, inputs = job.params, job.input
        for packed in inputs.get("sources"):
            unpack_sources(Path(packed), Path(packed).with_suffix(""))
        folder = Path(job.output[0]).parent
        make_traces(
            inputs.inventory, inputs.report, folder, Video(**params.media), params.code, job.threads, job.output[0]
        )
