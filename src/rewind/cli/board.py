"""``rewind board``: one page and one table over finished studies, and over those that others shared.

``rewind share`` packs a study for a board on another machine.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from rewind.commands import rewind_command
from rewind.errors import RewindError, count_noun, first_lines
from rewind.exports.share import CARD, SUFFIX, opened_share, share_study
from rewind.io.files import archive_contains, atomic_write, check_output_file, check_output_folder, read_cached_json
from rewind.report.board.quoted import read_quoted
from rewind.report.board.site import Board
from rewind.report.board.studies import BoardStudy, StudyCard, read_board_study, study_card
from rewind.workflow.what_ran import StudyFolders, find_study, study_that_ran

PAGES_FOLDER = "studies"
"""Folder, within a board's, of copies of the studies' pages."""


def make_board(studies: Sequence[str], out: Path, pages: bool = False, quoted: Path | None = None) -> str:
    """Write a board over studies, which are named, or are folders of results or files of ``rewind share``.

    Returns the text for the terminal. ``pages`` copies the studies' pages into the folder ``out``; ``quoted`` is a CSV
    as in :mod:`rewind.report.board.quoted`.

    Raises:
        RewindError: if a study has no results or no configuration, was changed since it was run, is listed twice, or a
            shared file is broken; if ``out`` holds something else.
    """
    _check_folder(out)
    with contextlib.ExitStack() as unpacked:
        read = [unpacked.enter_context(_open_study(text, number)) for number, text in enumerate(studies)]
    _refuse_repeated(read)
    read = [replace(study, page=_page_address(study, number, out, pages)) for number, study in enumerate(read)]
    board = Board(read, read_quoted(quoted, dict.fromkeys(study.card.dataset for study in read)) if quoted else ())
    paths = board.write(out)
    return "\n".join([f"{paths[0]}: {board.summary}", *_summary_lines(board), f"Table: {_listed(paths[1:])}"])


def _listed(paths: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in paths)


def _summary_lines(board: Board) -> list[str]:
    """The groups, for a terminal."""
    lines = []
    for group in board.groups:
        rows = board.cells[board.cells["group"].str.rstrip("′") == group.letter]
        methods = count_noun(len(rows[["study", "method"]].drop_duplicates()), "method")
        names = ", ".join(board.names[number] for number in group.studies)
        frames = count_noun(group.frames, "frame") if group.frames else "frames of their own"
        lines.append(
            f"  {group.letter}: {methods} of {names}: {group.data_set}, {frames}, {group.budget or 'not trained'}"
        )
    if len(board.groups) > 1:
        lines.append("  Methods of different groups may not be compared and are not ranked together.")
    return lines


def _check_folder(out: Path) -> None:
    """Refuse a folder that holds something other than a board."""
    check_output_folder(out, "--out")
    content = read_cached_json(out / "board.json")
    is_board = isinstance(content, dict) and "format" in content and "cells" in content
    if out.is_dir() and any(out.iterdir()) and not is_board:
        raise RewindError(f"--out: {out}: contains something other than a board; name a new folder.")


def share(study: str, out: Path | None, weights: bool = False) -> str:
    """Pack a finished study, named or as the folder of its results, into one file; returns the text for the terminal.

    Args:
        out: file to write; None: ``<study>.rewind.zip``.
        weights: also pack the checkpoints of its runs.

    Raises:
        RewindError: if the study has no results or no configuration, was changed since it was run, or ``out`` cannot
            be written or is something else.
    """
    found = find_study(study)
    out = out or Path(f"{found.name}{SUFFIX}")
    if out.suffix != ".zip":
        raise RewindError(
            f"--out: {out}: `rewind board` recognises shared studies by their suffix; end the name with .zip."
        )
    check_output_file(out, "--out", archive_contains(CARD))
    members, left_out = share_study(found.results, load_card(found), out, weights)
    size = out.stat().st_size / 1e6
    lines = [f"{out}: {count_noun(len(members), 'member')}, {size:,.1f} MB; `{rewind_command('board', out)}` reads it"]
    if left_out:
        lines += [f"Left out, since no job of the study recorded them ({len(left_out)}):", first_lines(left_out)]
    return "\n".join(lines)


# ---- Studies that were run here ------------------------------------------------------------------------------------


def load_card(found: StudyFolders) -> StudyCard:
    """The card of a study that was run here, from its configuration, which is that of its results."""
    return study_card(*study_that_ran(found.results, found.config))


@contextlib.contextmanager
def _open_study(text: str, number: int) -> Iterator[BoardStudy]:
    if text.endswith(".zip"):
        with opened_share(Path(text)) as shared:
            yield read_board_study(shared.folder, shared.card, number, Path(text).name, shared=True)
        return
    found = find_study(text)
    page = found.results / "report.html"
    yield read_board_study(
        found.results,
        load_card(found),
        number,
        _shown_path(found.results),
        str(page) if page.is_file() else "",
    )


def _shown_path(path: Path) -> str:
    """A path below the working folder; for others only the last parts, since a board may be published."""
    with contextlib.suppress(ValueError):
        return str(Path(os.path.abspath(path)).relative_to(Path.cwd()))
    return str(Path(*path.parts[-2:]))


def _refuse_repeated(studies: Sequence[BoardStudy]) -> None:
    """Refuse the same results under two names: each of their methods would be ranked against itself."""
    for position, study in enumerate(studies):
        for other in studies[:position]:
            columns = ["method", "setting", "direction", "estimate", "low", "high"]
            same = study.card.name == other.card.name and _equal(study.cells[columns], other.cells[columns])
            if same:
                raise RewindError(
                    f"{study.card.name}: {other.source} and {study.source} hold the same results; name one of them."
                )


def _equal(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    return first.reset_index(drop=True).equals(second.reset_index(drop=True))


# ---- Pages of studies ----------------------------------------------------------------------------------------------


def _page_address(study: BoardStudy, number: int, out: Path, copy: bool) -> str:
    """Address of a study's page, relative to the board; empty where it would leave the folder that holds the board."""
    if not study.page:
        return ""
    page = Path(study.page)
    if copy:
        target = Path(PAGES_FOLDER, f"{number + 1}-{study.card.name}")
        _copy_page(page, out / target)
        return (target / page.name).as_posix()
    there, here = (Path(os.path.abspath(path)) for path in (page, out))  # without `..`
    return Path(os.path.relpath(there, here)).as_posix() if there.is_relative_to(here.parent) else ""


def _copy_page(page: Path, folder: Path) -> None:
    """Copy a study's page and what its explorer reads next to it."""
    with atomic_write(folder / page.name) as temporary:
        shutil.copyfile(page, temporary)
    data = page.parent / "report_data"
    for file in sorted(data.glob("*.js")) if data.is_dir() else ():
        with atomic_write(folder / data.name / file.name) as temporary:
            shutil.copyfile(file, temporary)
