"""What normalising scores over all test captions adds to every method, with intervals and tests."""

from pathlib import Path

from rewind.config.report import Statistics
from rewind.statistics.order import transductive_table
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import ranks_folder, read_ranks
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import files_by_run, job_runs

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, test = job.params, (Path(job.input.item_table).parent, job.params.dataset)
        ranks = read_ranks(job_runs(job), ranks_folder(job.input.ranks))
        similarity, how = files_by_run(job, job.input.similarity), (dict(params.scales), list(params.normalisations))
        keys, random = Statistics(**params.settings), RandomFactors.of(params.random)
        transductive_table(*test, ranks, similarity, *how, params.setting, keys, random, job.output[0])
