"""Decode every usable clip once, into the frame store of a study."""

from rewind.video.frame_store import FrameView
from rewind.video.store_frames import make_frame_store
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, view = job.params, FrameView(**job.params.view)
        make_frame_store(job.input.item_table, job.output.index, view, params.frame_code, job.threads)
