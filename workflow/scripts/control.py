"""Gaps to the verdict's baseline beside those between the methods' counterparts."""

from rewind.config.report import Verdict
from rewind.statistics.rank_files import ranks_folder
from rewind.statistics.study import compute_control
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import job_runs

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, ranks = job.params, ranks_folder(job.input.ranks)
        compute_control(
            job_runs(job), ranks, Verdict(**params.verdict), params.setting, params.confidence, job.output[0]
        )
