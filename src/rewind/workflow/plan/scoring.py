"""What runs read and depend on behind training: scores, re-ranking, probes, and runs that learn nothing."""

from __future__ import annotations

from typing import Any

from rewind.config.encoders import Encoding
from rewind.workflow.plan.files import Files, user_files
from rewind.workflow.plan.items import best_of_run, cached_items
from rewind.workflow.plan.study import StudyPlan
from rewind.workflow.plan.training import known_choice, learning_inputs, precomputed_inputs, train_inputs

BLIND_REASON = "it sees too little to search"


def model_inputs(plan: StudyPlan, method: str, seed: int, *splits: str) -> Files:
    """What a job reads that runs the model of one run over splits."""
    model = {"model": f"{plan.folder}/runs/{method}/seed{seed}/model.safetensors"}
    if plan.method(method).precomputed:
        return precomputed_inputs(plan, method, seed) | model
    return {
        **plan.captions(*splits),
        **cached_items(plan, method, seed),
        "item_table": plan.item_table(),
        "best": best_of_run(plan, method, seed),
        "tuned": known_choice(plan, method, seed),
        **model,
    }


def scored_inputs(plan: StudyPlan, method: str, seed: int) -> Files:
    """What a job reads that runs a model over the test split."""
    return model_inputs(plan, method, seed, "train", "test")


def cosine_inputs(plan: StudyPlan, method: str, seed: int) -> Files:
    return model_inputs(plan, method, seed, "train", "valid", "test")


def rerank_inputs(plan: StudyPlan, method: str, seed: int) -> Files:
    """What a job reads that scores the first results of another run."""
    name, first_seed = plan.keys.first_stage(method, seed)
    files = scored_inputs(plan, method, seed) | {"first": f"{plan.folder}/similarity/{name}/seed{first_seed}.npz"}
    encoding = reranking_encoding(plan, method, seed)
    if encoding is None:
        return files
    # A model by name may score pairs, which its vectors' rule has then left to this job: it opens clips.
    return files | plan.clip_files() | {"local": user_files(encoding.files())}


def reranking_encoding(plan: StudyPlan, method: str, seed: int | None = None) -> Encoding | None:
    """How a model by name encodes, if it scores the first results of another method; without a seed, of its first."""
    keys = plan.method(method)
    return plan.keys.encoding_of(method, seed) if keys.rerank and keys.by_name else None


def reranking_encoder(plan: StudyPlan, method: str, seed: int) -> dict[str, Any] | None:
    encoding = reranking_encoding(plan, method, seed)
    return encoding.content() if encoding else None


def reranking_execution(plan: StudyPlan, method: str, seed: int) -> dict[str, Any]:
    encoding, keys = reranking_encoding(plan, method, seed), plan.run_spec(method, seed).left_out("run")
    return plan.execution() | {"keys": keys} | ({"batch_size": encoding.batch_size} if encoding else {})


def rerank_keys(plan: StudyPlan, method: str) -> dict[str, Any]:
    rerank = plan.method(method).rerank
    assert rerank is not None  # the rule exists only for such methods
    return rerank.fingerprint("scores")


def zero_shot_spec(plan: StudyPlan, method: str) -> dict[str, Any]:
    """What a run's zero-shot accuracy depends on besides the model."""
    assert plan.keys.evaluation.zero_shot
    spec = plan.evaluation_spec(method)
    keys = plan.keys.evaluation.zero_shot.fingerprint("run", exclude={"validation_images"})
    return spec | {"evaluation": spec["evaluation"] | {"zero_shot": keys}}


def probes_of(plan: StudyPlan, method: str) -> list[str]:
    return plan.keys.probes_of(method)


def probe_inputs(plan: StudyPlan, method: str, seed: int) -> Files:
    """What a run's probes read besides its scores: its model and its data, and what the data set asks."""
    probes = plan.keys.probes_of(method)
    if scores_tell(plan, method):
        files: Files = {"item_table": plan.item_table(), **plan.captions("test")}
        files |= {"model": model_inputs(plan, method, seed, "test")["model"], "best": []}
    else:
        files = model_inputs(plan, method, seed, "train", "valid", "test")
    captions = plan.method(method).options.get("captions", "")
    if "foils" in probes and method in plan.keys.encodings():
        files["foil_vectors"] = captions.removesuffix("captions.npz") + "captions_and_foils.npz"
    return files | plan.dataset.question_files(probes)


def scores_tell(plan: StudyPlan, method: str) -> bool:
    """Whether the method's probes read its matrices of scores alone, and no model."""
    return set(plan.keys.probes_of(method)) <= {"pairs", "answers"}


def kind_of_run(plan: StudyPlan, method: str) -> str:
    """Which rules make a run: ``trained``, in three jobs; ``reranked``, in two; ``untrained`` or ``blind``, in one.

    Precomputed vectors and scores, and chance, learn nothing: one short job checks, scores and ranks them.
    """
    keys = plan.method(method)
    if keys.rerank:
        return "reranked"
    if keys.precomputed or keys.model == "chance":
        return "untrained"
    return "blind" if keys.blind else "trained"


def untrained_inputs(plan: StudyPlan, method: str, seed: int) -> Files:
    """What such a job reads: what it is made of, and the test split."""
    files = train_inputs(plan, method, seed) | scored_inputs(plan, method, seed)
    return {name: paths for name, paths in files.items() if name != "model"}


def blind_inputs(plan: StudyPlan, method: str, seed: int) -> Files:
    """What a blind baseline is fitted on, chosen on and scored on; of captions alone no clip is read."""
    files = learning_inputs(plan, method, seed) | plan.captions("train", "valid", "test")
    read = cached_items(plan, method, seed) if plan.method(method).model == "caption_only" else {}
    return {name: paths for name, paths in files.items() if name not in read}


def blind_settings(plan: StudyPlan) -> dict[str, str]:
    """Settings in which blind baselines are not evaluated → the reason."""
    return {setting: BLIND_REASON for setting in plan.keys.evaluation.settings if setting != "binary"}
