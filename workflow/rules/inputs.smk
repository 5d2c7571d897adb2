"""Input files and parameter slices of rules: what a job reads, and exactly the keys it depends on."""


def captions_of(name, *splits):
    folder = data_folder(name)
    return {split: f"{folder}/captions/{STUDIES[name].dataset}_{split}.csv" for split in splits}


def uses_features(name, method):
    """Whether a method's visual tower is frozen, so that its features are computed once."""
    return "visual" in STUDIES[name].methods[method].training.freeze


def per_run(name, pattern):
    """A path for every (method, seed) of a study."""
    return [pattern.format(study=name, method=m, seed=s) for m, s in STUDIES[name].runs()]


def targets(name):
    """What `all` asks of a study: its tables and its pictures."""
    folder = f"results/{name}"
    return [f"{folder}/tables", f"{folder}/figures/intervals.png", f"{folder}/figures/examples.png"]


def source_files(wildcards):
    """What annotations are read from: made here, or the user's own files."""
    chosen = dataset(wildcards)
    if chosen.made_here:
        return [f"results/data/{chosen.name}/source/ready.json"]
    return annotation_files(chosen)


def sanity_method(name):
    chosen = STUDIES[name].sanity
    return (chosen and chosen.method) or STUDIES[name].trained()[0]


def sanity_spec(name):
    keys = STUDIES[name].sanity.training
    if STUDIES[name].pretraining:
        keys = keys.model_copy(update={"freeze": []})
    return STUDIES[name].run_spec(sanity_method(name), keys).model_dump(mode="json")


def weights_of(name):
    """The backbone's weights file; one that is not there is told before the first job, where a job needs it."""
    try:
        return check_weights(STUDIES[name])
    except RewindError as error:
        raise WorkflowError(str(error)) from None


def pretrained_of(name):
    return f"results/{name}/pretrained/model.safetensors" if STUDIES[name].pretraining else []


def frame_candidates(name):
    """Values of max_frames that a study may end up with."""
    chosen = STUDIES[name]
    return chosen.sweep.max_frames if chosen.sweep else [chosen.frames.max_frames]


def feature_files(name, method, frames=None):
    """Caches for a frozen visual tower: of one number of frames, or of all that the sweep may choose."""
    if not uses_features(name, method):
        return []
    return [
        f"results/{name}/features/frames{n}.npz" for n in ([frames] if frames else frame_candidates(name))
    ]


def sanity_features(name):
    """The over-fitting check reads clips, except where the towers are frozen for good and have no pre-training."""
    method = sanity_method(name)
    return [] if STUDIES[name].pretraining else feature_files(name, method, STUDIES[name].frames.max_frames)


def run_inputs(name, method, frames=None):
    """Files that a run learns from; without a number of frames it reads the sweep's choice."""
    files = {"item_table": f"{data_folder(name)}/items.csv", **captions_of(name, "train", "valid")}
    files["features"] = feature_files(name, method, frames)
    if not frames:
        files["best"] = f"results/{name}/sweep/best.json"
    files["weights"] = weights_of(name)
    if STUDIES[name].sanity:
        files["sanity"] = f"results/{name}/sanity.json"
    if STUDIES[name].pretraining:
        files["pretrained"] = pretrained_of(name)
    return files


def gpus_of(name, method):
    """GPUs of a job; closed-form baselines need none."""
    chosen = STUDIES[name]
    return 0 if chosen.methods[method].model in BASELINES else chosen.resources.gpus


def pretraining_spec(name):
    keys = STUDIES[name].pretraining
    method = keys.method.model_copy(update={"training": keys.training})
    chosen = STUDIES[name]
    return {
        **{
            k: getattr(chosen, k).model_dump(mode="json")
            for k in ("backbone", "frames", "text", "evaluation")
        },
        "method": method.model_dump(mode="json"),
    }


def features_spec(name):
    """What the features of a frozen tower depend on: no method, no training key."""
    keys = ("backbone", "frames", "text")
    return {key: getattr(STUDIES[name], key).model_dump(mode="json") for key in keys}


def evaluation_spec(name, method):
    """What a similarity matrix depends on besides the model: not how it was trained."""
    spec = STUDIES[name].run_spec(method).model_dump(mode="json")
    spec["method"] = {k: spec["method"][k] for k in ("model", "head", "head_layers", "head_start", "options")}
    spec["evaluation"] = {k: spec["evaluation"][k] for k in ("batch_size", "pair_batch_size")}
    return spec


def report_inputs(name):
    folder = f"results/{name}"
    files = {
        "metrics": f"{folder}/metrics.csv",
        "intervals": f"{folder}/statistics/intervals.csv",
        "pairs": f"{folder}/statistics/pairs.csv",
        "best": f"{folder}/sweep/best.json",
        "videos": f"{data_folder(name)}/videos/report.csv",
    }
    if STUDIES[name].pretraining:
        files["pretraining"] = f"{folder}/pretrained/run.json"
    return files


def example_run(name):
    chosen = STUDIES[name].figures.method or STUDIES[name].trained()[0]
    seed = dict(reversed(STUDIES[name].runs()))[chosen]
    return f"results/{name}/similarity/{chosen}/seed{seed}.npz"
