"""Results that other tools recorded, as rows that a board quotes: ``rewind import results``.

Read are result files of MTEB and records of Every Eval Ever, of which R@1 (in Binary accuracy) from text to items
counts: what ``rewind board --quoted`` shows. What Rewind wrote itself (:mod:`rewind.exports.results`) names data set
and setting; of others the caller says them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from rewind.errors import RewindError, count_noun, label_fault
from rewind.exports.mteb import task_name
from rewind.io.files import write_spreadsheet
from rewind.io.schema import json_type_name, object_of
from rewind.io.strict import read_user_json
from rewind.tables.settings import SETTING_TITLES

MTEB_SCORES = ("expected_recall_at_1", "hit_rate_at_1", "recall_at_1")
"""Names of R@1 in MTEB's results, the first that is there: over all orders of ties, any right document, their share."""

_FIRST_PLACE = re.compile(r"(?:.*\.)?(?:recall|hit_rate|hits|hit|r)[ _@]*(?:at)?[ _@]*1|(?:.*\.)?accuracy", re.I)
# Identifiers and names of R@1 and accuracy in Every Eval Ever, where everybody names metrics as they like.


class Asked(NamedTuple):
    """What the caller says of numbers whose file does not: empty is what the file says."""

    data_set: str = ""
    setting: str = ""
    method: str = ""
    source: str = ""


class _Row(NamedTuple):
    method: str
    data_set: str
    setting: str
    value: float  # in percent
    source: str


def import_results(files: Sequence[Path], out: Path, asked: Asked) -> str:
    """Write the CSV of ``rewind board --quoted``; returns what is said of it.

    Raises:
        RewindError: naming file and key, for a file of another kind, a value that cannot be, two numbers of a method in
            one setting, or what neither file nor caller says.
    """
    found: dict[tuple[str, str, str], tuple[Path, _Row]] = {}
    for path in files:
        for row in _read(path, asked):
            if first := found.get(row[:3]):
                raise RewindError(
                    f"{path}: {', '.join(row[:3])}: a number of it is in {first[0]} too; give each file's method a "
                    "name of its own (--method)."
                )
            found[row[:3]] = (path, row)
    rows = [row for _, row in found.values()]
    write_spreadsheet(out, pd.DataFrame(rows, columns=list(_Row._fields)))
    methods = count_noun(len({(row.method, row.data_set) for row in rows}), "method")
    return f"{out}: {count_noun(len(rows), 'number')} of {methods}; `rewind board STUDY --quoted {out}` shows them"


def _read(path: Path, asked: Asked) -> list[_Row]:
    content = read_user_json(path)
    if isinstance(content, dict) and "task_name" in content and "scores" in content:
        rows = list(_mteb_rows(path, content, asked))
    elif isinstance(content, dict) and "evaluation_results" in content:
        rows = list(_every_eval_ever_rows(path, content, asked))
    else:
        raise RewindError(
            f"{path}: neither a result of MTEB (task_name, scores) nor a record of Every Eval Ever "
            "(evaluation_results); name another file."
        )
    if not rows:
        raise RewindError(f"{path}: no R@1 or accuracy from text to items is in it; name another file.")
    return rows


def _mteb_rows(path: Path, content: dict[str, Any], asked: Asked) -> Iterator[_Row]:
    task = _text(path, "task_name", content["task_name"])
    scores = object_of(content["scores"], f"{path}: scores")
    split = "test" if "test" in scores else next(iter(scores), "")
    entries = scores.get(split)
    if not isinstance(entries, list) or len(entries) != 1:
        count = len(entries) if isinstance(entries, list) else 0
        raise RewindError(f"{path}: scores.{split}: {count} subsets, where one is read; keep one.")
    entry = object_of(entries[0], f"{path}: scores.{split}")
    name = next((name for name in MTEB_SCORES if name in entry), "")
    if not name:
        raise RewindError(f"{path}: scores.{split}: none of {', '.join(MTEB_SCORES)} is there; name another file.")
    value = 100 * _number(path, f"scores.{split}.{name}", entry[name], most=1)
    setting = asked.setting
    for known in SETTING_TITLES if asked.data_set else ():
        if task == task_name(asked.data_set, known, "item_to_text"):
            return  # the other direction
        if task == task_name(asked.data_set, known, "text_to_item"):
            setting = setting or known
    yield _row(path, asked._replace(setting=setting), "", _mteb_model(path), "", value, f"MTEB, {task}")


def _mteb_model(path: Path) -> str:
    """The model's name in the file that MTEB writes beside its results; empty without one."""
    beside = path.with_name("model_meta.json")
    meta = read_user_json(beside) if beside.is_file() else {}
    return _text(beside, "name", meta["name"]) if isinstance(meta, dict) and meta.get("name") else ""


def _every_eval_ever_rows(path: Path, content: dict[str, Any], asked: Asked) -> Iterator[_Row]:
    model = object_of(content.get("model_info"), f"{path}: model_info")
    ours = object_of(content.get("eval_library", {}), f"{path}: eval_library").get("name") == "rewind"
    results = content["evaluation_results"]
    if not isinstance(results, list):
        raise RewindError(f"{path}: evaluation_results: a list is needed, not {json_type_name(results)}.")
    for number, result in enumerate(results):
        where = f"evaluation_results[{number}]"
        result = object_of(result, f"{path}: {where}")
        config = object_of(result.get("metric_config"), f"{path}: {where}.metric_config")
        named = _text(path, f"{where}.evaluation_name", result.get("evaluation_name"))
        metric = str(config.get("metric_id") or config.get("metric_name") or named)
        if not _FIRST_PLACE.fullmatch(metric) or (ours and named.endswith("item to text")):
            continue
        most = 100 if config.get("metric_unit") == "percent" else config.get("max_score")
        if most not in (1, 100):
            raise RewindError(f"{path}: {where}.metric_config: max_score is neither 1 nor 100; correct the record.")
        details = object_of(result.get("score_details"), f"{path}: {where}.score_details")
        value = 100 / most * _number(path, f"{where}.score_details.score", details.get("score"), most)
        data = object_of(result.get("source_data", {}), f"{path}: {where}.source_data")
        titles = {f", {title}, text to item": setting for setting, title in SETTING_TITLES.items()}
        setting = next((setting for end, setting in titles.items() if ours and named.endswith(end)), "")
        data_set = str(data.get("source_id", "")) if ours else ""
        label = _text(path, "model_info.name", model.get("name"))
        cited = _text(path, "evaluation_id", content.get("evaluation_id"))
        if asked.setting and ours and setting != asked.setting:
            continue
        yield _row(path, asked, data_set, label, setting, value, f"Every Eval Ever, {cited}")


def _row(path: Path, asked: Asked, data_set: str, method: str, setting: str, value: float, source: str) -> _Row:
    """A row with what the caller says, or else the file."""
    found = {
        "--method": asked.method or method,
        "--data-set": asked.data_set or data_set,
        "--setting": asked.setting or setting,
        "--source": asked.source or source,
    }
    for option, text in found.items():
        if not text:
            raise RewindError(f"{path}: it names no {option[2:].replace('-', ' ')} that a board has; give {option}.")
        if fault := label_fault(text):
            raise RewindError(f"{path}: {option} {text!r:.60}: {fault}.")
    if found["--setting"] not in SETTING_TITLES:
        raise RewindError(f"--setting: {found['--setting']!r:.60} is not one of {', '.join(SETTING_TITLES)}.")
    return _Row(found["--method"], found["--data-set"], found["--setting"], round(value, 6), found["--source"])


# ---- Values of anybody's JSON --------------------------------------------------------------------------------------


def _text(path: Path, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise RewindError(f"{path}: {key}: a text is needed, not {json_type_name(value)}.")
    return value


def _number(path: Path, key: str, value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise RewindError(f"{path}: {key}: {value!r:.40} is not a number from 0 to {most:g}.")
    return float(value)
