"""Input files and parameter slices of rules: what a job reads, and exactly the keys it depends on."""

import csv
import functools

from rewind.config import pretraining
from rewind.config.methods import PRECOMPUTED_MODELS, precomputed_files as brought_files
from rewind.data.groups import dataset_has_groups, group_file
from rewind.io.files import read_json
from rewind.report.page.document import assets_hash

PICTURES = ("intervals", "pairs", "gap", "training_curves", "rank_curve", "ranks")
PICTURES_OF_A_RUN = ("examples", "heatmap", "embedding")
DRAWN_OF_A_RUN = ("heatmap", "embedding")  # also as SVG


def captions_of(name, *splits):
    folder = data_folder(name)
    return {split: f"{folder}/captions/{STUDIES[name].dataset}_{split}.csv" for split in splits}


def item_table(wildcards):
    """``items.csv`` of the data set that a study uses."""
    return filled(rules.captions.output.item_table, dataset=study(wildcards).dataset)


def model_inputs(wildcards, *splits):
    """What a job reads that runs the model of one run over splits."""
    name, method, seed = wildcards.study, wildcards.method, wildcards.seed
    model = {"model": filled(rules.train.output.model, study=name, method=method, seed=seed)}
    if is_brought(name, method):
        return brought_inputs(name, method, seed) | model
    return {
        **captions_of(name, *splits),
        **cache_files(name, method, seed),
        "item_table": item_table(wildcards),
        "best": best_of_run(name, method, seed),
        **model,
    }


def is_brought(name, method):
    """Whether a method is files: vectors or scores that the user brings, or that are made by name."""
    return STUDIES[name].methods[method].model in PRECOMPUTED_MODELS


def brought_inputs(name, method, seed):
    """What such a run is made of: no sweep, no pre-training, no over-fitting check comes before it."""
    return {
        "item_table": filled(rules.captions.output.item_table, dataset=STUDIES[name].dataset),
        **captions_of(name, "train", "test"),
        "described": described(name),
        "brought": own(brought_files(STUDIES[name].methods[method], seed)),
    }


def encoding_records(name, paths):
    """The records beside vectors that rules make by name."""
    made = f"{data_folder(name)}/vectors/"
    folders = dict.fromkeys(str(path).rpartition("/")[0] for path in paths if str(path).startswith(made))
    return [f"{folder}/record.json" for folder in folders]


def uses_features(name, method):
    """Whether a method's visual tower is frozen, so that its features are computed once."""
    return "visual" in STUDIES[name].methods[method].training.freeze


def per_run(name, pattern):
    """A path for every (method, seed) of a study."""
    return [filled(pattern, study=name, method=m, seed=s) for m, s in STUDIES[name].runs()]


def rank_files(name):
    """The rank table of every run."""
    return per_run(name, rules.ranks.output.ranks)


def topical_runs(name):
    """Runs (method, seed) whose histories say what their batches were."""
    methods = {m: STUDIES[name].methods[m] for m in STUDIES[name].trained()}
    chosen = [m for m, method in methods.items() if method.training.batch.sampler == "topical"]
    return [(m, seed) for m, seed in STUDIES[name].runs() if m in chosen]


def group_settings(name):
    """Settings of a study whose results are shown by group: all, where captions are in groups."""
    return STUDIES[name].evaluation.settings if in_groups(STUDIES[name].dataset) else []


@functools.cache
def in_groups(name):
    """Whether the captions of a data set are in groups; where it cannot be read, its own readers say why."""
    try:
        return dataset_has_groups(DATASETS[name])
    except (RewindError, OSError, ValueError, csv.Error):
        return False


def group_files(name):
    """The CSV of groups that a data set's file names, if any."""
    return [path for path in [group_file(DATASETS[name])] if path]


def study_pictures(name):
    """Pictures of all runs of a study."""
    return (
        PICTURES
        + ("batches",) * bool(topical_runs(name))
        + tuple(f"groups_{setting}" for setting in group_settings(name))
    )


def page_drawings(name):
    """Pictures of the page as SVG."""
    shown = [f"results/{name}/figures/{picture}.svg" for picture in study_pictures(name) + DRAWN_OF_A_RUN]
    return shown + [path.removesuffix(".png") + ".svg" for path in gap_pictures(name)]


def targets(name):
    """What `all` asks of a study: its tables, its pictures, and the page that holds them."""
    folder = f"results/{name}"
    return [f"{folder}/batches.csv"] * bool(topical_runs(name)) + [
        f"{folder}/tables",
        f"{folder}/figures/intervals.png",
        f"{folder}/figures/examples.png",
        *(f"{folder}/figures/{method}/examples.png" for method in STUDIES[name].also_pictured()),
        f"{folder}/report.html",
        *gap_pictures(name),
        *(f"{folder}/figures/groups_{setting}.png" for setting in group_settings(name)),
    ]


def source_files(wildcards):
    """What annotations are read from: made here, or the user's own files."""
    chosen = dataset(wildcards)
    if chosen.made_here:
        return [f"results/data/{chosen.name}/source/ready.json", *packed_sources(chosen.name)]
    return own(annotation_files(chosen))


def packed_sources(name):
    """Source files that the workflow made, as one file that can travel; `ready.json` says when they changed."""
    chosen = DATASETS[name]
    return [ancient(f"results/data/{name}/source.tar")] if chosen.made_here and not chosen.vectors else []


def given_keys(chosen):
    """Keys of a data set that its annotations depend on, where its file gives them."""
    return {key for key in ("allow_overlap", "only") if getattr(chosen, key)}


def overlapping(name):
    """What captions are told of overlaps of splits, where the data set's file allows them and clips are here."""
    chosen = DATASETS[name]
    here = chosen.clips and not chosen.vectors
    return [f"results/data/{name}/videos/inventory.csv"] if here and chosen.allow_overlap else []


def described(name):
    """What is said of a data set, and the digest of its content: read, but no reason to run again."""
    return [ancient(f"{data_folder(name)}/captions/report.json")]


def encoder_files(keys):
    """Local files of the networks that make a data set of vectors."""
    by_name = filter(None, (encoding_of_side(keys, side) for side in keys.sides))
    return [e.weights for e in keys.sides.values() if e.weights] + [
        path for one in by_name for path in one.files()
    ]


def encoder_modules(keys):
    """Modules of these networks whose code is not in the rule's own: by name, or the user's."""
    named_ones = [full_name(ENCODERS, e.encoder) for e in keys.sides.values() if e.encoder]
    return named_ones + [e.name for e in keys.sides.values() if not e.encoder and "." in e.name]


def origin(wildcards):
    """The data set that vectors are made from."""
    return dataset(wildcards).source.made_from


def sanity_method(name):
    """The method that is over-fitted, of a study that has the check."""
    return STUDIES[name].sanity.method or STUDIES[name].trained()[0]


def sanity_spec(name):
    keys = STUDIES[name].sanity.training
    if STUDIES[name].pretraining:
        keys = keys.model_copy(update={"freeze": []})
    return STUDIES[name].run_spec(sanity_method(name), keys).fingerprint()


def weights_of(name):
    """The backbone's weights file, if the study names one."""
    return own(weights_file(STUDIES[name]))


def pretrained_of(name, method="", seed=None):
    """Weights of the pre-training that a run starts from, if it does; of the study's first without a run."""
    chosen = STUDIES[name]
    elsewhere = method and not pretraining.uses_study_backbone(chosen.methods[method])
    if elsewhere or not chosen.pretraining:
        return []
    return pretrained_weights(name, pretraining.pretraining_suffix(chosen, method, seed))


def pretrained_weights(name, part):
    return filled(rules.pretrain.output.model, study=name, part=part)


def named_part(wildcards, by_seed=pretraining.pretrains_per_seed):
    """The part of a path that names a seed's towers, where the study has such."""
    chosen = study(wildcards)
    if bool(wildcards.part) != by_seed(chosen):
        how = (
            ("the same towers for all seeds", "without")
            if wildcards.part
            else ("towers of each seed", "with")
        )
        raise WorkflowError(f"{chosen.name} has {how[0]}: ask for the file {how[1]} seed<k>/ in its path.")
    return wildcards.part


def features_weights(wildcards):
    """Weights of the pre-training that features of a path are of, if the study has any."""
    part = named_part(
        wildcards, lambda s: pretraining.pretrains_per_seed(s) or pretraining.has_random_features(s)
    )
    return pretrained_weights(wildcards.study, part) if study(wildcards).pretraining else []


def pretraining_seed(wildcards):
    return pretraining.seed_of_suffix(study(wildcards), named_part(wildcards))


def frame_candidates(name, method="", seed=None):
    """Values of max_frames that a study may end up with; of a run that keeps its own, those that were tried for it."""
    chosen = STUDIES[name]
    if not chosen.sweep:
        return [chosen.frames.max_frames]
    made = made_with(name, method, seed)
    if made and made["max_frames"] == swept(name):
        return made["max_frames_tried"]
    return chosen.sweep.max_frames


def made_with(name, method, seed):
    """``run.json`` of a finished run of a study with a sweep, if it says what was tried; else nothing."""
    if seed is None or not STUDIES[name].sweep:
        return None
    record = filled(rules.train.output.record, study=name, method=method, seed=seed)
    try:
        made = read_json(record)
        return made if {"max_frames", "max_frames_tried"} <= made.keys() else None
    except (RewindError, OSError, AttributeError):  # not trained yet, or kept in a bucket
        return None


def swept(name):
    """The sweep's choice, once it is up to date: until then Snakemake puts off what asks for it."""
    return read_json(checkpoints.sweep.get(study=name).output.best)["max_frames"]


def best_of_run(name, method, seed):
    """The file with the sweep's choice: a finished run is stale only where that is another than its own."""
    path = filled(rules.sweep.output.best, study=name)
    made = made_with(name, method, seed)
    return ancient(path) if made and made["max_frames"] == swept(name) else path


def feature_files(name, method, seed=None, frames=None, trial=None):
    """Caches for a frozen visual tower: of one number of frames, or of all that the sweep may choose."""
    if not uses_features(name, method):
        return []
    folder = f"results/{name}/features{pretraining.features_suffix(STUDIES[name], method, seed, trial)}"
    return [f"{folder}/frames{n}.npz" for n in ([frames] if frames else frame_candidates(name, method, seed))]


def store_files(name, numbers):
    """Frame stores, if a study wants them: other jobs read too few clips to be worth one, but read what is there."""
    wanted = stored_numbers(name) if STUDIES[name].frames.store else []
    return [f"results/{name}/frames/frames{n}/index.json" for n in numbers if n in wanted]


def stored_numbers(name):
    """Numbers of frames at which something learns from pixels, or features of them are computed more than once."""
    chosen = STUDIES[name]
    learning = [m for m in chosen.trained() if not uses_features(name, m)]
    again = len(pretraining.pretraining_suffixes(chosen)) > 1 if chosen.pretraining else False
    return (list(frame_candidates(name)) if learning or (again and chosen.trained()) else []) + (
        [pretraining_frames(name)] if chosen.pretraining else []
    )


def vectors_of(name):
    """The index of a data set of vectors; of other data sets nothing."""
    chosen = STUDIES[name].dataset
    return [f"results/data/{chosen}/source/embeddings.json"] if DATASETS[chosen].vectors else []


def cache_files(name, method, seed=None, frames=None):
    """What a run reads of items: vectors, features of a frozen tower, a frame store, or else clips."""
    if vectors := vectors_of(name):
        return {"vectors": vectors}
    if uses_features(name, method):
        trial = STUDIES[name].sweep.seed if frames else None
        return {"features": feature_files(name, method, seed, frames, trial)}
    return pixel_files(name, *([int(frames)] if frames else frame_candidates(name, method, seed)))


def sanity_inputs(name):
    """What the over-fitting check reads of items: as a run, but a study may pre-train towers that are frozen later."""
    if vectors := vectors_of(name):
        return {"vectors": vectors}
    if features := sanity_features(name):
        return {"features": features}
    return pixel_files(name, STUDIES[name].frames.max_frames)


def pixel_files(name, *numbers):
    """Where frames are read from: the stores for these numbers of them, or clips."""
    stores = store_files(name, numbers)
    if not stores:
        return clip_files(STUDIES[name].dataset)
    # As with clips: the index alone decides what is stale.
    parts = [path.replace("index.json", part) for path in stores for part in ("items.csv", "shards")]
    return {"store": stores, "frames": [ancient(path) for path in parts]}


def pretraining_frames(name):
    return STUDIES[name].pretraining.max_frames or STUDIES[name].frames.max_frames


def sanity_features(name):
    """The over-fitting check reads clips, except where the towers are frozen for good and have no pre-training."""
    method = sanity_method(name)
    most = STUDIES[name].frames.max_frames
    return [] if STUDIES[name].pretraining else feature_files(name, method, frames=most, trial=0)


def run_inputs(name, method, seed=None, frames=None):
    """Files that a run learns from; without a number of frames it reads the sweep's choice.

    Without a seed it starts from the study's first pre-training.
    """
    if is_brought(name, method):
        # Ids of all splits are known ids; what made the vectors says what tables must tell of them.
        files = brought_inputs(name, method, seed) | captions_of(name, "valid")
        return files | {"encoded": encoding_records(name, files["brought"])}
    files = {
        "item_table": filled(rules.captions.output.item_table, dataset=STUDIES[name].dataset),
        **captions_of(name, "train", "valid"),
        "described": described(name),
    }
    files |= cache_files(name, method, seed, frames)
    if not frames:
        files["best"] = best_of_run(name, method, seed)
        if validates_zero_shot(name, method):
            files["zero_shot"] = zero_shot_input(name)
    files["weights"] = weights_of(name)
    if STUDIES[name].sanity:
        files["sanity"] = filled(rules.sanity.output[0], study=name)
    if STUDIES[name].pretraining:
        files["pretrained"] = pretrained_of(name, method, seed)
    return files


def pretraining_spec(name):
    keys = STUDIES[name].pretraining
    method = keys.method.model_copy(update={"training": keys.training})
    chosen = next(iter(STUDIES[name].methods))
    return STUDIES[name].run_spec(chosen, keys.training).model_copy(update={"method": method}).fingerprint()


def features_spec(name):
    """What the features of a frozen tower depend on: no method, no training key."""
    spec = STUDIES[name].run_spec(next(iter(STUDIES[name].methods))).fingerprint()
    return {key: spec[key] for key in ("backbone", "frames", "text")}


def evaluation_spec(name, method, seed=None):
    """What a similarity matrix depends on besides the model: not how it was trained."""
    spec = STUDIES[name].run_spec(method, seed=seed).fingerprint()
    scored = {
        "method": ("model", "head", "head_layers", "head_start", "options"),
        "evaluation": ("batch_size", "pair_batch_size"),
    }
    return spec | {
        block: {k: spec[block][k] for k in keys if k in spec[block]} for block, keys in scored.items()
    }


def report_inputs(name):
    folder = f"results/{name}"
    files = {
        "metrics": filled(rules.metrics.output.table, study=name),
        "ranks": rank_files(name),
        "said": per_run(name, rules.ranks.output.said),
        **{part: filled(path, study=name) for part, path in rules.statistics.output.items()},
        "best": filled(rules.sweep.output.best, study=name),
        "videos": f"{data_folder(name)}/videos/report.csv",
    }
    if STUDIES[name].pretraining:
        files["pretraining"] = pretraining_records(name)
    return files | gap_inputs(name)


def pretraining_records(name):
    """``run.json`` of every pre-training, in the order of their seeds."""
    record = rules.pretrain.output.record
    return [filled(record, study=name, part=part) for part in pretraining.pretraining_suffixes(STUDIES[name])]


def table_inputs(name):
    """What only some studies' tables show."""
    folder, verdict = f"results/{name}", STUDIES[name].tables.verdict
    files = {}
    if group_settings(name):
        files["group_results"] = filled(rules.group_results.output[0], study=name)
    if STUDIES[name].evaluation.zero_shot:
        files["zero_shot"] = f"{folder}/statistics/zero_shot.csv"
        files["zero_shot_pairs"] = f"{folder}/statistics/zero_shot_pairs.csv"
    if verdict:
        files["step_time"] = f"{folder}/step_time.csv"
    if verdict and verdict.control:
        files["control"] = f"{folder}/statistics/control.csv"
    return files


def example_file(name, pattern, method=None):
    """A file of the run that pictures show, or of a method's first seed."""
    method, seed = STUDIES[name].pictured(method)
    return filled(pattern, study=name, method=method, seed=seed)


def example_setting(name):
    """The gallery that examples search: with twins where there are any."""
    settings = STUDIES[name].evaluation.settings
    ranked = [setting for setting in ("hard", "origin", "test") if setting in settings]
    return (ranked or settings)[0]


def pictured_run(name, method=None):
    """What pictures of one run call it."""
    method, seed = STUDIES[name].pictured(method)
    return ", ".join(
        [method, f"seed {seed}", *filter(None, [pretraining.pretraining_condition(STUDIES[name])])]
    )


def pictures(names, suffixes=("png", "pdf")):
    """Files of a study's pictures."""
    return [f"results/{{study}}/figures/{name}.{suffix}" for name in names for suffix in suffixes]


def drawings(names):
    """The same pictures as SVG, which the page shows where they are small."""
    return pictures(names, ("svg",))
