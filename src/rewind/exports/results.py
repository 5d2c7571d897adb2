"""A study's numbers in the forms of other tools: MTEB, model cards and results of the Hub, Every Eval Ever.

Whatever a form has a place for is kept: values, intervals, numbers of seeds and queries, the digest of the data. What
it has no place for is named in its free text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from rewind.exports.mteb import task_name
from rewind.io.files import read_csv, read_json, write_text
from rewind.ranking_metrics import METRICS
from rewind.report.board.studies import BASELINE, StudyCard
from rewind.tables.settings import SETTING_TITLES, accuracy_name

# ---- All forms of a study ------------------------------------------------------------------------------------------


def export_results(results: Path, card: StudyCard, out: Path) -> list[str]:
    """Write every method's numbers in every form below ``out``; returns the names of the files, in order.

    What :func:`shared_texts` has, ``eval_results/<method>.yaml`` and ``every_eval_ever/<method>.json``.
    """
    records = first_records(results, card)
    texts = shared_texts(results, card, records)
    for method, rows in _model_intervals(results, card):
        texts[f"eval_results/{method}.yaml"] = hub_results(card, rows, _digest(records, method))
        texts[f"every_eval_ever/{method}.json"] = json_text(
            every_eval_ever(card, method, rows, records.get(method, {}))
        )
    for name, text in texts.items():
        write_text(out / name, text)
    return list(texts)


def shared_texts(results: Path, card: StudyCard, records: Mapping[str, Any]) -> dict[str, str]:
    """``mteb/<method>/<task>.json`` of every method, and ``model-index/<method>.yaml`` of those that are no baselines.

    ``records`` are those of :func:`first_records`.
    """
    metrics, texts = read_csv(results / "metrics.csv", ("method", "setting", "direction")), dict[str, str]()
    for method in card.methods:
        found = mteb_results(card, metrics[metrics["method"] == method], _digest(records, method))
        texts |= {f"mteb/{method}/{name}.json": json_text(content) for name, content in found.items()}
    for method, rows in _model_intervals(results, card):
        texts[f"model-index/{method}.yaml"] = model_index(card, method, rows, _digest(records, method))
    return texts


def first_records(results: Path, card: StudyCard) -> dict[str, Any]:
    """Method → ``run.json`` of its first run, where there is one."""
    paths = {method: sorted(results.glob(f"runs/{method}/seed*/run.json")) for method in card.methods}
    return {method: read_json(found[0]) for method, found in paths.items() if found}


def data_digests(records: Mapping[str, Any]) -> list[str]:
    """Digests of the data of runs, each once."""
    return sorted({_digest(records, method) for method in records} - {""})


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _digest(records: Mapping[str, Any], method: str) -> str:
    return str(records.get(method, {}).get("data_digest") or "")


def _model_intervals(results: Path, card: StudyCard) -> Iterator[tuple[str, pd.DataFrame]]:
    """Methods that are no baselines, and their rows of ``statistics/intervals.csv``."""
    table = read_csv(results / "statistics/intervals.csv", ("method", "setting", "direction", "metric"))
    for method, entry in card.methods.items():
        rows = table[table["method"] == method]
        if entry.kind != BASELINE and len(rows):
            yield method, rows


# ---- MTEB ----------------------------------------------------------------------------------------------------------

_MTEB_SCORES = {
    "R@1": ("expected_recall_at_1", 100.0),
    "R@5": ("expected_recall_at_5", 100.0),
    "R@10": ("expected_recall_at_10", 100.0),
    "MnR": ("expected_mean_rank", 1.0),
}
"""Metric → its name in tasks that ``rewind export mteb`` writes, and what one of theirs is of ours."""


def mteb_results(card: StudyCard, rows: pd.DataFrame, revision: str) -> dict[str, dict[str, Any]]:
    """Results of a method in the form of MTEB's result files, one for each setting and direction.

    Scores are means over seeds and have the names that the tasks of ``rewind export mteb`` give them: those of MTEB's
    own that count tied documents otherwise are left out. ``rows`` are those of ``metrics.csv`` of one method,
    ``revision`` is the digest of its data. The result maps the task to MTEB's ``TaskResult`` as plain values.
    """
    results = {}
    for (setting, direction), runs in rows.groupby(["setting", "direction"], sort=False):
        scores = {
            name: round(float(runs[metric].mean()) / unit, 6)
            for metric, (name, unit) in _MTEB_SCORES.items()
            if metric in runs and runs[metric].notna().all()
        }
        main = scores.get("expected_recall_at_1")
        if main is None:
            continue
        name = task_name(card.dataset, str(setting), str(direction))
        entry = scores | {"main_score": main, "hf_subset": "default", "languages": ["eng-Latn"]}
        results[name] = {
            "dataset_revision": revision or "not recorded",
            "task_name": name,
            "mteb_version": None,
            "scores": {"test": [entry]},
            "evaluation_time": None,
        }
    return results


# ---- Model cards of the Hub ----------------------------------------------------------------------------------------


def model_index(card: StudyCard, method: str, rows: pd.DataFrame, revision: str) -> str:
    """The ``model-index`` of a Hugging Face model card, as YAML.

    ``rows`` are those of ``statistics/intervals.csv`` of this method, ``revision`` is the digest of its data.
    """
    noun = "image" if card.items == "images" else "video"
    results = []
    for (setting, direction), cells in rows.groupby(["setting", "direction"], sort=False):
        title = SETTING_TITLES.get(str(setting), str(setting))
        words = ("text", noun) if direction == "text_to_item" else (noun, "text")
        data: dict[str, Any] = {"type": card.dataset, "name": f"{card.title}, {title}", "split": "test"}
        results.append(
            {
                "task": {"type": f"{words[0]}-to-{words[1]}-retrieval", "name": f"{words[0]} to {words[1]} retrieval"},
                "dataset": data | ({"revision": revision} if revision else {}),
                "metrics": [_model_index_metric(card, row) for row in cells.to_dict("records")],
            }
        )
    content = {"model-index": [{"name": card.methods[method].label, "results": results}]}
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _model_index_metric(card: StudyCard, row: Mapping[Any, Any]) -> dict[str, Any]:
    words = _seed_words(row)
    name = f"{_metric_name(row)}{_interval_words(card, row)}{words and f', {words}'}"
    return {"type": _metric_slug(row), "name": name, "value": round(float(row["estimate"]), 4)}


def _metric_name(row: Mapping[Any, Any]) -> str:
    return accuracy_name(str(row["setting"]), str(row["metric"]))


def _metric_slug(row: Mapping[Any, Any]) -> str:
    return re.sub(r"^R@", "recall_at_", _metric_name(row)).replace("@", "_at_").lower()


def _interval_words(card: StudyCard, row: Mapping[Any, Any]) -> str:
    if pd.isna(row["low"]) or pd.isna(row["high"]):
        return ""
    return f", {100 * card.confidence:g}% interval {row['low']:.4g} to {row['high']:.4g}"


def _seed_words(row: Mapping[Any, Any]) -> str:
    return f"mean over {int(row['seeds'])} seeds" if row.get("seeds", 1) > 1 else ""


# ---- The Hub's results of models -----------------------------------------------------------------------------------


def hub_results(card: StudyCard, rows: pd.DataFrame, revision: str) -> str:
    """The Hub's ``.eval_results/*.yaml`` of a model: an entry per setting and direction, of the deciding metric.

    The format has a place for the value alone: interval, seeds, queries and the digest of the data are in ``notes``.
    The Hub takes results of registered data sets; ``id`` and ``task_id`` are the study's own names, to be replaced by
    those under which the data set is registered. ``rows`` are those of ``statistics/intervals.csv`` of this method.
    """
    entries = []
    for row in rows.to_dict("records"):
        if row["metric"] == card.metrics.get(str(row["setting"])):
            task = f"{row['setting']}_{'t2v' if row['direction'] == 'text_to_item' else 'v2t'}"
            named = f"{_metric_name(row)}{_interval_words(card, row)}, n = {int(row['queries']):,}"
            notes = ", ".join(filter(None, [named, _seed_words(row), revision and f"data {revision[:12]}"]))
            value = round(float(row["estimate"]), 4)
            entries.append({"dataset": {"id": card.dataset, "task_id": task}, "value": value, "notes": notes})
    return yaml.safe_dump(entries, sort_keys=False, allow_unicode=True)


# ---- Every Eval Ever -----------------------------------------------------------------------------------------------

EVERY_EVAL_EVER = "0.3.0"
"""Version of the schema that is written (arXiv 2606.14516, ``eval.schema.json``)."""


def every_eval_ever(card: StudyCard, method: str, rows: pd.DataFrame, run: Mapping[str, Any]) -> dict[str, Any]:
    """A record of Every Eval Ever: every number of a method, with its interval.

    Args:
        rows: those of ``statistics/intervals.csv`` of this method.
        run: the ``run.json`` of its first run, whose date, version and digest of the data the record has, so that the
            same results give the same file.
    """
    revision = str(run.get("data_digest") or "")
    when = datetime.fromisoformat(str(run.get("date") or "1970-01-01")).replace(tzinfo=UTC)
    stamp = str(int(when.timestamp()))
    return {
        "schema_version": EVERY_EVAL_EVER,
        "evaluation_id": f"{card.name}/{method}/{stamp}",
        "retrieved_timestamp": stamp,
        "source_metadata": {
            "source_name": card.title,
            "source_type": "evaluation_run",
            "source_organization_name": "not stated",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "rewind", "version": str(run.get("version") or "unknown")},
        "model_info": {
            "name": card.methods[method].label,
            "id": f"rewind/{method}",
            "additional_details": {
                "study": card.name,
                "kind": card.methods[method].kind,
                "deployment_type": "self_deployed",
                "model_availability": "unknown",
            },
        },
        "evaluation_results": [_evaluation_result(card, row, revision) for row in rows.to_dict("records")],
    }


def _evaluation_result(card: StudyCard, row: Mapping[Any, Any], revision: str) -> dict[str, Any]:
    setting, direction, metric = str(row["setting"]), str(row["direction"]), str(row["metric"])
    config: dict[str, Any] = {"metric_id": f"rewind.{_metric_slug(row)}", "metric_name": _metric_name(row)}
    if known := METRICS.get(metric):
        config |= {"lower_is_better": known.lower_is_better}
        if known.unit.most is not None:  # ranks end where the gallery does, whose size is not known here
            least, most = known.range(0)
            config |= {"score_type": "continuous", "min_score": least, "max_score": most}
        config["metric_unit"] = "percent" if known.percent else known.unit.said
    else:  # of the study's own, whose code may not be here
        config["lower_is_better"] = False
    uncertainty: dict[str, Any] = {"num_samples": int(row["queries"])}
    if pd.notna(row["low"]) and pd.notna(row["high"]):
        uncertainty["confidence_interval"] = {
            "lower": float(row["low"]),
            "upper": float(row["high"]),
            "confidence_level": card.confidence,
            "method": str(row.get("procedure") or "not stated"),
        }
    return {
        "evaluation_name": f"{card.title}, {SETTING_TITLES.get(setting, setting)}, {direction.replace('_', ' ')}",
        "source_data": {
            "dataset_name": card.title,
            "source_type": "other",
            "source_id": card.dataset,
            **({"source_version": revision} if revision else {}),
        },
        "metric_config": config,
        "score_details": {
            "score": float(row["estimate"]),
            "uncertainty": uncertainty,
            "details": {"seeds": str(int(row.get("seeds", 1))), "clusters": str(int(row["clusters"]))},
        },
    }
