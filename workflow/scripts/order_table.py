"""What frames in another order cost every method, with intervals and tests."""

from rewind.config.report import Statistics
from rewind.io.files import write_csv
from rewind.statistics.order import order_table, read_order_ranks
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import ranks_folder, read_ranks
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import job_runs

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, runs = job.params, job_runs(job)
        ranks, controlled = (
            read_ranks(runs, ranks_folder(job.input.ranks)),
            read_order_ranks(runs, job.input.controlled),
        )
        keys, random = Statistics(**params.settings), RandomFactors.of(params.random)
        write_csv(job.output[0], order_table(ranks, controlled, params.setting, keys, random))
