"""Zero-shot accuracies of all runs, intervals of methods, tests of declared pairs."""

from rewind.config.evaluation import ZeroShot
from rewind.io.files import write_csv
from rewind.statistics.pairs import RandomFactors, accuracy_pairs
from rewind.statistics.zero_shot import join_zero_shot
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import files_by_run, job_pairs

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, output, random = job.params, job.output, RandomFactors.of(job.params.random)
        files, keys = files_by_run(job, job.input), ZeroShot(**params.settings)
        credits = join_zero_shot(files, keys, params.confidence, params.random["fixed"], output.runs, output.intervals)
        write_csv(output.pairs, accuracy_pairs(credits, job_pairs(job), params.confidence, random))
