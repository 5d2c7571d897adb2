"""``rewind search``: one query, a prompt, or captions drawn by a seed."""

from __future__ import annotations

import shutil
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rewind.errors import RewindError
from rewind.files import digest, write_json
from rewind.reporting.sheet import slug
from rewind.search.console import as_json, median_times, table, times
from rewind.search.query import refuse_empty
from rewind.search.run import FinishedRun, open_run
from rewind.search.searcher import Answer, Searcher, load_searcher
from rewind.search.strips import Strips
from rewind.targets import archive_with, output_file, output_folder

DEFAULT_INDEX = "-"  # what --index means without a file
LEAVE = ("quit", "exit")


@dataclass(frozen=True)
class Wishes:
    """The options of ``rewind search``.

    Attributes:
        query: the words; none: ask for them.
        top: hits of a query.
        split: gallery.
        index: file of the gallery's features, :data:`DEFAULT_INDEX` for the default one, None for none.
        random: how many captions to draw instead of asking; none: none.
        seed: of the drawing.
        save: folder for pictures and JSON.
        times: whether to tell how long a query took.
        trust: run the code and show the files that the results name, wherever they are.
    """

    query: str | None = None
    top: int = 5
    split: str = "test"
    index: str | None = None
    random: int | None = None
    seed: int = 0
    save: Path | None = None
    times: bool = False
    trust: bool = False


def search(folder: Path, wishes: Wishes) -> None:
    """Load a run and answer on standard output; what is said besides goes to standard error.

    Raises:
        RewindError: if the run cannot be searched or the one query that was given is refused.
    """
    if wishes.top < 1:
        raise RewindError(f"--top {wishes.top}: give a number of hits, at least 1.")
    if wishes.random is not None and wishes.random < 1:
        raise RewindError(f"--random {wishes.random}: give a number of captions, at least 1.")
    if not 0 <= wishes.seed < 2**32:
        raise RewindError(f"--seed {wishes.seed}: give a whole number from 0 to {2**32 - 1:,}.")
    if wishes.random and wishes.query is not None:
        raise RewindError("--random draws captions itself: leave out --random or the query.")
    if wishes.query is not None:
        refuse_empty(wishes.query)
    if wishes.save is not None:
        output_folder(wishes.save, "--save")
    run, searcher = start(folder, wishes.split, wishes.index, wishes.trust)
    desk = _Desk(run, searcher, wishes)
    if wishes.random:
        asked = searcher.random_captions(wishes.random, wishes.seed)
        found = [desk.try_answer(str(row.caption), str(row.video_id)) for row in asked.itertuples()]
        if wishes.times and (answered := [answer for answer in found if answer]):
            print(median_times(answered))
    elif wishes.query is not None:
        desk.answer(wishes.query)
    else:
        desk.talk()


def start(folder: Path, split: str, index: str | None, trust: bool = False) -> tuple[FinishedRun, Searcher]:
    """A run ready to search, with a line on standard error about what it took.

    Raises:
        RewindError: if the run cannot be searched, or would run code of others that was not trusted.
    """
    began = time.perf_counter()
    if index is not None and index != DEFAULT_INDEX and not index.endswith(".npz"):
        raise RewindError(f"--index: {index!r} is not an .npz file; write --index=FILE, or --index after the query.")
    run = open_run(folder)
    path = run.index(split) if index == DEFAULT_INDEX else Path(index) if index else None
    if path is not None:
        output_file(path, "--index", _no_other_archive)
    searcher = load_searcher(run, split, path, tell, trust)
    tell(f"{run.name}: {len(searcher.ids):,} {split} items, ready after {time.perf_counter() - began:.1f} s")
    return run, searcher


def _no_other_archive(path: Path) -> bool:
    """Whether a file is an index, or so broken that it may have been one: not the vectors of somebody's model."""
    return archive_with("mark.npy")(path) or not zipfile.is_zipfile(path)


def tell(text: str) -> None:
    """A sentence beside the results."""
    print(text, file=sys.stderr, flush=True)


class _Desk:
    """Answers queries one after the other."""

    def __init__(self, run: FinishedRun, searcher: Searcher, wishes: Wishes) -> None:
        self.run, self.searcher, self.wishes = run, searcher, wishes
        self.strips = Strips(searcher.items, run.data, trust=wishes.trust)

    def answer(self, query: str, truth: str | None = None) -> Answer:
        """Print a query's answer, and save it if that is wished."""
        found = self.searcher.search(query, self.wishes.top, truth)
        print(table(found, shutil.get_terminal_size((100, 24)).columns))
        if self.wishes.times:
            print(times(found))
        print(flush=True)
        if self.wishes.save is not None:
            self._save(found, self.wishes.save)
        return found

    def talk(self) -> None:
        """Answer line after line until one is empty; a query that is refused ends nothing."""
        for query in _lines():
            self.try_answer(query)

    def try_answer(self, query: str, truth: str | None = None) -> Answer | None:
        """As :meth:`answer`; a refusal is printed, and the next query can come."""
        try:
            return self.answer(query, truth)
        except RewindError as error:
            print(f"{error}\n", flush=True)
            return None

    def _save(self, found: Answer, folder: Path) -> None:
        from rewind.search.picture import save_picture  # matplotlib starts slowly, and most do not need it

        # The hash keeps apart what the readable part does not.
        stem = f"{slug(found.query)[:40].strip('-') or 'query'}.{digest(found.query, found.truth)[:6]}"
        write_json(folder / f"{stem}.json", as_json(found, self.run.name, self.wishes.split))
        save_picture(found, self.strips, self.run.name, folder / f"{stem}.png")
        tell(f"{folder / stem}.png and .json: written")


def _lines() -> Iterator[str]:
    """Queries as they are typed, or as they come through a pipe.

    An empty line, Ctrl-D or Ctrl-C ends them; at a prompt also one of :data:`LEAVE`.
    """
    asked = sys.stdin.isatty()
    if asked:
        import readline  # noqa: F401 - arrow keys and history at the prompt

        tell("Type a query; an empty line, quit or exit ends.")
    while True:
        try:
            line = input("search> " if asked else "")
        except (EOFError, KeyboardInterrupt):
            return
        except UnicodeDecodeError as error:
            raise RewindError(
                f"the queries on standard input are not UTF-8 text ({error.reason}); save them so."
            ) from None
        if not line.strip() or (asked and line.strip().lower() in LEAVE):
            return
        yield line
