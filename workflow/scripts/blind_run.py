"""All of a baseline that sees too little to answer Binary: fit it, score every caption against every item, and rank."""

from pathlib import Path

from rewind.evaluation.run_metrics import compute_ranks, leave_out_settings
from rewind.evaluation.similarity import compute_similarity
from rewind.training.run import fit_blind_run
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import run_data, training_job

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, output, data = job.params, job.output, Path(job.input.item_table).parent
        fit_blind_run(training_job(job), *map(Path, (output.model, output.history, output.record, output.metrics)))
        compute_similarity(run_data(job), output.model, output.similarity)
        views, files = (["binary"], params.directions), (output.similarity, output.ranks, output.said)
        compute_ranks(data, params.dataset, *views, *files, params.item_to_text)
        leave_out_settings(output.said, params.left_out)
