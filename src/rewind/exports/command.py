"""Arguments of ``rewind export`` and ``rewind import``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rewind.io.files import check_output_file, check_output_folder


def add_export_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add ``rewind export`` and ``rewind import``."""
    export = commands.add_parser(
        "export",
        description="Write data for other evaluation tools. Each format is a command of its own.",
    )
    formats = export.add_subparsers(required=True, metavar="FORMAT")
    mteb = formats.add_parser(
        "mteb",
        help="write a Python module of MTEB tasks over a data set's test split",
        description="Write a Python module of MTEB tasks over a data set's test split. MTEB can then evaluate its own "
        "models on your data; the module runs without Rewind.",
    )
    mteb.add_argument("name", metavar="STUDY|DATASET", help="name of a file in config/studies or config/datasets")
    mteb.add_argument("out", type=Path, metavar="OUT", help="folder to write; Python imports it by its name")
    mteb.add_argument(
        "--copy",
        action="store_true",
        help="copy the clips into it too (default: they stay next to the dataset, in results/data/<dataset>/clips)",
    )
    mteb.set_defaults(command=_export_mteb)
    results = formats.add_parser(
        "results",
        help="write a study's numbers as MTEB, the Hugging Face Hub and Every Eval Ever have them",
        description="Write the numbers of a finished study in the forms of other tools: results of MTEB, the "
        "model-index of a model card, the Hub's .eval_results, and records of Every Eval Ever. Intervals, seeds and "
        "the digest of the data are kept where a form has a place for them, and named in its text where it has none.",
    )
    results.add_argument("study", metavar="STUDY", help="name of a study, or the folder of its results")
    results.add_argument("out", type=Path, metavar="OUT", help="folder to write")
    results.set_defaults(command=_export_results)
    importer = commands.add_parser(
        "import",
        description="Read what other evaluation tools computed: scores become a file that a study can use as a method "
        "(`model: scores`), results become rows that a board quotes. Each format is a command of its own.",
    )
    formats = importer.add_subparsers(required=True, metavar="FORMAT")
    mteb = formats.add_parser(
        "mteb",
        help="read the predictions that MTEB saved for a retrieval task",
        description="Read the predictions that MTEB saved for a retrieval task, and write them as a matrix or a TREC "
        "run.",
    )
    mteb.add_argument("predictions", type=Path, metavar="PREDICTIONS", help="<task>_predictions.json")
    mteb.add_argument("out", type=Path, metavar="OUT", help="matrix (.npz), or TREC run (.trec, .txt, .run) to write")
    mteb.set_defaults(command=_import_mteb)
    results = formats.add_parser(
        "results",
        help="read results of MTEB or Every Eval Ever, for `rewind board --quoted`",
        description="Read R@1 (in Binary accuracy), from text to items, of result files of MTEB or records of Every "
        "Eval Ever, and write the CSV of `rewind board --quoted`. What a file does not say is given here.",
    )
    results.add_argument("files", type=Path, nargs="+", metavar="FILE", help="<task>.json of MTEB, or a record")
    results.add_argument("out", type=Path, metavar="OUT", help="the CSV to write")
    results.add_argument("--data-set", default="", metavar="NAME", help="the board's data set")
    results.add_argument("--setting", default="", metavar="SETTING", help="origin, hard, binary or test")
    results.add_argument("--method", default="", metavar="LABEL", help="the method's name on the board")
    results.add_argument("--source", default="", metavar="TEXT", help="what to cite")
    results.set_defaults(command=_import_results)


def _export_mteb(options: argparse.Namespace) -> int:
    from rewind.exports.mteb import export_tasks  # imported only when the command runs: `rewind --help` is fast

    names = export_tasks(options.name, options.out, options.copy)
    print(f"{options.out}: {len(names)} tasks: {', '.join(names)}")
    return 0


def _export_results(options: argparse.Namespace) -> int:
    from rewind.exports.results import export_results
    from rewind.report.board.studies import study_card
    from rewind.workflow.what_ran import find_study, study_that_ran

    check_output_folder(options.out, "OUT")
    found = find_study(options.study)
    names = export_results(found.results, study_card(*study_that_ran(found.results, found.config)), options.out)
    print(f"{options.out}: {len(names)} files: {', '.join(sorted({name.split('/')[0] for name in names}))}")
    return 0


def _import_results(options: argparse.Namespace) -> int:
    from rewind.exports.quoted_results import Asked, import_results

    check_output_file(options.out, "OUT")
    asked = Asked(options.data_set, options.setting, options.method, options.source)
    print(import_results(options.files, options.out, asked))
    return 0


def _import_mteb(options: argparse.Namespace) -> int:
    from rewind.exports.mteb import import_predictions

    check_output_file(options.out, "OUT")
    print(import_predictions(options.predictions, options.out))
    return 0
