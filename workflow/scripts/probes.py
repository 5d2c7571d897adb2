"""What one run knows in addition to its ranks: pairs, several right answers, foils, direction, geometry."""

from rewind.evaluation.probes import ProbedRun, QuestionFiles, compute_probes
from rewind.workflow.job import start_job
from rewind.workflow.job_inputs import run_data

if __name__ == "__main__":
    with start_job(globals().get("snakemake")) as job:
        inputs, params = job.input, job.params
        names = ("answers", "foils", "caption_pairs", "proficiency", "foil_vectors")
        questions = QuestionFiles(**{name: inputs.get(name) or None for name in names})
        run = ProbedRun(run_data(job), inputs.model, inputs.similarity, questions, params.directions)
        compute_probes(run, params.probes, job.output[0])
