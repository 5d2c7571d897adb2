"""Normalise one shard of a data set's clips or images, and pack it."""

from pathlib import Path

from rewind.config.dataset import Image, Video
from rewind.video.dataset import make_shard
from rewind.video.sources import unpack_sources
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, shard = job.params, int(job.wildcards["shard"])
        settings = (Image if params.kind == "images" else Video)(**params.media)
        for packed in job.input.get("sources"):
            unpack_sources(Path(packed), Path(packed).with_suffix(""))
        make_shard(job.input.inventory, shard, settings, params.clip_code, job.threads, job.output.report)
