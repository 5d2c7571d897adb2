"""Intervals and ranks of methods, comparisons of declared pairs, gaps between Origin and Hard, tests against chance."""

from rewind.config.report import Statistics
from rewind.job_values import job_pairs, job_runs
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import ranks_folder
from rewind.statistics.study import compute_statistics
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, output, ranks = job.params, job.output, ranks_folder(job.input.ranks)
        keys, random = Statistics(**params.settings), RandomFactors.of(params.random)
        tables = output.intervals, output.pairs, output.gaps, output.places, output.chance
        compute_statistics(job_runs(job), ranks, job_pairs(job), keys, random, *tables, list(params.compared))
