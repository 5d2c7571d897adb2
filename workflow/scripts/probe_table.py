"""What probes measure of every method, with intervals, and differences of the declared pairs."""

from rewind.io.files import write_csv
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.probes import probe_tables, read_probe_values
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import job_pairs, job_runs

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, output = job.params, job.output
        values = read_probe_values(job_runs(job), job.input.probed)
        random = RandomFactors.of(params.random)
        intervals, pairs = probe_tables(values, job_pairs(job), params.confidence, random)
        write_csv(output.intervals, intervals)
        write_csv(output.pairs, pairs)
