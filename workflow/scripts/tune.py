"""Choose a method's keys by the validation scores of its trials."""

from rewind.training.sweep import choose_keys
from rewind.workflow.job import start_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        trials, metric = dict(job.params.trials), job.params.metric
        choose_keys(list(job.input), trials, metric, job.output.table, job.output.choice)
