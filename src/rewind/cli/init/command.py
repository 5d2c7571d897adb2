"""Arguments of ``rewind init``; :mod:`rewind.cli.init.scaffold` does the work, and is imported when it runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_init_command(commands: argparse._SubParsersAction[Any]) -> None:
    """Add ``rewind init``."""
    init = commands.add_parser(
        "init",
        description="Write the dataset and study files for clips of your own. It looks at the files, writes "
        "config/datasets/NAME.yaml and config/studies/NAME.yaml with comments and with sizes for this machine, and "
        "says what it found and what to do next. It changes no file of yours.",
    )
    init.add_argument(
        "source",
        type=Path,
        metavar="SOURCE",
        help="a CSV (item_id or path, caption[, reverse_caption][, split][, cluster_id]), a folder of clips or images "
        "with their captions, or RTime's JSON",
    )
    init.add_argument("--videos", default="", metavar="FOLDER", help="folder of the clips (default: beside the source)")
    init.add_argument("--name", default="", help="name of the study (default: from the source's)")
    init.add_argument(
        "--embeddings",
        nargs="+",
        default=[],
        metavar="FILE",
        help="vectors of captions and items; nothing is trained",
    )
    init.add_argument("--model", default="", metavar="NAME", help="a model by name or folder; nothing is trained")
    init.add_argument(
        "--encoder",
        default="",
        help="what loads it: open_clip, transformers, sentence_transformers, mteb or your own (default: by its name)",
    )
    init.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="option of model: vectors")
    init.add_argument(
        "--look", type=int, default=200, metavar="N", help="decode so many clips to their ends (default: 200)"
    )
    init.set_defaults(command=_init)


def _init(options: argparse.Namespace) -> int:
    from rewind.cli.init.scaffold import InitOptions, write_first_study

    return write_first_study(
        InitOptions(
            source=options.source,
            videos=options.videos,
            name=options.name,
            embeddings=options.embeddings,
            model=options.model,
            encoder=options.encoder,
            options=options.option,
            look=options.look,
        )
    )
