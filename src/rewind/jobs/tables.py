"""Tables of a study, with footnotes made from provenance."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.datasets.captions import load_split
from rewind.datasets.leaks import sentence
from rewind.datasets.rtime import truncated_share
from rewind.evaluation.settings import left_out
from rewind.files import read_csv, read_json, write_json, write_text
from rewind.jobs.cosine_gap_report import cosine_gap_tables
from rewind.jobs.given import Given
from rewind.jobs.metrics import read_near_ties
from rewind.jobs.report import Files, load_results, report_files, seeded, sizes
from rewind.models.miniclip_files import captions_of
from rewind.reporting.brief import for_paper
from rewind.reporting.footnotes import Footnotes, coverage
from rewind.reporting.method_json import method_metrics
from rewind.reporting.published import write
from rewind.reporting.results import Results
from rewind.reporting.tables import published, summary
from rewind.study import Dataset, Study
from rewind.study.brought import BROUGHT
from rewind.study.pretraining import by_seed, condition, random_features, starts
from rewind.text import make_tokenizer

NO_SEEDS = ": there are no training seeds, and intervals generalise to other queries only"
WHENCE = {"vectors": "Scored with vectors from files", "scores": "Scored by somebody else, read from files"}
IMAGE_NETWORKS = {"resnet18": "ResNet-18", "efficientnet_lite0": "EfficientNet-Lite0"}


def tables(given: Given) -> None:
    """Rule ``tables``."""
    study, dataset = Study(**given.params.study), Dataset(**given.params.dataset)
    folder = Path(given.output.tables)
    make_tables(study, dataset, report_files(given), folder, folder / "summary.txt")


def make_tables(study: Study, dataset: Dataset, files: Files, folder: str | Path, overview: str | Path) -> None:
    """Write every table, and those per setting and of gaps as plain text, which is also printed.

    Where the study trains MiniCLIP, also ``metrics_<method>.json`` in its fields.
    """
    results = load_results(study, dataset, files)
    facts = footnotes(study, dataset, files, results)
    title = dataset.title or dataset.name
    made = list(published(results, study.evaluation.settings, facts, title))
    gaps, said = cosine_gap_tables(study, facts, files.gap, title) if files.gap else ([], "")
    for table in for_paper([*made, *gaps], study.tables.notes):
        write(folder, table, study.tables.prefix)
    for method in results.trained():
        if study.methods[method].model == "miniclip":
            records = {run: read_json(path) for run, path in files.records.items()}
            write_json(
                Path(folder) / f"{study.tables.prefix}metrics_{method}.json",
                method_metrics(study, results, records, method),
            )
    text = summary(results, study.evaluation.settings, dataset.items, title, facts, said)
    write_text(overview, text)
    print(text)


def footnotes(study: Study, dataset: Dataset, files: Files, results: Results) -> Footnotes:
    """What a reader must know to trust the tables, from what was recorded when things ran."""
    records = {run: read_json(path) for run, path in files.records.items()}
    best = read_json(files.best)
    trained = [record for (method, _), record in records.items() if method in results.trained()] or list(
        records.values()
    )
    tried = best.get("tried")
    images = dataset.items == "images"
    return Footnotes(
        settings=sizes(results),
        items=dataset.items,
        backbone=_vectors(dataset, bool(results.trained())) if dataset.vectors else _backbone(study),
        pretraining=_pretraining(study, files),
        max_frames=None if images or dataset.vectors or not _reads_towers(study) else best["max_frames"],
        frames_chosen=f"{best['chosen']} from {', '.join(map(str, tried))}" if tried else "",
        decoding=_decoding(study, dataset, [record["packages"] for record in trained]),
        hardware=_hardware(trained),
        seeds={results.labels[name]: study.methods[name].seeds or study.seeds for name in seeded(study)},
        procedures=_procedures(results),
        bootstrap=results.intervals["boot_procedure"].iloc[0],
        family=len(study.pairs()),
        coverage=_coverage(read_csv(files.videos), "source images" if images else "source clips")
        if dataset.clips
        else "",
        data=list(dict.fromkeys(found for record in trained if (found := record.get("data_digest")))),
        notes=[
            *_notes(study, dataset, Path(files.videos).parents[1]),
            *brought_notes(study, records),
            *_near_ties(study, files),
            *_same_start(records, results),
            *files.accepted,
        ],
    )


def _decoding(study: Study, dataset: Dataset, packages: list[dict[str, str]]) -> dict[str, Any]:
    """How clips become frames; ``packages`` of each run, whose decoder another run may have had in another version."""
    if dataset.vectors or not _reads_towers(study):
        return {}
    square = {"square": study.frames.size} if study.frames.fit == "stretch" else {}
    if dataset.items == "images":
        return square or {"short_side": study.frames.size}
    return square | {
        "fps": dataset.video.fps,
        "short_side": dataset.video.short_side,
        "sampling": study.frames.sampling,
        "decoders": {
            name: " and ".join(dict.fromkeys(str(one[name]) for one in packages if name in one))
            for name in dict.fromkeys(name for one in packages for name in one if name.startswith("decord"))
        },
    }


def _procedures(results: Results) -> dict[str, list[str]]:
    """How intervals of compared methods were computed → their names; of all methods where none is."""
    rows = results.intervals[results.intervals["metric"] == "R@1"].drop_duplicates("method").set_index("method")
    found: dict[str, list[str]] = {}
    for method in results.compared() or results.ordered():
        found.setdefault(rows.loc[method, "procedure"], []).append(results.labels[method])
    return found


def _vectors(dataset: Dataset, trained: bool = True) -> str:
    made = dataset.source.made_from
    origin = f", made by {made.text.name} (captions) and {made.image.name} ({dataset.items})" if made else ""
    learnt = "only the map between them is trained" if trained else "nothing is trained"
    return f"none; the dataset consists of vectors{origin}, and {learnt}"


def _backbone(study: Study) -> str:
    keys = study.backbone
    if keys.kind == "towers":
        projections = f" under trained projections of width {keys.width}" if study.trained() else ""
        return f"frozen EfficientNet-Lite0 (ImageNet) and all-MiniLM-L6-v2{projections}"
    weights = (
        f"weights {keys.weights or keys.pretrained}" if keys.weights or keys.pretrained else "random initial weights"
    )
    if not study.trained():
        return f"{keys.kind} {keys.architecture}, {weights}" if _reads_towers(study) else ""
    frozen = study.training.freeze
    if keys.kind == "miniclip_towers":
        weights = "packaged ImageNet weights" if keys.architecture == "efficientnet_lite0" else weights
        network = IMAGE_NETWORKS.get(keys.architecture, keys.architecture)
        part = "the last third of its tensors is trained" if "visual" in frozen else "all of it is trained"
        return f"{network} with {weights}, {part}; text towers start from random weights"
    tail = f"; frozen while heads train: {' and '.join(frozen)} tower" if frozen else ""
    return f"{keys.kind} {keys.architecture}, {weights}{tail}"


def _pretraining(study: Study, files: Files) -> str:
    keys = study.pretraining
    if keys is None or not files.pretrained:
        return ""
    best = {seed: read_json(path)["best"]["epoch"] for seed, path in files.pretrained.items()}
    said = f"backbone trained with {keys.method.head} for {keys.training.epochs} epochs on the training split, "
    listed = "; ".join(f"seed {seed}: best epoch {epoch}" for seed, epoch in best.items())
    if keys.shared:
        said += f"once for all runs ({listed}): everything is {condition(study)}, "
        return said + "whose variation the spread over seeds does not include"
    return said + f"once for each seed ({listed}); all methods with that seed start from it"


def _hardware(records: list[dict[str, Any]]) -> dict[str, int]:
    """What one run had, as ``4 × NVIDIA A10G`` → how many runs had just that; another instance type counts apart.

    Runs of one table may have had different numbers of devices: changing ``resources.gpus`` makes no run stale.
    """
    return Counter(
        " and ".join(f"{count} × {name}" for name, count in sorted(Counter(_devices(record)).items()))
        for record in records
    )


def _devices(record: dict[str, Any]) -> list[str]:
    instance = record.get("instance")
    return [f"{name} ({instance})" if instance else name for name in record["hardware"]["devices"]]


def _coverage(report: pd.DataFrame, items: str) -> str:
    bad = report[report["status"] != "ok"]
    reasons = Counter(
        "not found" if row.status == "missing" else str(row.reason).split(":")[0] for row in bad.itertuples()
    )
    return coverage(len(report), reasons, items)


def _notes(study: Study, dataset: Dataset, folder: Path) -> list[str]:
    test = load_split(folder, dataset.name, "test")
    captions = test.captions["caption"].tolist()
    words = load_split(folder, dataset.name, "train").captions["caption"].tolist()
    words = captions_of(study.text.vocabulary) if study.text.vocabulary else words
    notes = [
        *_untrained(study),
        *_random_features(study),
        sentence(read_json(folder / "captions/report.json").get("annotations", {})),
    ]
    if "item_to_text" in study.evaluation.directions and test.captions["video_id"].duplicated().any():
        one, other = ("An image", "image") if dataset.items == "images" else ("A clip", "clip")
        notes.append(_SEARCHED[study.evaluation.item_to_text].format(one, other))
    if "binary" in study.evaluation.settings and (count := left_out(test.captions, test.items)):
        notes.append(f"Binary leaves out {count:,} captions of clips whose time-reversed twin has no caption")
    notes += [_repeated(study, read_csv(folder / "videos/report.csv"))] if study.frames.sampling == "stride" else []
    if study.backbone.kind not in ("clip", "viclip", "miniclip_towers") or not _reads_towers(study):
        return notes
    keys, most = study.text, study.text.max_words
    tokenizer = make_tokenizer(keys.tokenizer, words, keys.max_vocabulary)
    share, number = truncated_share(captions, tokenizer.count, most)
    cut = f"{number:,} of {len(captions):,} test captions ({100 * share:.1f}%) are cut at {most} tokens"
    notes += [cut if number else f"No test caption is longer than the {most} tokens that the text tower reads"]
    if study.text.tokenizer == "miniclip":
        ids = tokenizer.encode(captions, most)
        unknown = 100 * (ids == 1).sum() / max(1, (ids > 0).sum())
        notes.append(f"{unknown:.1f}% of the words of test captions occur in no training caption and share one token")
    return notes


def _same_start(records: dict[tuple[str, int], dict[str, Any]], results: Results) -> list[str]:
    """Methods all of whose seeds start from one set of weights, as CLIP4Clip's do whose heads draw nothing."""
    starts: dict[str, list[str | None]] = {}
    for (method, _), record in records.items():
        if method in results.trained():
            starts.setdefault(method, []).append(record.get("start"))
    same = [m for m, found in starts.items() if len(found) > 1 and found[0] is not None and len(set(found)) == 1]
    names = ", ".join(results.labels[method] for method in same)
    said = "all seeds start from the same weights, so that they differ in the order of batches and in dropout alone"
    return [f"Of {names}: {said}"] if same else []


_SEARCHED = {
    "all_captions": "{} searches all captions, and its rank is that of its own best one",
    "best_caption": "{} searches the best caption of each {}, as in CLIP4Clip",
}


def brought_notes(study: Study, records: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    """Which rows are files that were made elsewhere, and what their runs say of them."""
    said: dict[str, list[str]] = {}
    for name, method in study.methods.items():
        if method.model in BROUGHT:
            said.setdefault(WHENCE[method.model], []).append(method.label or name)
    found = [f"{what}: {', '.join(labels)}" for what, labels in said.items()]
    owners: dict[str, dict[str, None]] = {}
    for (name, seed), record in records.items():
        method = study.methods[name]
        seeded = f", seed {seed}" if len(method.seeds or study.seeds) > 1 else ""
        for note in record.get("notes", []):
            owners.setdefault(note, {})[f"{method.label or name}{seeded}"] = None
    return found + [f"Of {', '.join(labels)}: {note}" for note, labels in owners.items()]


def _near_ties(study: Study, files: Files) -> list[str]:
    """Rows in which rounding, and not the order of frames, may tell a clip from its twin."""
    shares = read_near_ties(study.runs(), files.ranks) if files.ranks else {}
    most: dict[str, float] = {}
    for (name, _), share in shares.items():
        most[name] = max(share, most.get(name, 0.0))
    return [
        f"Of {study.methods[name].label or name}: the scores of a clip and its twin differ by less than 1e-5 of their "
        f"size for {100 * share:.0f}% of Binary’s queries; there rounding decides, not what the model sees"
        for name, share in most.items()
    ]


def _reads_towers(study: Study) -> bool:
    """Whether any method looks through the study's own backbone."""
    return any(map(starts, study.methods.values()))


def _untrained(study: Study) -> list[str]:
    """What a reader must know of methods that nothing was trained for."""
    notes, asked = [], {name: m for name, m in study.methods.items() if m.model == "zero_shot"}
    if not study.trained():
        what = "Only the backbone is" if study.pretraining else "Nothing is"
        notes.append(f"{what} trained by gradient descent" + ("" if by_seed(study) else NO_SEEDS))
    random = [method.label or name for name, method in asked.items() if method.options.get("untrained")]
    if random:
        notes.append(f"{', '.join(random)}: a network with random weights, on purpose (untrained: true), for reference")
    return notes


def _random_features(study: Study) -> list[str]:
    """Rows whose visual tower is frozen with random weights, so that no training ever reached what it sees."""
    keys = study.backbone
    part = "lower part of the image network" if keys.kind == "miniclip_towers" else "visual tower"
    lower = keys.kind == "miniclip_towers" and keys.architecture == "resnet18" and not keys.weights
    if not (random_features(study) or lower):
        return []
    rows = [
        method.label or name
        for name, method in study.methods.items()
        if name in study.trained() and starts(method) and "visual" in method.training.freeze
    ]
    drawn = "drawn once for all runs" if lower else "drawn anew for each seed"
    said = f"random features: the {part} has random weights, {drawn}, and is frozen"
    return [f"Of {', '.join(rows)}: {said}"] if rows else []


def _repeated(study: Study, report: pd.DataFrame) -> str:
    """How many clips are shorter than what a model sees of them."""
    lengths, most = report.loc[report["status"] == "ok", "frames"], study.frames.max_frames
    short = int((lengths < most).sum())
    if not short:
        return f"No clip has fewer than {most} frames"
    return f"{short:,} of {len(lengths):,} clips have fewer than {most} frames, so some of their frames are repeated"
