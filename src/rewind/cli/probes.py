"""Which probes vectors and scores can be asked about a data set, and what the others would need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, get_args

from rewind.config import Dataset, Method
from rewind.config.evaluation import DIRECTION_FOLDS, HUBNESS_NEIGHBOURS, ProbeName
from rewind.data.annotations import Annotations, twin_of
from rewind.data.questions import caption_pair_count, has_answers, has_foils


class ProbeChoice(NamedTuple):
    """What is asked, and what is not."""

    probes: list[str]  # for evaluation.probes
    left_out: list[str]  # a line for each probe, or part of one, that is not evaluated: which, and what it needs


def choose_probes(dataset: Dataset, annotations: Annotations | None, methods: Mapping[str, Method]) -> ProbeChoice:
    """All probes that a data set and precomputed methods allow.

    A probe is left out where the data set lacks what it asks about, or where no method can be asked. Without
    annotations, which only a job may be able to read, nothing is counted.

    >>> dataset = Dataset(name="d", clips=False, source={"format": "table", "table": "d.csv"})
    >>> scores = Method(model="scores", options={"file": "theirs.npz"})
    >>> probes, left_out = choose_probes(dataset, None, {"theirs": scores})
    >>> probes, left_out[-2:]
    (['pairs'], ['direction: scores have no vectors', 'geometry: scores have no vectors'])
    """
    probes, left_out = [], [_why_no_order(dataset)]
    missing = _missing_data(dataset, annotations)
    for probe in get_args(ProbeName):
        reasons = {name: method.why_not_probed(probe) for name, method in methods.items()}
        if probe in missing:
            left_out.append(f"{probe}: {missing[probe]}")
        elif all(reasons.values()):
            left_out.append(f"{probe}: {'; '.join(dict.fromkeys(reasons.values()))}")
        else:
            probes.append(probe)
            left_out += [f"{probe} of {name}: {reason}" for name, reason in reasons.items() if reason]
    if "direction" in probes:
        needed = "a model that Rewind runs" if dataset.clips else "clips are needed, and a model that Rewind runs"
        left_out.append(f"direction, frames in a row: {needed}: vectors are of whole clips")
    if "geometry" in probes:
        left_out.append(
            "geometry, no such clip: its threshold is chosen on validation, and files are of the test split"
        )
    return ProbeChoice(probes, left_out)


def _why_no_order(dataset: Dataset) -> str:
    if dataset.clips:
        return "order: a model that Rewind runs is needed: vectors and scores are of clips as they are"
    return "order: clips are needed, and a model that Rewind runs: vectors and scores are of clips as they are"


def _missing_data(dataset: Dataset, annotations: Annotations | None) -> dict[str, str]:
    """Probe → what the data set lacks for it."""
    missing = {}
    if not has_answers(dataset):
        missing["answers"] = "needs captions with several right clips: name them with --answers FILE"
    if not has_foils(dataset):
        missing["foils"] = "needs captions that are not true of a clip: name them with --foils FILE"
    pairs = caption_pair_count(dataset)
    if dataset.why_no_twins:
        missing["direction"] = "needs reversed twins"
        if not pairs:
            missing["pairs"] = "needs reversed twins, or pairs of clips with a caption each"
    if annotations is None:
        return missing
    items = annotations.items[annotations.items["split"] == "test"]
    twins = set(items["item_id"][items["reversed"] == 1])
    paired = items[items["item_id"].map(lambda item: twin_of(item) in twins)]
    described = set(annotations.captions["video_id"])
    if not pairs and not any({item, twin_of(item)} <= described for item in paired["item_id"]):
        missing["pairs"] = "needs reversed twins with captions, or pairs of clips with a caption each"
    if paired.empty:
        missing["direction"] = "needs reversed twins"
    elif (clusters := paired["cluster_id"].nunique()) < DIRECTION_FOLDS:
        missing["direction"] = f"needs clips with reversed twins in {DIRECTION_FOLDS} clusters; there are {clusters}"
    if len(items) <= HUBNESS_NEIGHBOURS:
        missing["geometry"] = f"needs more than {HUBNESS_NEIGHBOURS} clips, twins counted; there are {len(items)}"
    return missing
