"""The deciding metric of every method in every group of captions."""

from pathlib import Path

from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import ranks_folder
from rewind.statistics.study import compute_group_results
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import job_runs

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, data = job.params, Path(job.input.item_table).parent
        ranks, groups, deciding = ranks_folder(job.input.ranks), job.input.groups, dict(params.deciding)
        compared_by = params.confidence, RandomFactors.of(params.random), list(params.compared)
        files = data, params.dataset, groups, deciding
        compute_group_results(job_runs(job), ranks, *files, *compared_by, job.output[0])
