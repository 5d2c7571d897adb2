"""What every method's accuracy in Binary is beyond that of baselines which see too little to answer it."""

from rewind.io.files import write_csv
from rewind.statistics.blind import blind_table
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import ranks_folder, read_not_evaluated, read_ranks
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import job_runs

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, runs, folder = job.params, job_runs(job), ranks_folder(job.input.ranks)
        tables, left_out = read_ranks(runs, folder), read_not_evaluated(runs, folder)
        random = RandomFactors.of(params.random)
        table = blind_table(tables, params.blind, params.compared, params.confidence, random, left_out)
        write_csv(job.output[0], table)
