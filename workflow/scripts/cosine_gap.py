"""Cosine gaps of all runs, their intervals, tests and counts."""

from pathlib import Path

from rewind.config.report import Statistics
from rewind.statistics.cosine_gaps import compute_cosine_gap
from rewind.statistics.pairs import RandomFactors
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import files_by_run, job_pairs

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, output, data = job.params, job.output, Path(job.input.item_table).parent
        keys, random = Statistics(**params.settings), RandomFactors.of(params.random)
        files, tables = (
            files_by_run(job, job.input.cosines),
            (output.table, output.intervals, output.pairs, output.counts),
        )
        compute_cosine_gap(data, params.dataset, files, job_pairs(job), keys, random, *tables)
