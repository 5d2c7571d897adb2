"""What the rules of only some studies read: zero-shot, cosine gaps, the verdict, the translator."""

import re

from rewind.config.encoders import encoding_of_side, encodings_of


def zero_shot_input(name):
    """The file of labelled images, if the study names one."""
    return own(zero_shot_file(STUDIES[name]))


def validates_zero_shot(name, method):
    """Whether every validation of a method also classifies labelled images."""
    keys = STUDIES[name].evaluation.zero_shot
    return keys is not None and keys.validation_images != 0 and method in STUDIES[name].trained()


def zero_shot_spec(name, method):
    """What a run's zero-shot accuracy depends on besides the model."""
    spec = evaluation_spec(name, method)
    keys = STUDIES[name].evaluation.zero_shot.fingerprint(exclude={"validation_images"})
    return spec | {"evaluation": spec["evaluation"] | {"zero_shot": keys}}


def zero_shot_methods(name):
    """(method, seed) of every run that has towers."""
    return [(m, s) for m, s in STUDIES[name].runs() if m in STUDIES[name].encoding()]


def gap_inputs(name):
    """Files of the cosine gap, where the study asks for it."""
    folder = f"results/{name}"
    if not STUDIES[name].evaluation.cosine_gap:
        return {}
    return {
        "gap_runs": f"{folder}/cosine_gap.csv",
        "gap_intervals": f"{folder}/statistics/cosine_gap.csv",
        "gap_pairs": f"{folder}/statistics/cosine_gap_pairs.csv",
        "gap_counts": f"{folder}/cosine_counts.csv",
    }


def gap_pictures(name):
    """The picture of the cosine gap, where the study asks for it."""
    return [f"results/{name}/figures/cosine_gap.png"] if STUDIES[name].evaluation.cosine_gap else []


def verdict(wildcards):
    """The verdict's keys, of studies that have one."""
    return study(wildcards).tables.verdict


def timed_methods(name):
    """Methods whose steps are timed: the verdict's baseline, then those that are to beat it."""
    keys = STUDIES[name].tables.verdict
    return [keys.baseline, *keys.methods]


def timed_spec(name, method):
    return STUDIES[name].run_spec(method, STUDIES[name].methods[method].training).fingerprint()


def controlled_methods(name):
    """The verdict's methods and their counterparts."""
    return [*timed_methods(name), *STUDIES[name].tables.verdict.control.values()]


def submission_captions(name):
    """The npz of captions that a submission is written for; where there is none, it was refused when it was asked for."""
    chosen = DATASETS[STUDIES[name].dataset]
    return (chosen.vectors and chosen.source.test) or []


def measured(name):
    """Method and first seed of those methods that read what the first one reads."""
    first = next(iter(STUDIES[name].methods))
    runs = dict(reversed(STUDIES[name].runs()))
    # What is read of another pre-training has the same shape, and shapes are all that is timed.
    return [(m, runs[m]) for m in STUDIES[name].methods if cache_files(name, m) == cache_files(name, first)]


# (data set, folder) → how the vectors are made, and the studies that want them.
ENCODINGS = {
    (chosen.dataset, keys.folder()): keys
    for chosen in STUDIES.values()
    for keys in encodings_of(chosen).values()
}
ENCODING_STUDIES = {
    place: [
        s for s in STUDIES.values() if place in {(s.dataset, k.folder()) for k in encodings_of(s).values()}
    ]
    for place in ENCODINGS
}


def encoding(wildcards):
    """How vectors are made."""
    return ENCODINGS[wildcards.dataset, wildcards.encoding]


def encoding_resource(wildcards, name):
    """The most that a study asks for which wants these vectors."""
    wanting = ENCODING_STUDIES[wildcards.dataset, wildcards.encoding]
    return max(int(getattr(chosen.resources, name)) for chosen in wanting)
