"""Score the first results of another run again, and rank."""

from rewind.evaluation.rerank import compute_reranked
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import pair_scorer, run_data
from rewind.workflow.launch import run_on_all_gpus

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        params, inputs, output = job.params, job.input, job.output
        views = list(params.settings), list(params.directions), params.item_to_text
        what = inputs.model, inputs.first, dict(params.rerank), *views, output.ranks, output.said
        run_on_all_gpus(compute_reranked, run_data(job), *what, pair_scorer(job), log=job.log)
