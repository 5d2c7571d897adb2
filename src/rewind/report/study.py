"""Tables and figures of a study, from its CSV files and run records; no model is read.

:class:`ReportFiles` names the inputs, :func:`load_results` reads the numbers, :func:`make_footnotes` says from the
records of runs what a reader must know to trust the tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from rewind.analyses.trials import LOSS_DECIMALS, METRIC_TITLES, read_trials
from rewind.config import Dataset, Method, Study
from rewind.config.encoders import seeds_of_options
from rewind.config.study import trial_words
from rewind.config.training import TOWERS, Training, adapted_towers
from rewind.data.annotations import reading_sentences
from rewind.data.captions import SplitTables, load_split
from rewind.data.formats.published import counts_sentence
from rewind.data.splits import overlap_sentence
from rewind.data.tokenizers import count_truncated, make_tokenizer, same_text_labels
from rewind.errors import RewindError, count_noun
from rewind.evaluation.ranking import setting_selection
from rewind.evaluation.twins import count_binary_left_out, recall_ceiling
from rewind.figures import style
from rewind.figures.curves import training_curves
from rewind.figures.forest import interval_forest, pair_forest
from rewind.figures.gaps import gap_slope
from rewind.figures.ranks import rank_curve, rank_intervals
from rewind.io.files import read_csv, read_json, write_json, write_text
from rewind.models.miniclip_checkpoint import read_vocabulary_captions
from rewind.ranking_metrics import ACCURACY_METRIC
from rewind.report.answer import answer_text, study_findings
from rewind.report.method_json import method_metrics
from rewind.report.tables import build_tables, summary_text
from rewind.statistics.rank_files import (
    read_captions_cut,
    read_near_ties,
    read_not_evaluated,
    read_ranks,
    read_reranked,
)
from rewind.tables.best_method import join_names
from rewind.tables.footnotes import Footnotes, describe_coverage, shared_notes
from rewind.tables.render import write_tables
from rewind.tables.results import (
    Results,
    evaluated_directions,
    interval_procedures,
    setting_sizes,
    short_direction,
    ties_every_query,
    trusted_ranks,
)
from rewind.tables.settings import SETTING_TITLES
from rewind.tables.short_notes import with_latex_notes
from rewind.tables.spec import TableInputs
from rewind.tables.table import MISSING
from rewind.video.damage import DAMAGE_NOTE, GAP_NOTE
from rewind.video.repair import count_repairs

# ---- Inputs that tables and figures share --------------------------------------------------------------------------


@dataclass(frozen=True)
class ReportFiles:
    """The files that a report is written from; ``metrics``, ``intervals``, ``pairs`` and ``gaps`` are CSV files."""

    metrics: str
    intervals: str
    pairs: str
    gaps: str
    records: Mapping[tuple[str, int], str]  # ``run.json`` of every run, by method and seed
    best: str  # JSON file of the sweep's choice
    videos: str  # the data set's video report
    pretrained: Mapping[int, str] = field(default_factory=dict)  # ``run.json`` by seed; empty without pre-training
    analyses: Mapping[str, str] = field(default_factory=dict)  # CSV files by the name of the result
    places: str | None = None  # CSV file of ranks of methods; published results may lack it
    chance: str | None = None  # CSV file of tests against chance in Binary; published results may lack it
    trials: Sequence[str] = ()  # CSV files of the trials that chose keys of methods; empty without such
    ranks: str | None = None  # folder of the runs' ranks; also tells where a method was not evaluated
    accepted: list[str] = field(default_factory=list)  # sentences on edits declared to change no number


def load_results(study: Study, dataset: Dataset, files: ReportFiles) -> Results:
    """The study's numbers, and the names of methods in tables."""
    methods = study.methods
    return Results(
        metrics=read_csv(files.metrics),
        intervals=read_csv(files.intervals),
        pairs=read_csv(files.pairs, RESULT_TEXT),
        labels=study.labels(),
        train={name: _training_text(method, dataset, bool(study.pretraining)) for name, method in methods.items()},
        baselines=[name for name in methods if name not in study.compared_methods()],
        fixed=study.fixed_methods(),
        primary=study.primary_metric(),
        confidence=study.statistics.confidence,
        columns=study.tables.columns,
        gaps=read_csv(files.gaps),
        seeds={name: method.seeds or study.seeds for name, method in methods.items()},
        items=dataset.items,
        verdict=study.tables.verdict if "step_time" in files.analyses else None,
        analyses={name: read_result(path, methods) for name, path in files.analyses.items()},
        only_in_binary=study.blind_methods(),
        places=_read_optional(files.places),
        chance=_read_optional(files.chance),
        trials=read_trials(files.trials),
        order=study.tables.order,
        not_evaluated=read_not_evaluated(study.runs(), files.ranks) if files.ranks else {},
        given=study.condition,
    )


RESULT_TEXT = (
    *("group", "first", "second", "baseline", "control", "control_baseline", "best"),
    *("direction", "metric", "probe", "part"),
)
"""Columns of results that are text, whatever they look like."""


def read_result(path: str, methods: Collection[str]) -> pd.DataFrame:
    """A result of an analysis; one with a method that is not in the study is refused."""
    table = read_csv(path, RESULT_TEXT)
    if unknown := [method for method in table.get("method", ()) if method not in methods]:
        raise RewindError(f"{path}: method {unknown[0]!r} is not in the study; run the statistics again.")
    return table


def _read_optional(path: str | None) -> pd.DataFrame:
    return read_csv(path) if path else pd.DataFrame()


def _training_text(method: Method, dataset: Dataset, pretrained: bool) -> str:
    if method.train:
        return method.train
    # Models in closed form are fitted on the training split.
    fitted = method.model in ("pixels", "caption_only") or not (method.needs_no_backbone or method.zero_shot)
    learns_from_data = fitted and not method.scored_as_it_is
    learns_from_data = learns_from_data or (pretrained and method.zero_shot and method.uses_study_backbone)
    return dataset.title or dataset.name if learns_from_data else MISSING


# ---- Tables, with footnotes built from provenance ------------------------------------------------------------------

NO_SEEDS_NOTE = ": there are no training seeds, and intervals generalise to other queries only"
PRECOMPUTED_ORIGINS = {
    "vectors": "Scored with vectors from files",
    "scores": "Scored elsewhere, read from files",
}
IMAGE_NETWORKS = {"resnet18": "ResNet-18", "efficientnet_lite0": "EfficientNet-Lite0"}


def make_tables(study: Study, dataset: Dataset, files: ReportFiles, folder: str | Path, overview: str | Path) -> str:
    """Write every table, ``tables.json`` with all, ``facts.json`` with the facts of notes, and the answer as text.

    Where the study trains MiniCLIP, also ``metrics_<method>.json`` with the fields of MiniCLIP's own file. Returns the
    text.
    """
    inputs = load_table_inputs(study, dataset, files)
    shared = shared_notes(inputs.facts, inputs.results.seed_counts())
    tables = with_latex_notes(list(build_tables(inputs)), study.tables.notes, shared)
    write_tables(folder, tables, study.tables.prefix, shared)
    write_json(Path(folder) / "facts.json", vars(inputs.facts))
    for method in inputs.results.trained():
        if study.methods[method].model == "miniclip":
            records = {run: read_json(path) for run, path in files.records.items()}
            write_json(
                Path(folder) / f"{study.tables.prefix}metrics_{method}.json",
                method_metrics(study, inputs.results, records, method),
            )
    findings = study_findings(inputs.results, inputs.settings)
    text = "\n".join(filter(None, [answer_text(findings), summary_text(inputs)]))
    write_text(overview, text)
    return text


def load_table_inputs(study: Study, dataset: Dataset, files: ReportFiles) -> TableInputs:
    """What the tables of a study are written from."""
    results = load_results(study, dataset, files)
    return TableInputs(
        results,
        study.evaluation.settings,
        make_footnotes(study, dataset, files, results),
        dataset.title or dataset.name,
        quoted=study.tables.quoted,
    )


def make_footnotes(study: Study, dataset: Dataset, files: ReportFiles, results: Results) -> Footnotes:
    """What a reader must know to trust the tables, from the records of runs."""
    records = {run: read_json(path) for run, path in files.records.items()}
    sweep = read_json(files.best)
    trained_records = [record for (method, _), record in records.items() if method in results.trained()] or list(
        records.values()
    )
    candidates = sweep.get("tried")
    images = dataset.items == "images"
    return Footnotes(
        settings=setting_sizes(results),
        items=dataset.items,
        backbone=_vectors_note(dataset, bool(results.trained())) if dataset.vectors else _backbone_note(study),
        pretraining=_pretraining_note(study, files),
        max_frames=None if images or dataset.vectors or not _uses_backbone(study) else sweep["max_frames"],
        frames_chosen=f"{sweep['chosen']} from {', '.join(map(str, candidates))}" if candidates else "",
        decoding=_decoding_facts(study, dataset, trained_records),
        hardware=_hardware_counts(trained_records),
        seeds={results.labels[name]: study.seeds_of(name) for name in study.seeded_methods()},
        budgets=study.budgets(),
        procedures=interval_procedures(results),
        bootstrap=results.intervals["boot_procedure"].iloc[0],
        family=len(study.pairs()),
        coverage=_coverage_note(read_csv(files.videos), "source images" if images else "source clips")
        if dataset.clips
        else "",
        noise=[study.labels()[name] for name, method in study.methods.items() if method.noise or study.frames.noise],
        data=list(dict.fromkeys(found for record in trained_records if (found := record.get("data_digest")))),
        notes=[
            *_data_notes(study, dataset, Path(files.videos).parents[1]),
            *_model_cut_notes(study, files, results),
            *precomputed_notes(study, records),
            *_near_tie_notes(study, files),
            *_rerank_notes(study, files, results),
            *_tuning_notes(study, records, results.trials),
            *_same_start_notes(study, records, results),
            *files.accepted,
        ],
    )


def _decoding_facts(study: Study, dataset: Dataset, records: list[dict[str, Any]]) -> dict[str, Any]:
    """How clips become frames; ``records``: ``run.json`` of each run, since decoders may differ between runs."""
    if dataset.vectors or not _uses_backbone(study):
        return {}
    square = {"square": study.frames.size} if study.frames.fit == "stretch" else {}
    if dataset.items == "images":
        return square or {"short_side": study.frames.size}
    return square | {
        "fps": dataset.video.fps,
        "short_side": dataset.video.short_side,
        "sampling": study.frames.sampling,
        "decoders": _frame_readers(records),
    }


def _frame_readers(records: list[dict[str, Any]]) -> dict[str, str]:
    """What read the frames of the runs → its versions."""
    versions: dict[str, dict[str, None]] = {}
    for record in records:
        reader = record.get("frame_reader")
        # Records of earlier releases do not name the reader, which was decord or decord2.
        decord = [(name, version) for name, version in record["packages"].items() if name.startswith("decord")]
        for name, version in [reader.split(maxsplit=1)] if reader else decord:
            versions.setdefault(name, {})[version] = None
    return {name: " and ".join(found) for name, found in versions.items()}


def _vectors_note(dataset: Dataset, trained: bool = True) -> str:
    made = dataset.source.made_from
    origin = f", computed by {made.text.name} (captions) and {made.image.name} ({dataset.items})" if made else ""
    what_is_trained = "only the map between them is trained" if trained else "nothing is trained"
    return f"none; the dataset consists of vectors{origin}, and {what_is_trained}"


def _backbone_note(study: Study) -> str:
    keys = study.backbone
    if keys.kind == "towers":
        projections = f" under trained projections of width {keys.width}" if study.trained() else ""
        return f"frozen EfficientNet-Lite0 (ImageNet) and all-MiniLM-L6-v2{projections}"
    encoding = keys.encoding()
    if encoding is not None:
        return f"{encoding.title()}{_tuning_note(study)}" if _uses_backbone(study) else ""
    weights = (
        f"weights {keys.weights or keys.pretrained}" if keys.weights or keys.pretrained else "random initial weights"
    )
    if not study.trained():
        return f"{keys.kind} {keys.architecture}, {weights}" if _uses_backbone(study) else ""
    frozen = study.training.freeze
    if keys.kind == "miniclip_towers":
        weights = "packaged ImageNet weights" if keys.architecture == "efficientnet_lite0" else weights
        network = IMAGE_NETWORKS.get(keys.architecture, keys.architecture)
        trained_part = "the last third of its tensors is trained" if "visual" in frozen else "all of it is trained"
        return f"{network} with {weights}, {trained_part}; text towers start from random weights"
    freezing = f"; frozen while heads train: {' and '.join(frozen)} tower" if frozen else ""
    if any(study.methods[name].training.lora for name in study.trained()):
        freezing = _tuning_note(study)
    return f"{keys.kind} {keys.architecture}, {weights}{freezing}"


def _tuning_note(study: Study) -> str:
    """What is trained of the towers, and in which rows."""
    rows: dict[str, list[str]] = {}
    for name in study.trained():
        method = study.methods[name]
        if method.uses_study_backbone:
            rows.setdefault(_tuning(method.training), []).append(method.label or name)
    return "".join(f"; {how} in {', '.join(labels)}" for how, labels in rows.items())


def _tuning(keys: Training) -> str:
    """What training makes of the towers, in words.

    >>> _tuning(Training(freeze=["visual"], lora={"rank": 4})), _tuning(Training())
    ('the text tower with adapters of rank 4 and the visual tower frozen', 'both towers trained')
    """
    ways: dict[str, str] = {}
    for tower in TOWERS:
        adapted = keys.lora is not None and tower in adapted_towers(keys)
        rank = f"with adapters of rank {keys.lora.rank}" if keys.lora else ""
        ways[tower] = "frozen" if tower in keys.freeze else rank if adapted else "trained"
    if len(set(ways.values())) == 1:
        return f"both towers {ways['text']}"
    return " and ".join(f"the {tower} tower {way}" for tower, way in ways.items())


def _pretraining_note(study: Study, files: ReportFiles) -> str:
    keys = study.pretraining
    if keys is None or not files.pretrained:
        return ""
    best_epochs = {seed: read_json(path)["best"]["epoch"] for seed, path in files.pretrained.items()}
    # A row whose head the towers were trained with has an advantage that readers must know of.
    favoured = [
        method.label or name
        for name, method in study.methods.items()
        if all(getattr(method, key) == getattr(keys.method, key) for key in ("model", "head", "options"))
    ]
    advantage = f" (the head of {' and '.join(favoured)})" if favoured else ""
    head, epochs_trained = f"{keys.method.head}{advantage}", keys.training.epochs
    sentence = f"backbone trained with {head} for {epochs_trained} epochs on the training split, "
    epochs = "; ".join(f"seed {seed}: best epoch {epoch}" for seed, epoch in best_epochs.items())
    if keys.shared:
        sentence += f"once for all runs ({epochs}): everything is {study.pretraining_condition}, "
        return sentence + "whose variation the spread over seeds does not include"
    return sentence + f"once for each seed ({epochs}); all methods with that seed start from it"


def _hardware_counts(records: list[dict[str, Any]]) -> dict[str, int]:
    """Hardware of a run, as ``4 × NVIDIA A10G`` → number of runs on it; other instance types are counted apart.

    Runs of one table may have had different numbers of devices: changing ``resources.gpus`` makes no run stale.

    >>> dict(_hardware_counts([{"hardware": {"devices": ["NVIDIA A10G"] * 4}}]))
    {'4 × NVIDIA A10G': 1}
    """
    return Counter(
        " and ".join(f"{count} × {name}" for name, count in sorted(Counter(_device_names(record)).items()))
        for record in records
    )


def _device_names(record: dict[str, Any]) -> list[str]:
    instance = record.get("instance")
    return [f"{name} ({instance})" if instance else name for name in record["hardware"]["devices"]]


def _coverage_note(report: pd.DataFrame, items: str) -> str:
    unusable = report[report["status"] != "ok"]
    reasons = Counter(
        "not found" if row.status == "missing" else str(row.reason).split(":")[0] for row in unusable.itertuples()
    )
    usable = report["reason"][report["status"] == "ok"].fillna("").astype(str)
    notes = {
        "perhaps damaged": usable.str.contains(DAMAGE_NOTE, regex=False).sum(),
        "with a gap in time": usable.str.contains(GAP_NOTE, regex=False).sum(),
        **count_repairs(usable),
    }
    noted = "".join(f"; {count:,} {what}" for what, count in notes.items() if count)
    return describe_coverage(len(report), reasons, items) + noted


def _data_notes(study: Study, dataset: Dataset, folder: Path) -> list[str]:
    test = load_split(folder, dataset.name, "test")
    captions = test.captions["caption"].tolist()
    training_captions = load_split(folder, dataset.name, "train").captions["caption"].tolist()
    training_captions = read_vocabulary_captions(study.text.vocabulary) if study.text.vocabulary else training_captions
    annotation_notes = read_json(folder / "captions/report.json").get("annotations", {})
    notes = [
        *_untrained_notes(study),
        *_random_feature_notes(study),
        overlap_sentence(annotation_notes),
        counts_sentence(annotation_notes),
        *reading_sentences(annotation_notes),
        _shared_words_note(test.captions),
    ]
    if "item_to_text" in study.evaluation.directions and test.captions["video_id"].duplicated().any():
        subject, noun = ("An image", "image") if dataset.items == "images" else ("A clip", "clip")
        notes.append(_ITEM_TO_TEXT_NOTES[study.evaluation.item_to_text].format(subject, noun))
    if "binary" in study.evaluation.settings:
        left_out = count_binary_left_out(test.captions, test.items)
        notes += [f"Binary leaves out {count:,} captions {why}" for why, count in left_out.items()]
    notes += _ceiling_notes(study, dataset, test)
    notes += (
        [_repeated_frames_note(study, read_csv(folder / "videos/report.csv"))]
        if study.frames.sampling == "stride"
        else []
    )
    if study.backbone.kind not in ("clip", "viclip", "miniclip_towers") or not _uses_backbone(study):
        return notes
    keys, max_words = study.text, study.text.max_words
    tokenizer = make_tokenizer(keys.tokenizer, training_captions, keys.max_vocabulary)
    notes.append(_cut_note(count_truncated(tokenizer.count(captions), max_words), len(captions), max_words))
    if study.text.tokenizer == "miniclip":
        ids = tokenizer.encode(captions, max_words)
        unknown = 100 * (ids == 1).sum() / max(1, (ids > 0).sum())
        notes.append(f"{unknown:.1f}% of the words of test captions occur in no training caption and share one token")
    return notes


def _ceiling_notes(study: Study, dataset: Dataset, test: SplitTables) -> list[str]:
    """The greatest R@1 of settings in which items are the same frame by frame, or captions word for word."""
    notes, captions, items = [], test.captions.reset_index(drop=True), test.items.reset_index(drop=True)
    twins = bool((items["reversed"] == 1).any())
    for setting in study.evaluation.settings:
        if setting == "binary" or not (twins or setting == "test"):
            continue
        selected = setting_selection(setting, captions, items)
        asked = captions.iloc[selected.captions], items.iloc[selected.items]
        ceilings = {way: recall_ceiling(*asked, way) for way in study.evaluation.directions}
        shown = [
            f"{value:.1f}% ({short_direction(way, dataset.items)})"
            for way, value in ceilings.items()
            if round(value, 1) < 100
        ]
        if shown:
            notes.append(
                f"{SETTING_TITLES[setting]}: no R@1 beyond {' and '.join(shown)} can be expected, as "
                f"{dataset.items} are the same frame by frame, or captions the same word for word"
            )
    return notes


def _shared_words_note(captions: pd.DataFrame) -> str:
    """That captions of several items are the same text, for which only one item counts as right."""
    texts = pd.Series(same_text_labels(captions["caption"].tolist()))
    owners = pd.DataFrame({"text": texts, "item": captions["video_id"].to_numpy()}).drop_duplicates()
    shared = owners["text"].value_counts()
    count = int(texts.isin(shared.index[shared > 1]).sum())
    if not count:
        return ""
    return (
        f"{count:,} of {len(captions):,} test captions have the words of a caption of another item, which counts as "
        "wrong for them (`answers: same_text` of the data set counts it as right, beside this)"
    )


def _cut_note(cut: int, captions: int, max_words: int) -> str:
    if not cut:
        return f"No test caption is longer than the {max_words} tokens that the text tower reads"
    share = 100 * cut / captions
    return f"{cut:,} of {captions:,} test captions ({share:.1f}%) are cut at {max_words} tokens"


def _model_cut_notes(study: Study, files: ReportFiles, results: Results) -> list[str]:
    """Notes on captions that models by name cut, whose tokenizers were asked when captions were encoded."""
    counts = read_captions_cut(study.runs(), files.ranks) if files.ranks else {}
    owned = [(_cut_note(**cut), results.labels[method]) for (method, _), cut in counts.items()]
    notes = list(dict.fromkeys(note for note, _ in owned))
    if len(notes) == 1:  # of the one backbone
        return notes
    return _notes_with_owners((f"{note[0].lower()}{note[1:]}", label) for note, label in owned)


def _notes_with_owners(owned: Iterable[tuple[str, str]]) -> list[str]:
    """Each note once, behind the names of all rows that it is about."""
    owners: dict[str, dict[str, None]] = {}
    for note, label in owned:
        owners.setdefault(note, {})[label] = None
    return [f"Of {', '.join(labels)}: {note}" for note, labels in owners.items()]


def _same_start_notes(study: Study, records: dict[tuple[str, int], dict[str, Any]], results: Results) -> list[str]:
    """A note on methods whose seeds all start from equal weights, as CLIP4Clip's with heads without random weights."""
    starts: dict[str, list[str | None]] = {}
    for (method, _), record in records.items():
        if method in results.trained() and not study.methods[method].precomputed:
            starts.setdefault(method, []).append(record.get("start"))
    same_start = [
        m for m, hashes in starts.items() if len(hashes) > 1 and hashes[0] is not None and len(set(hashes)) == 1
    ]
    names = ", ".join(results.labels[method] for method in same_start)
    sentence = "all seeds start from the same weights, so that they differ only in the order of batches and in dropout"
    return [f"Of {names}: {sentence}"] if same_start else []


_ITEM_TO_TEXT_NOTES = {
    "all_captions": "{} searches all captions, and its rank is that of its own best one",
    "best_caption": "{} searches the best caption of each {}, as in CLIP4Clip",
}


def precomputed_notes(study: Study, records: dict[tuple[str, int], dict[str, Any]]) -> list[str]:
    """Notes on which rows are precomputed files, and what their runs recorded about them."""
    labels_by_origin: dict[str, list[str]] = {}
    for name, method in study.methods.items():
        if method.precomputed:
            labels_by_origin.setdefault(PRECOMPUTED_ORIGINS[method.model], []).append(method.label or name)
    notes = [f"{origin}: {', '.join(labels)}" for origin, labels in labels_by_origin.items()]
    owned = []
    for (name, seed), record in records.items():
        method = study.methods[name]
        seeded = f", seed {seed}" if method.brought_per_seed else ""
        owned += [(note, f"{method.label or name}{seeded}") for note in record.get("notes", [])]
    return notes + _notes_with_owners(owned)


def _tuning_notes(study: Study, records: dict[tuple[str, int], dict[str, Any]], trials: pd.DataFrame) -> list[str]:
    """Which keys trials chose, from how many, and whether the choice was part of what was repeated; if not, how far
    another choice could have been from it.
    """
    if study.sweep is None or not study.sweep.tunes:
        return []
    chosen = []
    for name in study.trained():
        runs = {seed: trial_words(records[name, seed]["tuned"]) for seed in study.seeds_of(name)}
        by_seed = "; ".join(f"seed {seed}: {keys}" for seed, keys in runs.items())
        keys = by_seed if len(set(runs.values())) > 1 else next(iter(runs.values()))
        chosen.append(f"{study.methods[name].label or name} ({keys})")
    number, search = len(study.trials_of(study.trained()[0])), study.sweep.search
    kind = "random trials" if search == "random" else "trials, all combinations"
    if study.sweep.repeat:
        how = "once for each seed, so the spread over seeds includes the choice"
    else:
        how = f"once for all seeds, with seed {study.sweep.seed}, so the spread over seeds does not include the choice"
    return [
        f"Keys of each method are those of the best of {number:,} {kind} on validation, chosen {how}: "
        f"{', '.join(chosen)}",
        *([] if study.sweep.repeat else _other_choices(study, records, trials)),
    ]


def _other_choices(study: Study, records: dict[tuple[str, int], dict[str, Any]], trials: pd.DataFrame) -> list[str]:
    """How far below the chosen keys those are on validation that another seed of the trials might have chosen.

    Trials have one seed. Two scores are as good as equal that differ by less than two standard deviations of the
    difference of two runs, with the spread of the method's own runs over seeds.
    """
    parts = []
    for name, tried in trials.groupby("method", sort=False):
        metric, best = tried["metric"].iloc[0], tried.loc[tried["place"] == 1, "score"].iloc[0]
        runs = [records[name, seed]["best"].get(f"valid_{metric}") for seed in study.seeds_of(name)]
        if len(runs) < 2 or None in runs:
            continue
        behind = (tried["score"] - best).abs()
        alike = behind[(behind <= 2 * np.sqrt(2) * np.std(runs, ddof=1)) & (tried["place"] > 1)]
        if len(alike):
            size = f"{alike.max():.{LOSS_DECIMALS if metric == 'loss' else 1}f} in {METRIC_TITLES.get(metric, metric)}"
            label = study.methods[str(name)].label or name
            parts.append(f"{label} {count_noun(len(alike), 'trial')}, up to {size} from the chosen one")
    return (
        ["Trials that validation cannot tell from the chosen ones, which no interval contains: " + "; ".join(parts)]
        if parts
        else []
    )


def _rerank_notes(study: Study, files: ReportFiles, results: Results) -> list[str]:
    """Notes on rows of methods that score only the first results of another method."""
    runs: dict[str, list[dict[str, Any]]] = {}
    for (name, _), facts in (read_reranked(study.runs(), files.ranks) if files.ranks else {}).items():
        runs.setdefault(name, []).append(facts)
    notes = []
    for name, every in runs.items():
        pairs = fmean(facts["share"] for facts in every)
        if by_prompt := every[0].get("binary_by_prompt"):
            values = join_names([f"{value:.1f}" for value in by_prompt])
            notes.append(f"Of {results.labels[name]}: accuracy in Binary by one prompt alone is {values}")
        if every[0].get("binary_only"):
            what = f"only Binary’s pairs are scored, {pairs:.3g}% of all"
        else:
            what = _scored_results(every, pairs, results)
        own = seeds_of_options(study.methods[name].options.get("encoder_options", {}))
        seeds = [f"each seed has its own {join_names(list(own))}, over which intervals are too"] if own else []
        notes += [f"Of {results.labels[name]}: {note}" for note in (what, *every[0].get("notes", ()), *seeds)]
    return notes


def _scored_results(every: list[dict[str, Any]], pairs: float, results: Results) -> str:
    """Which pairs of a method's runs are scored, ``pairs`` percent of all, and how often the truth is among them."""
    shares = []
    for view in every[0]["inside"]:
        setting, direction = view.split(" ")
        share = fmean(facts["inside"][view] for facts in every)
        shown = f"{share:.1f}" if share == 100 else f"{min(share, 99.9):.1f}"  # 100 is all, and nothing less
        shares.append(f"{shown}% ({SETTING_TITLES[setting]}, {results.short(direction)})")
    first = results.labels[every[0]["first"]]
    return (
        f"only the first {every[0]['top']} results of {first}, and those that tie with the last of them, are scored, "
        f"{pairs:.3g}% of all pairs; the truth is among them for {', '.join(shares)} of queries; any other query keeps "
        f"its rank in {first}"
    )


def _near_tie_notes(study: Study, files: ReportFiles) -> list[str]:
    """Notes on rows in which rounding, and not the order of frames, may tell a clip from its twin."""
    shares = read_near_ties(study.runs(), files.ranks) if files.ranks else {}
    largest: dict[str, float] = {}
    for (name, _), share in shares.items():
        largest[name] = max(share, largest.get(name, 0.0))
    return [
        f"Of {study.methods[name].label or name}: the scores of a clip and its twin differ by less than 1e-5 of their "
        f"size for {100 * share:.0f}% of Binary’s queries; there rounding may decide, not what the model sees"
        for name, share in largest.items()
    ]


def _uses_backbone(study: Study) -> bool:
    """Whether any method uses the study's own backbone."""
    return any(method.uses_study_backbone for method in study.methods.values())


def _untrained_notes(study: Study) -> list[str]:
    """Notes on methods that were not trained."""
    notes, zero_shot_methods = [], {name: m for name, m in study.methods.items() if m.model == "zero_shot"}
    if not study.trained():
        seeded = study.pretrains_per_seed or any(method.brought_per_seed for method in study.methods.values())
        trained_part = "Only the backbone is" if study.pretraining else "Nothing is"
        notes.append(f"{trained_part} trained by gradient descent" + ("" if seeded else NO_SEEDS_NOTE))
    random = [method.label or name for name, method in zero_shot_methods.items() if method.options.get("untrained")]
    if random:
        notes.append(f"{', '.join(random)}: a network with random weights, on purpose (untrained: true), for reference")
    return notes


def _random_feature_notes(study: Study) -> list[str]:
    """A note on rows whose visual tower is frozen with random weights, so that its features were never trained."""
    keys = study.backbone
    part = "lower part of the image network" if keys.kind == "miniclip_towers" else "visual tower"
    lower = keys.kind == "miniclip_towers" and keys.architecture == "resnet18" and not keys.weights
    if not (study.has_random_features or lower):
        return []
    rows = [
        method.label or name
        for name, method in study.methods.items()
        if name in study.trained() and method.uses_study_backbone and "visual" in method.training.freeze
    ]
    how_drawn = "drawn once for all runs" if lower else "drawn again for each seed"
    sentence = f"random features: the {part} has random weights, {how_drawn}, and is frozen"
    return [f"Of {', '.join(rows)}: {sentence}"] if rows else []


def _repeated_frames_note(study: Study, report: pd.DataFrame) -> str:
    """A note on how many clips have fewer frames than a model samples."""
    lengths, max_frames = report.loc[report["status"] == "ok", "frames"], study.frames.max_frames
    short = int((lengths < max_frames).sum())
    if not short:
        return f"No clip has fewer than {max_frames} frames"
    return (
        f"{short:,} of {len(lengths):,} clips have fewer than {max_frames} frames, so some of their frames are repeated"
    )


# ---- Figures -------------------------------------------------------------------------------------------------------


def make_figures(
    study: Study,
    dataset: Dataset,
    files: ReportFiles,
    histories: Mapping[tuple[str, int], str],
    rank_folder: str,
    folder: Path,
) -> None:
    """Draw intervals, pairs, the gap, training curves, rank curve and ranks of methods: each as PNG, PDF and SVG.

    Where a study searches in both directions, the figures show captions searching items.
    """
    results = load_results(study, dataset, files)
    direction = evaluated_directions(results, study.evaluation.settings[0])[0]
    labels, baselines, confidence = results.labels, results.baselines, results.confidence
    selected = f"valid_{study.training.select_metric}"
    metric = study.figure_metric()
    drawn = (_drawn_intervals(results), labels, baselines, metric, direction, confidence)
    rendered = {
        "intervals": interval_forest(*drawn),
        "intervals_column": interval_forest(*drawn, stacked=True),
        "pairs": pair_forest(results.pairs, labels, metric, direction, confidence),
        "gap": gap_slope(
            results.intervals, results.gaps, labels, baselines, direction=direction, confidence=confidence
        ),
        "training_curves": training_curves(_read_histories(histories), labels, baselines, (selected, "loss")),
        "rank_curve": rank_curve(
            _read_all_ranks(study, rank_folder),
            _gallery_sizes(results.metrics, direction),
            labels,
            baselines,
            direction,
        ),
        "ranks": rank_intervals(
            trusted_ranks(results),
            labels,
            {s: results.deciding(s) for s in study.evaluation.settings},
            direction,
            confidence,
        ),
    }
    for name, figure in rendered.items():
        style.save(style.with_condition(figure, results.given), folder / name)


def _drawn_intervals(results: Results) -> pd.DataFrame:
    """Intervals without the ends of accuracies that are 50 by construction, which tables print without them too."""
    rows = results.intervals
    is_accuracy = (rows["setting"] == "binary") & (rows["metric"] == ACCURACY_METRIC)
    tied = np.array([ties_every_query(results, row.method, row.direction) for row in rows.itertuples()], dtype=bool)
    ends = [name for name in ("low", "high", "boot_low", "boot_high") if name in rows]
    return rows.assign(**{name: rows[name].mask(is_accuracy & tied) for name in ends})


def _read_histories(histories: Mapping[tuple[str, int], str]) -> pd.DataFrame:
    histories_table = [
        read_csv(path).assign(method=method, seed=seed)
        for (method, seed), path in histories.items()
        if Path(path).read_text().strip()  # closed-form methods have no epochs
    ]
    return pd.concat(histories_table) if histories_table else pd.DataFrame()


def _read_all_ranks(study: Study, folder: str) -> pd.DataFrame:
    rank_tables = read_ranks(study.runs(), folder)
    return pd.concat(
        table.assign(method=method, seed=seed) for method, seeds in rank_tables.items() for seed, table in seeds.items()
    )


def _gallery_sizes(metrics: pd.DataFrame, direction: str) -> dict[str, int]:
    return metrics[metrics["direction"] == direction].groupby("setting")["gallery"].max().to_dict()
