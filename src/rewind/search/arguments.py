"""Arguments of ``rewind search`` and ``rewind serve``.

The commands themselves, which import torch, are imported only when they run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rewind.errors import RewindError


def add_search_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add ``rewind search`` and ``rewind serve``."""
    search = commands.add_parser(
        "search",
        description="Search the items of a dataset with a finished run. It prints the best items for a query; "
        "without one it prompts for queries.",
    )
    _add_gallery_arguments(search)
    search.add_argument("query", nargs="*", help="what to search for (default: ask at a prompt)")
    search.add_argument("--top", type=int, default=5, help="number of items to show (default: 5)")
    search.add_argument("--random", type=int, metavar="N", help="use N random captions of the split as queries")
    search.add_argument("--seed", type=int, default=0, help="random seed of --random (default: 0)")
    search.add_argument("--save", type=Path, metavar="FOLDER", help="write a picture and a JSON file for every answer")
    search.add_argument("--times", action="store_true", help="print how long encoding and ranking took")
    search.set_defaults(command=_search)
    serve = commands.add_parser(
        "serve",
        description="Search with a finished run in the browser. A local web page plays the items that are found; it "
        "needs Flask (`pip install 'rewind-bench[serve]'`) and runs until it is stopped with Ctrl-C.",
    )
    _add_gallery_arguments(serve)
    serve.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)"
    )
    serve.add_argument("--port", type=int, default=8000, help="port (default: 8000; 0: any free port)")
    serve.set_defaults(command=_serve)


def _add_gallery_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that both commands share: a run, and the items that it searches."""
    parser.add_argument("run", type=Path, help="folder of a run: results/<study>/runs/<method>/seed<k>")
    parser.add_argument(
        "--split",
        choices=["test", "valid", "train", "all"],
        default="test",
        help="which items to search (default: test)",
    )
    parser.add_argument(
        "--index",
        nargs="?",
        const="-",
        metavar="FILE",
        help="store the item features for next time (default FILE: results/<study>/index/<method>.seed<k>.npz)",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="run third-party code and show files outside results/data, if the results name them",
    )


def _search(options: argparse.Namespace) -> int:
    from rewind.search.command import SearchOptions, run_search

    query = " ".join(options.query) if options.query else None
    run_search(
        options.run,
        SearchOptions(
            query=query,
            top=options.top,
            split=options.split,
            index=options.index,
            random=options.random,
            seed=options.seed,
            save=options.save,
            times=options.times,
            trust=options.trust,
        ),
    )
    return 0


def _serve(options: argparse.Namespace) -> int:
    try:
        from rewind.search.server import create_app, is_local, serve
    except ModuleNotFoundError as error:
        if error.name not in ("flask", "werkzeug"):
            raise
        raise RewindError("rewind serve needs Flask: run `pip install 'rewind-bench[serve]'`.") from None
    from rewind.search.command import open_searcher

    run, searcher = open_searcher(options.run, options.split, options.index, options.trust)
    app = create_app(run, searcher, options.split, is_local(options.host), options.trust)
    serve(app, options.host, options.port, run.name)
    return 0
