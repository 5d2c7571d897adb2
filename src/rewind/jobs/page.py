"""``report.html``: tables, figures, the explorer, and what ran on what."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from rewind.files import read_csv, read_json, write_text
from rewind.jobs.examples import picture_of, read_similarity
from rewind.jobs.given import Given
from rewind.jobs.metrics import folder_of, read_ranks
from rewind.jobs.report import Files, load_results, of_every_run, report_files
from rewind.reporting.explorer import APART, Explorer
from rewind.reporting.figures.rank_intervals import drawn
from rewind.reporting.lists import Split
from rewind.reporting.order import trusted
from rewind.reporting.page.captions import captions_of
from rewind.reporting.page.document import Page, render
from rewind.reporting.page.parts import fragment, grid, paragraph, picture, section
from rewind.reporting.page.strips import FRAMES, SIDE, Strips, make_strips
from rewind.reporting.results import Results, directions
from rewind.study import Dataset, Study
from rewind.video.packed import EXTRACTED, find

UNUSABLE_SHOWN = 50
BESIDE = "once `rewind clips extract {} --split test` has written them beside the data"


@dataclass(frozen=True)
class Made:
    """What other jobs made: a folder of tables, pictures, a folder of ranks, a matrix per run, the sweep's table."""

    tables: Path
    pictures: list[Path]
    ranks: str
    similarity: dict[tuple[str, int], str]
    sweep: str


def page(given: Given) -> None:
    """Rule ``page``."""
    inputs = given.input
    pictures = [Path(path) for path in [*inputs.pictures, *inputs.get("gap_pictures", [])]]
    made = Made(Path(inputs.tables), pictures, folder_of(inputs.ranks), of_every_run(given, "similarity"), inputs.sweep)
    make_page(
        Study(**given.params.study),
        Dataset(**given.params.dataset),
        report_files(given),
        made,
        Path(inputs.item_table).parent,
        Path(given.output.page),
        Path(given.output.data),
    )


def make_page(study: Study, dataset: Dataset, files: Files, made: Made, data: Path, result: Path, beside: Path) -> None:
    """Write the study's page.

    Args:
        study, dataset: their files.
        files: what tables and figures are made from.
        made: what the page shows.
        data: the data set's results folder; clips that do not fit into the page are linked there.
        result: the page.
        beside: folder next to the page for what a page of a large study reads on demand; empty for the others.
    """
    results = load_results(study, dataset, files)
    explorer, split = _explorer(study, made, data, results)
    strips = _strips(split, data, min(SIDE, study.frames.size))
    clips = [_single(data, path, result.parent) if path else "#" for path in split.items["path"]]
    sections = {
        "tables": section("tables", "Tables", *_tables(made.tables, study.tables.prefix)),
        "figures": section("figures", "Figures", _figures(made.pictures, study, results)),
        "runs": section("runs", "Runs", *_runs(files, results)),
        "sweep": section("sweep", "Number of frames", *_sweep(files, made.sweep, results.given)),
        "coverage": section("coverage", "Coverage", *_coverage(files, data, _noun(dataset))),
    }
    names = {"sweep": "Number of frames"}
    folder = beside.name if explorer.bytes() > APART else ""
    page = Page(
        title=study.title or study.name,
        subtitle=_under(_subtitle(study, dataset, split, results), results.given),
        sections=sections,
        names=names,
        explorer=explorer.data(results.labels, results.baselines, clips, strips.numbers(), dataset.items, folder),
        strips=strips.content(),
        clips=_said(strips, len(clips), dataset.items if any(split.items["path"]) else "vectors", dataset.name),
        beside=bool(folder),
    )
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    for address, text in explorer.files(folder).items() if folder else ():
        write_text(beside / Path(address).name, text)
    write_text(result, render(page))


def _single(data: Path, path: str, start: Path) -> str:
    """Where a clip is as a file of its own, if somebody took it out of its shard (``rewind clips``)."""
    return os.path.relpath(data / (EXTRACTED + path.removeprefix("videos") if find(data / path) else path), start)


def _explorer(study: Study, made: Made, data: Path, results: Results) -> tuple[Explorer, Split]:
    """Of the runs that were evaluated in every setting."""
    keys, ranks, explorer = study.evaluation, read_ranks(study.runs(), made.ranks), None
    for (method, seed), path in made.similarity.items():
        if method in results.not_evaluated:
            continue
        scores, split = read_similarity(data, study.dataset, path)
        if explorer is None:
            explorer = Explorer(split.captions, split.items, keys.settings, keys.directions)
        explorer.check(split, path)
        explorer.add(method, seed, scores, ranks[method][seed], path)
        del scores  # before the next one is read
    assert explorer is not None  # every setting has a run, and those that lack settings lack the same
    return explorer, explorer.split


def _strips(split: Split, data: Path, size: int) -> Strips:
    paths, reversed_ = split.items["path"].tolist(), (split.items["reversed"] == 1).tolist()

    def read(item: int) -> np.ndarray:
        return picture_of(data, paths[item], reversed_[item], FRAMES, size)

    return make_strips(read, split.twin.tolist(), reversed_)


def _said(strips: Strips, count: int, items: str, dataset: str) -> str:
    if items == "vectors":
        return "The dataset consists of vectors without pictures: items are shown by name."
    inside = strips.embedded()
    if items == "images":
        where = (
            "in this page"
            if inside == count
            else f"in this page or, {BESIDE.format(dataset)}, in the folder of the dataset"
        )
        return f"All {count:,} images are shown, cropped to the centre square that a model sees, {where}."
    moving = f"{FRAMES} frames per clip, the centre square that a model sees, four per second"
    if inside == count:
        return f"All {count:,} clips play inside this page: {moving}."
    return (
        f"{inside:,} of {count:,} clips play inside this page ({moving}); the others, in the order of the file, play "
        f"{BESIDE.format(dataset)}."
    )


def _subtitle(study: Study, dataset: Dataset, split: Split, results: Results) -> str:
    counts = f"{len(split.items):,} test {_noun(dataset)}, {len(split.captions):,} captions, {len(study.runs())} runs"
    lacking = ", ".join(results.labels[method] for method in results.not_evaluated)
    apart = f"; the explorer leaves out what was not evaluated in every setting: {lacking}" if lacking else ""
    return f"{dataset.title or dataset.name}: {counts}{apart}"


def _noun(dataset: Dataset) -> str:
    return "images" if dataset.items == "images" else "clips"


def _tables(folder: Path, prefix: str) -> list[str]:
    """Fragments in reading order; runs one by one are folded away."""
    first = ("table_A", "table_B", "table_test", "table_binary", "table_cosine_gap", "table_verdict", "table_zero_shot")
    order = (*first, "table_gap", "table_pairs", "table_seeds")

    def name(path: Path) -> str:
        return path.stem.removeprefix(prefix)

    def place(path: Path) -> int:
        return next((i for i, start in enumerate(order) if name(path).startswith(start)), len(order))

    paths = sorted(folder.glob("*.html"), key=lambda path: (place(path), path.stem))
    return [fragment(path.read_text(encoding="utf-8"), folded=name(path).startswith("table_seeds")) for path in paths]


def _figures(pictures: list[Path], study: Study, results: Results) -> str:
    said = captions_of(study, results.labels)
    empty = {"gap": results.gaps.empty, "pairs": results.pairs.empty, "training_curves": not results.trained()}
    metrics = {setting: results.deciding(setting) for setting in study.evaluation.settings}
    empty["ranks"] = not drawn(trusted(results), metrics, directions(results, study.evaluation.settings[0])[0])
    empty["rank_curve"] = set(study.evaluation.settings) == {"binary"}
    pictures = [path for path in pictures if not empty.get(path.stem, False)]
    return '<div class="figures">' + "\n".join(picture(path, said[path.stem]) for path in pictures) + "</div>"


def _runs(files: Files, results: Results) -> list[str]:
    rows, commits, versions, commands, data = [], Counter(), Counter(), Counter(), Counter()
    for (method, seed), path in files.records.items():
        record = read_json(path)
        git = record.get("git") or {}
        commits[_code(record, git)] += 1
        versions[", ".join(f"{name} {version}" for name, version in record.get("packages", {}).items())] += 1
        commands[str(record.get("command"))] += 1
        data[record.get("data_digest") or "of a version that kept no hash"] += 1
        rows.append(
            {
                "method": results.labels[method],
                "seed": str(seed),
                "trained parameters": record.get("trained_parameters"),
                "best epoch": (record.get("best") or {}).get("epoch"),
                "seconds": record.get("seconds"),
                "memory (MB)": record.get("peak_memory_mb"),
                "device": ", ".join(filter(None, [*_devices(record), record.get("instance")])),
                "code": record.get("code"),
            }
        )
    numbers = ("trained parameters", "best epoch", "seconds", "memory (MB)")
    table = pd.DataFrame(rows, dtype=object)
    return [
        grid(table, _under("Every run, from its run.json", results.given), numbers),
        paragraph("Commits: " + "; ".join(f"{name} ({count} runs)" for name, count in commits.items()) + "."),
        paragraph("Packages: " + "; ".join(versions) + "."),
        paragraph("Content of the data set: " + "; ".join(data) + "."),
        paragraph("Commands: " + "; ".join(f"{typed} ({count} runs)" for typed, count in commands.items()) + "."),
    ]


def _code(record: dict[str, Any], git: dict[str, Any]) -> str:
    """The commit that a run was computed with; of a release from a package, its version."""
    if git.get("commit") is None and record.get("version"):
        return f"none, version {record['version']}"
    return f"{str(git.get('commit'))[:10]}{' with edits' if git.get('dirty') else ''}"


def _devices(record: dict[str, Any]) -> list[str]:
    return (record.get("hardware") or {}).get("devices", [])


def _under(title: str, given: str) -> str:
    return f"{title}, {given}" if given else title


def _sweep(files: Files, table: str, given: str) -> list[str]:
    best = read_json(files.best)
    chosen = paragraph(f"{best['max_frames']} frames a clip, chosen {best['chosen']}.")
    rows = read_csv(table)
    if "valid_sum" not in rows or rows.empty:
        return [chosen]
    return [chosen, grid(rows.astype(object), _under("Validation scores of the sweep", given), tuple(rows.columns))]


def _coverage(files: Files, data: Path, noun: str) -> list[str]:
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
    bad = report[report["status"] != "ok"]
    found = [
        grid(
            pd.DataFrame(rows).astype(object),
            f"{noun.capitalize()} by split",
            ("originals", "usable", "twins", "usable twins"),
        )
    ]
    if bad.empty:
        return [*found, paragraph(f"All {len(report):,} source {noun} are usable.")]
    shown = bad[["item_id", "status", "reason"]].head(UNUSABLE_SHOWN)
    more = f"; the first {len(shown)}" if len(bad) > len(shown) else ""
    return [*found, grid(shown, f"{len(bad):,} of {len(report):,} source {noun} are not usable{more}")]
