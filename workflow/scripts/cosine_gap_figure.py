"""Draw densities of cosines of pairs and of non-pairs."""

from pathlib import Path

from rewind.config import Study
from rewind.report.study import make_cosine_gap_figure
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        make_cosine_gap_figure(Study(**job.params.study), job.input.gap_counts, Path(job.output[0]))
