"""What jobs ask of the machine: GPUs, minutes and memory."""

from __future__ import annotations

from rewind.workflow import memory
from rewind.workflow.plan.scoring import reranking_encoding, scores_tell
from rewind.workflow.plan.study import StudyPlan

# Minutes, for schedulers, where they depend on the study; fixed ones are in the profiles.
TRAINING_MINUTES, ENCODING_MINUTES, SHORT_MINUTES = 1440, 720, 60


def probing_gpus(plan: StudyPlan, method: str) -> int:
    return 0 if scores_tell(plan, method) else encoding_gpus(plan, method)


def one_gpu(plan: StudyPlan) -> int:
    """GPUs of a job that is one process: one, if the study uses any."""
    return min(1, plan.keys.resources.gpus)


def training_gpus(plan: StudyPlan, method: str) -> int:
    """GPUs that share the batches of a run; what learns nothing by gradient descent needs none."""
    return 0 if plan.method(method).baseline else plan.keys.resources.gpus


def training_minutes(plan: StudyPlan, method: str) -> int:
    return SHORT_MINUTES if plan.method(method).baseline else TRAINING_MINUTES


def blind_gpus(plan: StudyPlan, method: str) -> int:
    """GPUs of a job that encodes frames, unless their features are cached."""
    keys = plan.method(method)
    return 0 if keys.model == "caption_only" or keys.reads_traces or "visual" in keys.training.freeze else one_gpu(plan)


def blind_minutes(plan: StudyPlan, method: str) -> int:
    return ENCODING_MINUTES if blind_gpus(plan, method) else SHORT_MINUTES


def _encodes_nothing(plan: StudyPlan, method: str) -> bool:
    """Chance, word counts and closed forms on vectors."""
    keys = plan.method(method)
    if reranking_encoding(plan, method):
        return False
    return not keys.has_towers or (keys.model == "translator" and keys.baseline)


def sharing_gpus(plan: StudyPlan, method: str) -> int:
    """GPUs of a job that encodes test data in as many processes."""
    return 0 if _encodes_nothing(plan, method) else plan.keys.resources.gpus


def encoding_gpus(plan: StudyPlan, method: str) -> int:
    """GPUs of a job that encodes test data in one process."""
    return min(1, sharing_gpus(plan, method))


def encoding_minutes(plan: StudyPlan, method: str) -> int:
    return SHORT_MINUTES if _encodes_nothing(plan, method) else ENCODING_MINUTES


def model_memory(plan: StudyPlan, attempt: int) -> int:
    """Memory of jobs that run a model, as the study sets it."""
    return attempt * plan.keys.resources.mem_mb


def decoding_memory(plan: StudyPlan, attempt: int) -> int:
    return attempt * (2000 + 500 * plan.keys.frames.workers)


def matrix_memory(plan: StudyPlan, attempt: int) -> int:
    return attempt * memory.matrix_job_mb(plan.dataset.keys, plan.results)


def scoring_memory(plan: StudyPlan, attempt: int) -> int:
    return attempt * memory.scoring_job_mb(plan.dataset.keys, plan.keys, plan.results)


def whole_matrix_memory(plan: StudyPlan, attempt: int) -> int:
    return attempt * memory.whole_matrix_job_mb(plan.dataset.keys, plan.keys, plan.results)


def little_memory(plan: StudyPlan, attempt: int) -> int:
    return attempt * memory.BASE_MB


def ranks_memory(plan: StudyPlan, attempt: int) -> int:
    return attempt * memory.ranks_job_mb(plan.dataset.keys, plan.keys, plan.results)


def page_memory(plan: StudyPlan, attempt: int) -> int:
    """Memory of jobs that read all ranks and every matrix, one after the other."""
    both = memory.ranks_job_mb(plan.dataset.keys, plan.keys, plan.results) - memory.BASE_MB
    return matrix_memory(plan, attempt) + attempt * both
