"""``report.html``: tables, figures, the retrieval explorer, and what ran on what."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.config import Dataset, Study
from rewind.figures.ranks import ranks_to_draw
from rewind.io.files import read_csv, read_json, write_text
from rewind.report.answer import study_findings
from rewind.report.explorer import MAX_BYTES_IN_PAGE, Explorer, ScoredSplit
from rewind.report.page.document import (
    Page,
    figure_captions,
    html_figure,
    html_paragraph,
    html_section,
    render_page,
    table_section,
    text_table,
)
from rewind.report.page.headline import headline_html, question_rows
from rewind.report.page.strips import STRIP_FRAMES, STRIP_SIDE, PageStrips, make_strips
from rewind.report.run_pictures import item_picture, read_similarity
from rewind.report.study import ReportFiles, load_results, setting_sizes
from rewind.report.time_answer import QUESTION, chance_by_method
from rewind.statistics.chance import ALL_TIED
from rewind.statistics.rank_files import read_ranks
from rewind.tables.best_method import Finding
from rewind.tables.footnotes import Footnotes
from rewind.tables.results import Results, evaluated_directions, leading_direction, trusted_ranks
from rewind.video.shards import EXTRACTED_FOLDER, find_clip

# ---- Sections: every run, the sweep, coverage of the data set ------------------------------------------------------

MAX_UNUSABLE_SHOWN = 50


def runs_section(files: ReportFiles, results: Results) -> list[str]:
    rows: list[dict[str, Any]] = []
    commits, versions, commands, digests = (Counter[str]() for _ in range(4))
    for (method, seed), path in files.records.items():
        record = read_json(path)
        git = record.get("git") or {}
        commits[_commit_text(record, git)] += 1
        versions[", ".join(f"{name} {version}" for name, version in record.get("packages", {}).items())] += 1
        commands[str(record.get("command"))] += 1
        digests[record.get("data_digest") or "of a version that kept no hash"] += 1
        rows.append(
            {
                "method": results.labels[method],
                "seed": str(seed),
                "trained parameters": record.get("trained_parameters"),
                "best epoch": (record.get("best") or {}).get("epoch"),
                "seconds": record.get("seconds"),
                "memory (MB)": record.get("peak_memory_mb"),
                "device": ", ".join(filter(None, [*_device_names(record), record.get("instance")])),
                "code": record.get("code"),
            }
        )
    numbers = ("trained parameters", "best epoch", "seconds", "memory (MB)")
    table = pd.DataFrame(rows, dtype=object)
    return [
        text_table(table, qualified_title("Every run, from its run.json", results.given), numbers),
        html_paragraph("Commits: " + "; ".join(f"{name} ({count} runs)" for name, count in commits.items()) + "."),
        html_paragraph("Packages: " + "; ".join(versions) + "."),
        html_paragraph("Content of the data set: " + "; ".join(digests) + "."),
        html_paragraph("Commands: " + "; ".join(f"{typed} ({count} runs)" for typed, count in commands.items()) + "."),
    ]


def _commit_text(record: dict[str, Any], git: dict[str, Any]) -> str:
    """The commit that a run was computed with; for an installed release its version."""
    if git.get("commit") is None and record.get("version"):
        return f"none, version {record['version']}"
    return f"{str(git.get('commit'))[:10]}{' with edits' if git.get('dirty') else ''}"


def _device_names(record: dict[str, Any]) -> list[str]:
    return (record.get("hardware") or {}).get("devices", [])


def qualified_title(title: str, condition: str) -> str:
    return f"{title}, {condition}" if condition else title


def sweep_section(files: ReportFiles, table: str, condition: str) -> list[str]:
    choice = read_json(files.best)
    sentence = html_paragraph(f"{choice['max_frames']} frames a clip, chosen {choice['chosen']}.")
    rows = read_csv(table)
    if "valid_sum" not in rows or rows.empty:
        return [sentence]
    return [
        sentence,
        text_table(
            rows.astype(object), qualified_title("Validation scores of the sweep", condition), tuple(rows.columns)
        ),
    ]


def coverage_section(files: ReportFiles, data: Path, noun: str) -> list[str]:
    items, report = read_csv(data / "items.csv"), read_csv(files.videos)
    usable = items.assign(usable=items["status"] == "ok", twin=items["reversed"] == 1)
    rows = [
        {
            "split": split,
            "originals": int((~part["twin"]).sum()),
            "usable": int((part["usable"] & ~part["twin"]).sum()),
            "twins": int(part["twin"].sum()),
            "usable twins": int((part["usable"] & part["twin"]).sum()),
        }
        for split, part in usable.groupby("split", sort=False)
    ]
    unusable = report[report["status"] != "ok"]
    noted = report[(report["status"] == "ok") & report["reason"].fillna("").astype(bool)]
    elements = [
        text_table(
            pd.DataFrame(rows).astype(object),
            f"{noun.capitalize()} by split",
            ("originals", "usable", "twins", "usable twins"),
        )
    ]
    for rows, what in ((unusable, "are not usable"), (noted, "are used with a note")):
        if len(rows):
            shown = rows[["item_id", "status", "reason"]].head(MAX_UNUSABLE_SHOWN)
            more = f"; the first {len(shown)}" if len(rows) > len(shown) else ""
            elements.append(text_table(shown, f"{len(rows):,} of {len(report):,} source {noun} {what}{more}"))
    if unusable.empty:
        elements.append(html_paragraph(f"All {len(report):,} source {noun} are usable."))
    return elements


# ---- The page ------------------------------------------------------------------------------------------------------

BEYOND_THE_BAR = (
    " A line may reach beyond its bar: it is found by resampling queries, the bar from the spread over seeds and "
    "queries. Tests follow the bar."
)
EXTRACT_HINT = "once `rewind clips extract {} --split test` has written them next to the data"


@dataclass(frozen=True)
class PageInputs:
    """Files of other jobs: a folder of tables, pictures, a folder of ranks, a matrix per run, the sweep's table."""

    tables: Path
    pictures: list[Path]
    ranks: str
    similarity: dict[tuple[str, int], str]
    sweep: str


def make_page(
    study: Study,
    dataset: Dataset,
    files: ReportFiles,
    page_inputs: PageInputs,
    data: Path,
    result: Path,
    page_data: Path,
) -> None:
    """Write the study's page.

    Args:
        data: the data set's results folder; clips that do not fit into the page are linked there.
        result: the HTML file.
        page_data: folder next to it for what the page of a large study loads on demand; empty for other studies.
    """
    results = load_results(study, dataset, files)
    explorer, split = _build_explorer(study, page_inputs, data, results)
    strips = _build_strips(split, data, min(STRIP_SIDE, study.frames.size))
    clips = [_clip_link(data, path, result.parent) if path else "#" for path in split.items["path"]]
    tables, copies = table_section(page_inputs.tables, study.tables.prefix)
    figures = _figure_elements(page_inputs.pictures, study, results)
    intervals_figure = figures.pop("intervals", "")
    other_figures = '<div class="figures">' + "\n".join(figures.values()) + "</div>"
    findings = study_findings(results, study.evaluation.settings)
    sections = {
        "answer": html_section(
            "answer", "Answer", _answer_section(study, dataset, results, findings, intervals_figure)
        ),
        "tables": html_section("tables", "Tables", '<div class="sheets">', *tables, "</div>"),
        "figures": html_section("figures", "Figures", other_figures, folded=True),
        "runs": html_section("runs", "Runs", *runs_section(files, results), folded=True),
        "sweep": html_section(
            "sweep", "Number of frames", *sweep_section(files, page_inputs.sweep, results.given), folded=True
        ),
        "coverage": html_section(
            "coverage", "Coverage", *coverage_section(files, data, _items_noun(dataset)), folded=True
        ),
    }
    names = {"sweep": "Number of frames"}
    folder = page_data.name if explorer.bytes() > MAX_BYTES_IN_PAGE else ""
    document = Page(
        title=study.title or study.name,
        question=QUESTION if any(finding.verdicts for finding in findings) else "",
        subtitle=qualified_title(_subtitle(study, dataset, split), results.given),
        sections=sections,
        names=names,
        explorer=explorer.data(
            results.labels,
            results.baselines,
            clips,
            strips.numbers(),
            dataset.items,
            folder,
            begin=first_comparison(results, {method for method, _ in explorer.runs}),
        ),
        strips=strips.content(),
        clips=_clips_text(strips, len(clips), dataset.items if any(split.items["path"]) else "vectors", dataset.name)
        + _left_out_text(study, results),
        beside=bool(folder),
        copies=copies,
    )
    shutil.rmtree(page_data, ignore_errors=True)
    page_data.mkdir(parents=True)
    for address, text in explorer.files(folder).items() if folder else ():
        write_text(page_data / Path(address).name, text)
    write_text(result, render_page(document))


def _clip_link(data: Path, path: str, start: Path) -> str:
    """Link to a clip as a file of its own; for a packed clip, to where ``rewind clips extract`` writes it."""
    return os.path.relpath(
        data / (EXTRACTED_FOLDER + path.removeprefix("videos") if find_clip(data / path) else path), start
    )


def _build_explorer(
    study: Study, page_inputs: PageInputs, data: Path, results: Results
) -> tuple[Explorer, ScoredSplit]:
    """The retrieval explorer of the runs that were evaluated in every setting, see :func:`_explored_settings`."""
    settings, directions, methods = _explored_settings(study, results)
    ranks, explorer = read_ranks(study.runs(), page_inputs.ranks), None
    for (method, seed), path in page_inputs.similarity.items():
        if method not in methods:
            continue
        scores, split = read_similarity(data, study.dataset, path)
        if explorer is None:
            explorer = Explorer(split.captions, split.items, settings, directions)
        explorer.check(split, path)
        explorer.add(method, seed, scores, ranks[method][seed], path)
        del scores  # so that only one matrix is in memory
    assert explorer is not None  # every run is evaluated in some setting
    return explorer, explorer.split


def _explored_settings(study: Study, results: Results) -> tuple[list[str], list[str], list[str]]:
    """Settings and directions, and the methods with a matrix that were evaluated in all of them.

    These are all settings of the study; if no method was evaluated in all, those of the first method in as many
    directions as possible.
    """

    def is_evaluated(method: str, settings: list[str], directions: list[str]) -> bool:
        return not any(results.reason(method, setting, direction) for setting in settings for direction in directions)

    keys = study.evaluation
    scored = [method for method in results.labels if not study.methods[method].rerank]
    every_setting: list[str] = list(keys.settings)
    every_direction: list[str] = list(keys.directions)
    choices = [(every_setting, every_direction)]
    for directions in (every_direction, *([direction] for direction in every_direction)):
        for method in results.labels:
            settings = [setting for setting in every_setting if is_evaluated(method, [setting], directions)]
            choices.append((settings, directions))
    for settings, directions in choices:
        methods = [method for method in scored if is_evaluated(method, settings, directions)]
        if settings and methods:
            return settings, directions, methods
    return every_setting, every_direction, []


def first_comparison(results: Results, methods: Collection[str]) -> tuple[str, str] | None:
    """What the explorer begins with: the best method in Binary, next to one that cannot see the order of frames."""
    if results.chance.empty:
        return None
    rows = chance_by_method(results, leading_direction(results, "binary"))
    rows = rows[rows.index.isin(methods)].sort_values("estimate", ascending=False, kind="stable")
    blind = rows.index[rows["tied"] == ALL_TIED]
    seeing = rows.index[rows["tied"] != ALL_TIED]
    return (str(seeing[0]), str(blind[0])) if len(seeing) and len(blind) else None


def _build_strips(split: ScoredSplit, data: Path, size: int) -> PageStrips:
    paths, reversed_ = split.items["path"].tolist(), (split.items["reversed"] == 1).tolist()

    def read(item: int) -> np.ndarray:
        return item_picture(data, paths[item], reversed_[item], STRIP_FRAMES, size)

    if any(paths):
        return make_strips(read, split.twin.tolist(), reversed_)
    # Vectors have no pictures: one strip represents all items, and is encoded once.
    strips = make_strips(read, [-1], [False])
    strips.of_item = np.where((split.items["reversed"] == 1) & (split.twin >= 0), ~0, 0).tolist()
    return strips


def _clips_text(strips: PageStrips, count: int, items: str, dataset: str) -> str:
    if items == "vectors":
        return "The dataset consists of vectors without pictures: items are shown by name."
    embedded = strips.embedded()
    if items == "images":
        where = (
            "in this page"
            if embedded == count
            else f"in this page or, {EXTRACT_HINT.format(dataset)}, in the folder of the dataset"
        )
        return f"All {count:,} images are shown, cropped to the centre square that a model sees, {where}."
    moving = f"{STRIP_FRAMES} frames per clip, the centre square that a model sees, four per second"
    if embedded == count:
        return f"All {count:,} clips play inside this page: {moving}."
    return (
        f"{embedded:,} of {count:,} clips play inside this page ({moving}); the others, in the order of the file, play "
        f"{EXTRACT_HINT.format(dataset)}."
    )


def _subtitle(study: Study, dataset: Dataset, split: ScoredSplit) -> str:
    counts = (
        f"{len(split.items):,} test {_items_noun(dataset)}, {len(split.captions):,} captions, {len(study.runs())} runs"
    )
    return f"{dataset.title or dataset.name}: {counts}"


def _left_out_text(study: Study, results: Results) -> str:
    """What the explorer says of methods that it does not show."""
    explored = _explored_settings(study, results)[2]
    left_out = ", ".join(label for method, label in results.labels.items() if method not in explored)
    why = "was not evaluated in every setting" + " or scores only some pairs" * any(
        method.rerank for method in study.methods.values()
    )
    return f" Left out is what {why}: {left_out}." if left_out else ""


def _items_noun(dataset: Dataset) -> str:
    return "images" if dataset.items == "images" else "clips"


def _figure_elements(pictures: list[Path], study: Study, results: Results) -> dict[str, str]:
    """Name → HTML element of every figure that is not empty, in order."""
    figure_texts = figure_captions(study, results.labels)
    bounds = results.intervals[["low", "boot_low", "boot_high", "high"]].dropna()
    if ((bounds["boot_low"] < bounds["low"]) | (bounds["boot_high"] > bounds["high"])).any():
        figure_texts["intervals"] += BEYOND_THE_BAR
    empty = {"gap": results.gaps.empty, "pairs": results.pairs.empty, "training_curves": not results.trained()}
    metrics: dict[str, str] = {setting: results.deciding(setting) for setting in study.evaluation.settings}
    empty["ranks"] = not ranks_to_draw(
        trusted_ranks(results), metrics, evaluated_directions(results, study.evaluation.settings[0])[0]
    )
    empty["rank_curve"] = set(study.evaluation.settings) == {"binary"}
    paths = {path.stem: path for path in pictures}
    narrow = {"intervals": paths.pop("intervals_column", None)}
    return {
        name: html_figure(path, figure_texts[name], narrow.get(name))
        for name, path in paths.items()
        if not empty.get(name, False)
    }


def _answer_section(study: Study, dataset: Dataset, results: Results, findings: list[Finding], figure: str) -> str:
    facts = Footnotes(settings=setting_sizes(results), items=dataset.items, family=len(study.pairs()))
    return headline_html(question_rows(study, results, facts), findings, figure)
