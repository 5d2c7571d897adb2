"""``report.html``: tables, figures, the explorer, and what ran on what."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rewind.files import write_text
from rewind.jobs.cosine_gap_report import gap_results
from rewind.jobs.examples import picture_of, read_similarity
from rewind.jobs.given import Given
from rewind.jobs.metrics import folder_of, read_ranks
from rewind.jobs.page_sections import coverage, runs, sweep, under
from rewind.jobs.report import Files, load_results, of_every_run, report_files, sizes
from rewind.reporting.answer import answer
from rewind.reporting.explorer import APART, Explorer
from rewind.reporting.figures.rank_intervals import drawn
from rewind.reporting.footnotes import Footnotes
from rewind.reporting.lists import Split
from rewind.reporting.order import trusted
from rewind.reporting.page.captions import captions_of
from rewind.reporting.page.document import Page, render
from rewind.reporting.page.headline import asked, headline
from rewind.reporting.page.parts import picture, section
from rewind.reporting.page.shelf import shelf
from rewind.reporting.page.strips import FRAMES, SIDE, Strips, make_strips
from rewind.reporting.results import Results, directions
from rewind.study import Dataset, Study
from rewind.video.packed import EXTRACTED, find

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
    shown, copies = shelf(made.tables, study.tables.prefix)
    figures = _figures(made.pictures, study, results)
    first = figures.pop("intervals", "")
    others = '<div class="figures">' + "\n".join(figures.values()) + "</div>"
    sections = {
        "answer": section("answer", "Answer", _answer(study, dataset, files, results, first)),
        "tables": section("tables", "Tables", '<div class="sheets">', *shown, "</div>"),
        "figures": section("figures", "Figures", others),
        "runs": section("runs", "Runs", *runs(files, results)),
        "sweep": section("sweep", "Number of frames", *sweep(files, made.sweep, results.given)),
        "coverage": section("coverage", "Coverage", *coverage(files, data, _noun(dataset))),
    }
    names = {"sweep": "Number of frames"}
    folder = beside.name if explorer.bytes() > APART else ""
    page = Page(
        title=study.title or study.name,
        subtitle=under(_subtitle(study, dataset, split, results), results.given),
        sections=sections,
        names=names,
        explorer=explorer.data(results.labels, results.baselines, clips, strips.numbers(), dataset.items, folder),
        strips=strips.content(),
        clips=_said(strips, len(clips), dataset.items if any(split.items["path"]) else "vectors", dataset.name),
        beside=bool(folder),
        copies=copies,
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
    """Of the runs that were evaluated in every setting; where there is none, in as many as some run was."""
    settings, ways, methods = _explored(study, results)
    ranks, explorer = read_ranks(study.runs(), made.ranks), None
    for (method, seed), path in made.similarity.items():
        if method not in methods:
            continue
        scores, split = read_similarity(data, study.dataset, path)
        if explorer is None:
            explorer = Explorer(split.captions, split.items, settings, ways)
        explorer.check(split, path)
        explorer.add(method, seed, scores, ranks[method][seed], path)
        del scores  # before the next one is read
    assert explorer is not None  # every run has some setting
    return explorer, explorer.split


def _explored(study: Study, results: Results) -> tuple[list[str], list[str], list[str]]:
    """Settings, directions, and the methods that were evaluated in each of both: as many as can be."""

    def whole(method: str, settings: list[str], ways: list[str]) -> bool:
        return not any(results.reason(method, setting, way) for setting in settings for way in ways)

    keys = study.evaluation
    choices = [(keys.settings, keys.directions)]
    for ways in (keys.directions, *([way] for way in keys.directions)):
        for method in results.labels:
            choices.append(([setting for setting in keys.settings if whole(method, [setting], ways)], ways))
    for settings, ways in choices:
        methods = [method for method in results.labels if whole(method, settings, ways)]
        if settings and methods:
            return settings, ways, methods
    return keys.settings, keys.directions, []


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
    shown = _explored(study, results)[2]
    lacking = ", ".join(label for method, label in results.labels.items() if method not in shown)
    apart = f"; the explorer leaves out what was not evaluated in every setting: {lacking}" if lacking else ""
    return f"{dataset.title or dataset.name}: {counts}{apart}"


def _noun(dataset: Dataset) -> str:
    return "images" if dataset.items == "images" else "clips"


def _figures(pictures: list[Path], study: Study, results: Results) -> dict[str, str]:
    """Name → figure element of every picture that is not empty, in order."""
    said = captions_of(study, results.labels)
    empty = {"gap": results.gaps.empty, "pairs": results.pairs.empty, "training_curves": not results.trained()}
    metrics = {setting: results.deciding(setting) for setting in study.evaluation.settings}
    empty["ranks"] = not drawn(trusted(results), metrics, directions(results, study.evaluation.settings[0])[0])
    empty["rank_curve"] = set(study.evaluation.settings) == {"binary"}
    return {path.stem: picture(path, said[path.stem]) for path in pictures if not empty.get(path.stem, False)}


def _answer(study: Study, dataset: Dataset, files: Files, results: Results, figure: str) -> str:
    gaps = gap_results(study, files.gap) if files.gap else None
    facts = Footnotes(settings=sizes(results), items=dataset.items, family=len(study.pairs()))
    found = answer(results, study.evaluation.settings, gaps)
    return headline(asked(study, results, facts), found, figure)
