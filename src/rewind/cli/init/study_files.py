"""The files that ``rewind init`` writes: a dataset and a study file, with a comment on each value, and annotations."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import yaml

from rewind.cli.init.look import MediaReport
from rewind.cli.init.read import UserData, has_same_words, json_by_split
from rewind.cli.init.sizes import CLIPS_PER_JOB, Machine, choose_sizes
from rewind.cli.scaffold import DATASETS_FOLDER, STUDIES_FOLDER
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


@dataclass(frozen=True)
class StudySubject:
    """What a study is about."""

    name: str  # of the study and of its data set, in files
    title: str
    data: UserData  # the items, with their splits
    media: MediaReport | None  # their files; None where no clips are here
    split_changed: bool  # whether the splits differ from those in the user's files


def files_to_write(
    subject: StudySubject, machine: Machine, network: str, methods: dict[str, dict[str, Any]] | None
) -> dict[Path, str]:
    """Path → text of every file to write.

    Args:
        network: which is trained, see :class:`~rewind.cli.init.sizes.StudySizes`.
        methods: finished models; None: methods are trained.
    """
    name, data, media = subject.name, subject.data, subject.media
    images = media is not None and media.items == "images"
    splits_with_twins = set() if images else {item.split for item in data.items.values() if item.reverse}
    source, files = _source_keys(subject)
    is_judge = any("rerank" in keys for keys in (methods or {}).values())
    content = {
        "name": name,
        "title": subject.title,
        "command": " ".join(user_command().split()),
        "snakemake": snakemake_command(study=name),
        "machine": machine,
        "sizes": choose_sizes(data, media or MediaReport(Path()), machine, network),
        "images": images,
        "settings": ["binary"] if is_judge else list(evaluation_settings(data, media)),
        "methods": methods,
        "twins": "train" in splits_with_twins,
        "twins_everywhere": {*SPLITS} <= splits_with_twins,
    }
    dataset = content | {"source": source, "media": media} | _dataset_content(data, media)
    study_template = "finished_models.yaml" if methods else "training_study.yaml"
    files[DATASETS_FOLDER / f"{name}.yaml"] = _render("dataset.yaml", dataset)
    files[STUDIES_FOLDER / f"{name}.yaml"] = _render(study_template, content)
    return files


def _dataset_content(data: UserData, media: MediaReport | None) -> dict[str, Any]:
    """What the dataset file says of the clips."""
    lengths = sorted(media.seconds) if media else []
    max_missing, missing = _max_missing(data, media) if media else (0.0, "")
    return {
        "clips": len(data.items),
        "clips_per_job": CLIPS_PER_JOB,
        "clips_with_twins": sum(1 for item in data.items.values() if item.reverse),
        "median_seconds": lengths[len(lengths) // 2] if lengths else None,
        "max_missing": max_missing,
        "missing": missing,
        "image": Image(),
        "video": Video(),
    }


def _max_missing(data: UserData, media: MediaReport) -> tuple[float, str]:
    """The share of files that may be missing or broken, and why."""
    unusable = len(media.missing) + len(media.broken)
    share = math.ceil(100 * unusable / len(data.items)) / 100
    reason = (
        f"{unusable:,} of {len(data.items):,} are"
        if unusable
        else f"all {'images' if media.items == 'images' else 'clips'} exist"
    )
    if media.decoded < len(media.files):
        share = max(share, UNDECODED_LOSS_SHARE)
        reason += f", of {media.decoded:,} that were decoded" if media.decoded else ", but none was decoded"
    return share, reason


def _source_keys(subject: StudySubject) -> tuple[dict[str, Any], dict[Path, str]]:
    """Table or annotations, as the block ``source`` names them, and the files among them that have to be written.

    The user's own annotations are named as they are, unless they lack a split or their rows have to be changed.
    """
    name, data, media = subject.name, subject.data, subject.media
    if data.annotations and subject.split_changed:
        texts = json_by_split(data)
        paths = {split: DATASETS_FOLDER / f"{name}.{split}.json" for split in SPLITS}
        return {"annotations": {split: str(path) for split, path in paths.items()}}, {
            path: texts[split] for split, path in paths.items()
        }
    if data.annotations:
        return {"annotations": {split or "test": path for split, path in data.annotations.items()}}, {}
    if data.table and not subject.split_changed and not (media is not None and media.same):
        return {"table": data.table}, {}
    table = DATASETS_FOLDER / f"{name}.csv"
    return {"table": str(table)}, {table: _table_csv(data)}


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


# ---- Their texts -----------------------------------------------------------------------------------------------------

UNDECODED_LOSS_SHARE = 0.02  # share of clips that may turn out to be broken where not all were decoded
TEMPLATES_FOLDER = Path(__file__).parent / "templates"
COMMENT_COLUMN = 42  # characters of a line before its comment
_KEY_WITH_COMMENT = re.compile(r"^( *[^# ].*?)  (# .*)$", re.MULTILINE)


def _render(template: str, content: Mapping[str, Any]) -> str:
    """A template with its gaps filled and the comments of its keys in one column."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES_FOLDER),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["yaml"] = _quoted
    text = environment.get_template(template).render(content)
    return _KEY_WITH_COMMENT.sub(lambda line: f"{line[1]:<{COMMENT_COLUMN - 2}}  {line[2]}", text)


YamlValue = str | int | float | bool | None | Sequence[Any] | Mapping[str, Any]
_PLAIN_SCALAR = re.compile(r"[\w./ +-]+", re.ASCII)  # texts that may need no quotes in YAML


def yaml_scalar(value: YamlValue) -> str:
    """A value as YAML on one line.

    >>> yaml_scalar({"epochs": 5, "lr": 1e-4, "head": None, "name": "yes"})
    '{epochs: 5, lr: 1.0e-04, head: null, name: "yes"}'
    """
    if isinstance(value, str):
        # Quotes are left out only where YAML reads the same text again: `yes` and `1.5` need them.
        is_plain = _PLAIN_SCALAR.fullmatch(value) and value == value.strip()
        return value if is_plain and yaml.safe_load(value) == value else json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        # 1e-05 without a decimal point would be a text to YAML 1.1.
        return f"{value:g}" if value == int(value) or abs(value) >= 1e-3 else f"{value:.1e}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{yaml_scalar(str(name))}: {yaml_scalar(part)}" for name, part in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(yaml_scalar(part) for part in value) + "]"
    return str(value)


def _quoted(value: YamlValue) -> str:
    """A value as YAML in which nothing looks like the comment of its line."""
    return yaml_scalar(value).replace("  # ", r" \u0020# ")
