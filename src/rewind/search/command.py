"""``rewind search``: answer one query, queries typed at a prompt, or randomly drawn captions."""

from __future__ import annotations

import shutil
import sys
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rewind.errors import RewindError
from rewind.hashing import stable_hash
from rewind.io.files import archive_contains, check_output_file, check_output_folder, write_json
from rewind.search.render import (
    StripReader,
    answer_json,
    answer_text,
    median_times_text,
    save_answer_picture,
    times_text,
)
from rewind.search.run import FinishedRun, open_run
from rewind.search.searcher import Answer, Searcher, load_searcher, refuse_empty_query
from rewind.tables.table import slug

DEFAULT_INDEX = "-"  # value of --index without a file
EXIT_WORDS = ("quit", "exit")


@dataclass(frozen=True)
class SearchOptions:
    """The options of ``rewind search``."""

    query: str | None = None  # None: read queries from standard input
    top: int = 5  # number of hits of a query
    split: str = "test"  # whose items are searched; or `all`
    index: str | None = None  # file of the gallery's features; DEFAULT_INDEX for the default one, None for none
    random: int | None = None  # number of captions of the gallery to draw as queries; None: none
    seed: int = 0  # of the drawing
    save: Path | None = None  # folder for pictures and JSON files of answers
    times: bool = False  # print how long a query took
    trust: bool = False  # run code and show files that the results name, wherever they are


def run_search(folder: Path, options: SearchOptions) -> None:
    """Load a run and print answers on standard output; messages about the run go to standard error.

    Raises:
        RewindError: if the run cannot be searched, or ``options.query`` is refused.
    """
    if options.top < 1:
        raise RewindError(f"--top {options.top}: give a number of hits, at least 1.")
    if options.random is not None and options.random < 1:
        raise RewindError(f"--random {options.random}: give a number of captions, at least 1.")
    if not 0 <= options.seed < 2**32:
        raise RewindError(f"--seed {options.seed}: give a whole number from 0 to {2**32 - 1:,}.")
    if options.random and options.query is not None:
        raise RewindError("--random draws captions itself: leave out --random or the query.")
    if options.query is not None:
        refuse_empty_query(options.query)
    if options.save is not None:
        check_output_folder(options.save, "--save")
    run, searcher = open_searcher(folder, options.split, options.index, options.trust)
    session = _SearchSession(run, searcher, options)
    if options.random:
        captions = searcher.random_captions(options.random, options.seed)
        answers = [session.try_answer(str(row.caption), str(row.video_id)) for row in captions.itertuples()]
        if options.times and (answered := [answer for answer in answers if answer]):
            print(median_times_text(answered))
    elif options.query is not None:
        session.answer(options.query)
    else:
        session.talk()


def open_searcher(folder: Path, split: str, index: str | None, trust: bool = False) -> tuple[FinishedRun, Searcher]:
    """Open a run and load its model and gallery; a line on standard error states how long that took.

    Raises:
        RewindError: if the run cannot be searched, or would run foreign code that was not trusted.
    """
    start = time.perf_counter()
    if index is not None and index != DEFAULT_INDEX and not index.endswith(".npz"):
        raise RewindError(f"--index: {index!r} is not an .npz file; write --index=FILE, or --index after the query.")
    run = open_run(folder)
    path = run.index(split) if index == DEFAULT_INDEX else Path(index) if index else None
    if path is not None:
        check_output_file(path, "--index", _may_be_index)
    searcher = load_searcher(run, split, path, print_status, trust)
    print_status(f"{run.name}: {len(searcher.ids):,} {split} items, ready after {time.perf_counter() - start:.1f} s")
    return run, searcher


def _may_be_index(path: Path) -> bool:
    """Whether a file is an index, or so broken that it may have been one, and not some other archive of the user's."""
    # mark.npy: the array of an index that holds its fingerprint.
    return archive_contains("mark.npy")(path) or not zipfile.is_zipfile(path)


def print_status(text: str) -> None:
    """Print a sentence that is not a result, on standard error."""
    print(text, file=sys.stderr, flush=True)


class _SearchSession:
    """Answers queries one after the other."""

    def __init__(self, run: FinishedRun, searcher: Searcher, options: SearchOptions) -> None:
        self.run, self.searcher, self.options = run, searcher, options
        self.strips = StripReader(searcher.items, run.data, trust=options.trust)

    def answer(self, query: str, truth: str | None = None) -> Answer:
        """Print the answer to a query, and save it if a folder was named; ``truth``: see :meth:`Searcher.search`."""
        result = self.searcher.search(query, self.options.top, truth)
        print(answer_text(result, shutil.get_terminal_size((100, 24)).columns))
        if self.options.times:
            print(times_text(result))
        print(flush=True)
        if self.options.save is not None:
            self._save(result, self.options.save)
        return result

    def talk(self) -> None:
        """Answer queries from standard input; one that is refused does not end the session."""
        for query in _typed_queries():
            self.try_answer(query)

    def try_answer(self, query: str, truth: str | None = None) -> Answer | None:
        """As :meth:`answer`, but a refusal is printed; None then."""
        try:
            return self.answer(query, truth)
        except RewindError as error:
            print(f"{error}\n", flush=True)
            return None

    def _save(self, answer: Answer, folder: Path) -> None:
        # The hash keeps apart queries whose readable part is the same.
        stem = f"{slug(answer.query)[:40].strip('-') or 'query'}.{stable_hash(answer.query, answer.truth)[:6]}"
        write_json(folder / f"{stem}.json", answer_json(answer, self.run.name, self.options.split))
        save_answer_picture(answer, self.strips, self.run.name, folder / f"{stem}.png")
        print_status(f"{folder / stem}.png and .json: written")


def _typed_queries() -> Iterator[str]:
    """Queries as they are typed, or as they come through a pipe.

    An empty line, Ctrl-D or Ctrl-C ends them; at a prompt also one of :data:`EXIT_WORDS`.
    """
    interactive = sys.stdin.isatty()
    if interactive:
        import readline  # noqa: F401 - arrow keys and history at the prompt

        print_status("Type a query; an empty line, quit or exit ends.")
    while True:
        try:
            line = input("search> " if interactive else "")
        except (EOFError, KeyboardInterrupt):
            return
        except UnicodeDecodeError as error:
            raise RewindError(
                f"the queries on standard input are not UTF-8 text ({error.reason}); save them so."
            ) from None
        if not line.strip() or (interactive and line.strip().lower() in EXIT_WORDS):
            return
        yield line
