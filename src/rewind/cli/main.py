"""The command ``rewind``: tools around the Snakemake workflow, for a machine, a study or a finished run.

Each command has two functions: ``_add_…`` describes the command and its arguments, the one below it runs the command
and returns the exit code. ``rewind --help`` shows the first sentence of each description. What a command needs (torch
above all) is imported when it runs, so that ``rewind --help`` is fast.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import inspect
import math
import os
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from rewind.cli.clips import add_clip_commands
from rewind.errors import RewindError, printable_output
from rewind.exports.command import add_export_commands
from rewind.io.files import archive_contains, check_output_file, check_output_folder, looks_like_json
from rewind.packaged import checkout_folder, installed_version
from rewind.processes import exit_on_signals
from rewind.search.arguments import add_search_commands
from rewind.system_errors import user_message

Options = TypeVar("Options")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command of ``rewind``, by default that of the process's command line, and return its exit code."""
    return run_command(_build_parser(), arguments)


def run_command(parser: argparse.ArgumentParser, arguments: Sequence[str] | None = None) -> int:
    """Run the command that a command line asks for and return its exit code.

    An error that a user can act on, or a fault of the machine, is printed as one sentence and gives code 1; a bug in
    Rewind is raised with its traceback.

    ``parser`` sets ``command``, a function from the options to the exit code.
    """
    with printable_output(), exit_on_signals():
        return _run_command(parser, arguments)


def _run_command(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    options = parser.parse_args(arguments)
    try:
        code = options.command(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `rewind … | head`: the reader has closed the pipe
        _discard_output()
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        _flush_output()
        return 128 + signal.SIGINT
    except SystemExit:  # another signal
        _flush_output()
        raise
    except Exception as error:
        sentence = user_message(error)
        if sentence is None:  # a bug in Rewind
            raise
        print(f"error: {sentence}", file=sys.stderr)
        _flush_output()
        return 1


def _flush_output() -> None:
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()


def _discard_output() -> None:
    """Drop what standard output has not taken: Python would try to write it once more at exit, and complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


COMMAND_GROUPS = {
    "start": ("doctor", "new", "init", "opposites"),
    "run": ("rehearse", "power", "evaluate"),
    "inspect": ("search", "serve", "why"),
    "share": ("board", "share", "export", "import", "clips"),
    "maintain": ("verify", "accept", "job", "export-clip4clip"),
}
"""Heading in ``rewind --help`` → its commands, in the order in which they are shown."""


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rewind",
        usage="rewind [-h] [--version] COMMAND ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rewind {installed_version()}")
    # argparse can only list all commands under one heading: the list is part of the description instead.
    commands = parser.add_subparsers(required=True, metavar="COMMAND", prog="rewind", help=argparse.SUPPRESS)
    _add_doctor(commands)
    _add_board(commands)
    _add_share(commands)
    _add_export_clip4clip(commands)
    add_export_commands(commands)
    add_clip_commands(commands)
    _add_init(commands)
    _add_job(commands)
    _add_new(commands)
    _add_opposites(commands)
    _add_power(commands)
    _add_evaluate(commands)
    _add_rehearse(commands)
    add_search_commands(commands)
    _add_why(commands)
    _add_accept(commands)
    parser.description = _overview(commands.choices)
    return parser


def _overview(commands: Mapping[str, argparse.ArgumentParser]) -> str:
    """Every command under its heading, with the first sentence of its description."""
    width = shutil.get_terminal_size().columns - 2
    intro = (
        "Tools around the Snakemake workflow of Rewind, which benchmarks text-to-video retrieval. `snakemake --cores "
        "all` runs studies; these commands prepare studies, inspect their results and export them. `rewind COMMAND "
        "--help` describes a command."
    )
    lines = [textwrap.fill(intro, width)]
    for heading, names in COMMAND_GROUPS.items():
        lines += ["", f"{heading}:"]
        for name in names:
            sentence = re.split(r"\.\s|\.$", commands[name].description or "", maxsplit=1)[0]
            head = f"    {name:<12}" if len(name) <= 10 else f"    {name}\n{'':16}"
            lines.append(
                head + textwrap.fill(sentence, width, initial_indent=" " * 16, subsequent_indent=" " * 16)[16:]
            )
    return "\n".join(lines)


def finite_number(text: str) -> float:
    """Parse a finite number, as the ``type`` of an option: NaN and infinity, which ``float`` accepts, are refused."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def given_options(kind: Callable[..., Options], given: argparse.Namespace) -> Options:
    """The dataclass of a command's options from what was parsed, whose names are those of its fields."""
    known = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in vars(given).items() if name in known})


# ---- The commands that no package of their own adds ----------------------------------------------------------------


def _add_doctor(commands: argparse._SubParsersAction[Any]) -> None:
    doctor = commands.add_parser(
        "doctor",
        description="List what this machine has, what is missing, and how to get it. It looks at Python packages, "
        "ffmpeg, GPUs, memory and disk, and at the weights that studies need. The exit code is 1 "
        "if something required is missing. With --gpu it checks instead what only a GPU can show, in up to ten minutes "
        "(docs/cluster.md), and the exit code is 1 if a check has failed.",
    )
    doctor.add_argument(
        "study", nargs="*", metavar="STUDY", help="studies to look at (default: all in config/config.yaml)"
    )
    doctor.add_argument("--gpu", action="store_true", help="check a GPU: results, exactness, memory, speed")
    gpu = doctor.add_argument_group("with --gpu")
    gpu.add_argument(
        "--device", choices=("cuda", "cpu"), default="cuda", help="cpu: only to see that the checks run (default: cuda)"
    )
    gpu.add_argument(
        "--minutes", type=finite_number, default=10.0, help="start no new check after this many minutes (default: 10)"
    )
    gpu.add_argument("--demo", action="store_true", help="also run the demo study, in a temporary folder")
    gpu.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    doctor.set_defaults(command=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    if options.gpu:
        return _check_gpu(options)
    from rewind.cli.doctor import examine_machine, format_findings

    findings = examine_machine(options.study)
    print(format_findings(findings))
    return 0 if all(finding.good or not finding.needed for finding in findings) else 1


def _check_gpu(options: argparse.Namespace) -> int:
    if (checkout := checkout_folder()) is None:
        raise RewindError(
            "--gpu: the checks are benchmarks/gpu_check of a checkout, and here is only the package; clone Rewind, and "
            "run `make gpu-check` there."
        )
    if options.json is not None:
        check_output_file(options.json, "--json", looks_like_json)
    sys.path.insert(0, str(checkout / "benchmarks"))
    check = importlib.import_module("gpu_check.command")
    return int(check.check_gpu(check.GpuCheckOptions(options.device, options.minutes, options.demo, options.json)))


def _add_board(commands: argparse._SubParsersAction[Any]) -> None:
    board = commands.add_parser(
        "board",
        description="Write one page and one table over finished studies. Methods are ranked, with intervals, only "
        "among those that were evaluated on the same data, with the same frames and budget (docs/board.md). The folder "
        "is a static site: it opens offline, and any web server can serve it.",
    )
    board.add_argument(
        "study",
        nargs="+",
        metavar="STUDY",
        help="a study's name, the folder of its results, or a file of `rewind share`",
    )
    board.add_argument(
        "--out", type=Path, default=Path("board"), metavar="FOLDER", help="where to write (default: board)"
    )
    board.add_argument(
        "--pages", action="store_true", help="copy the studies' pages there too, so that the folder can be published"
    )
    board.add_argument(
        "--quoted",
        type=Path,
        metavar="FILE",
        help="CSV method,data_set,setting,value,source: numbers of papers, shown without interval and rank",
    )
    board.set_defaults(command=_board)


def _board(options: argparse.Namespace) -> int:
    from rewind.cli.board import make_board

    print(make_board(options.study, options.out, options.pages, options.quoted))
    return 0


def _add_opposites(commands: argparse._SubParsersAction[Any]) -> None:
    opposites = commands.add_parser(
        "opposites",
        description="Propose words in a data set's captions that may be opposites in time, such as opens and closes. "
        "A person confirms them, and `training.hard_negatives` names the file (docs/direction.md). What was decided in "
        "an earlier file stays.",
    )
    opposites.add_argument("dataset", metavar="DATASET", help="name of a file in config/datasets")
    opposites.add_argument("--out", type=Path, metavar="FILE", help="CSV file (default: DATASET_opposites.csv)")
    opposites.set_defaults(command=_opposites)


def _opposites(options: argparse.Namespace) -> int:
    from rewind.cli.opposites import write_opposites
    from rewind.workflow.config import load_configured_dataset

    dataset = load_configured_dataset(options.dataset)
    print(write_opposites(dataset, options.out or Path(f"{dataset.name}_opposites.csv")))
    return 0


def _add_share(commands: argparse._SubParsersAction[Any]) -> None:
    share = commands.add_parser(
        "share",
        description="Pack a finished study into one file that `rewind board` reads on another machine. It holds "
        "tables, metrics, ranks, what ran where, checksums, and results for MTEB and Hugging Face (docs/board.md), but "
        "neither clips nor captions.",
    )
    share.add_argument("study", metavar="STUDY", help="a study's name, or the folder of its results")
    share.add_argument("--out", type=Path, metavar="FILE", help="file to write (default: STUDY.rewind.zip)")
    share.add_argument("--weights", action="store_true", help="also pack the checkpoints of all runs")
    share.set_defaults(command=_share)


def _share(options: argparse.Namespace) -> int:
    from rewind.cli.board import share

    print(share(options.study, options.out, options.weights))
    return 0


def _add_export_clip4clip(commands: argparse._SubParsersAction[Any]) -> None:
    export = commands.add_parser(
        "export-clip4clip",
        description="Export the model of a run as a pytorch_model.bin of CLIP4Clip. The original authors' code loads "
        "the file; runs that it cannot compute, such as those with another head or backbone, are refused.",
    )
    export.add_argument("run", type=Path, help="folder of a run: results/<study>/runs/<method>/seed<k>")
    export.add_argument("out", type=Path, help="file to write")
    export.set_defaults(command=_export_clip4clip)


def _export_clip4clip(options: argparse.Namespace) -> int:
    from rewind.exports.clip4clip import export_clip4clip

    check_output_file(options.out, "OUT", archive_contains("data.pkl"))
    export_clip4clip(options.run, options.out)
    print(f"{options.out}: written")
    return 0


def _add_init(commands: argparse._SubParsersAction[Any]) -> None:
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
        "with their captions (also a .txt or .srt for each clip), or RTime's JSON",
    )
    init.add_argument(
        "--videos", default="", metavar="FOLDER", help="folder of the clips (default: next to the source)"
    )
    init.add_argument("--name", default="", help="name of the study (default: derived from the source's)")
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
        help="library: open_clip, transformers, video_llm, sentence_transformers, mteb or your own (default: by the "
        "model's name)",
    )
    init.add_argument(
        "--option", action="append", dest="options", default=[], metavar="KEY=VALUE", help="option of model: vectors"
    )
    init.add_argument(
        "--network",
        default="",
        choices=["clip", "towers", "tiny"],
        help="what is trained: CLIP ViT-B/32 (needs a GPU), packaged networks that stay frozen, or a small CLIP from "
        "random weights (default: the first that this machine has)",
    )
    init.add_argument(
        "--test-share",
        type=finite_number,
        metavar="SHARE",
        help="share of the clips that are tested, where the files have no split (default: 0.2 or more)",
    )
    init.add_argument(
        "--look", type=int, default=200, metavar="N", help="number of clips to decode completely (default: 200)"
    )
    init.set_defaults(command=_init)


def _init(options: argparse.Namespace) -> int:
    from rewind.cli.init.command import InitOptions, write_first_study

    return write_first_study(given_options(InitOptions, options))


def _add_job(commands: argparse._SubParsersAction[Any]) -> None:
    job = commands.add_parser(
        "job",
        description="Rerun one job of the workflow in this process, for a debugger. It is the job that writes FILE, "
        "with the inputs and parameters that Snakemake gave it last; `python -m pdb -m rewind job FILE` steps into it. "
        "It writes to another folder; results and Snakemake's records are not changed.",
    )
    job.add_argument("target", metavar="FILE", help="an output of the job, for example results/demo/metrics.csv")
    job.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: a new temporary folder)")
    job.set_defaults(command=_job)


def _job(options: argparse.Namespace) -> int:
    from rewind.workflow.job import rerun_job

    if options.out is not None:
        check_output_folder(options.out, "--out")
    return rerun_job(options.target, options.out)


def _add_new(commands: argparse._SubParsersAction[Any]) -> None:
    new = commands.add_parser(
        "new",
        description="Create a working folder: a Snakefile that uses the installed workflow, configuration, profiles. "
        "It holds all your own files and keeps working after an upgrade of Rewind. What is in the folder already "
        "stays; it is refused where a file is in the way.",
    )
    new.add_argument("folder", type=Path, metavar="FOLDER", help="a new folder, or one that holds your data")
    new.add_argument(
        "--update",
        action="store_true",
        help="in an existing working folder, update the files that you have not changed, and list those that differ",
    )
    new.set_defaults(command=_new)


def _new(options: argparse.Namespace) -> int:
    from rewind.cli.new import make_working_folder

    return make_working_folder(options.folder, options.update)


def _add_power(commands: argparse._SubParsersAction[Any]) -> None:
    power = commands.add_parser(
        "power",
        description="Estimate what difference of R@1 a study can detect. Seeds, queries, R@1 and the spread over "
        "seeds come from the options, the study's results or the dataset, in this order; otherwise they are assumed. "
        "The report states which. Nothing is run.",
    )
    power.add_argument("study", type=_study_path, help="a study's name, or its file")
    power.add_argument("--setting", help="evaluation setting (default: the study's first)")
    power.add_argument("--seeds", type=int, help="seeds per method (default: the study's)")
    power.add_argument(
        "--queries", type=int, help="number of test queries (default: from results, or counted in the dataset)"
    )
    power.add_argument(
        "--cluster-size",
        dest="cluster",
        metavar="CLUSTER_SIZE",
        type=int,
        help="queries per cluster (default: likewise)",
    )
    power.add_argument(
        "--seed-sd", type=finite_number, help="± of R@1 over seeds, in points (default: from results, or assumed)"
    )
    power.add_argument("--r1", type=finite_number, help="R@1 in percent (default: from results, or 40; binary: 60)")
    power.add_argument(
        "--alike", type=finite_number, help="correlation of two methods (default: from results, or 0.6 to 0.95)"
    )
    power.set_defaults(command=_power)


def _power(options: argparse.Namespace) -> int:
    from rewind.cli.power import PowerFolders, PowerOptions, power_report
    from rewind.config import load_study
    from rewind.workflow.config import main_overrides
    from rewind.workflow.what_ran import study_that_ran

    name, config = options.study.stem, options.study.parent.parent
    folders = PowerFolders(datasets=config / "datasets")
    results = folders.results / name
    in_place = options.study.parent.name == "studies"  # a file elsewhere is not what the workflow ran
    if in_place and (results / "metrics.csv").is_file():  # the command estimates what other seeds would detect
        study, _ = study_that_ran(results, config, except_for=("seeds",))
    else:
        study = load_study(name, options.study.parent, main_overrides(config)["studies"].get(name))
    print(power_report(study, given_options(PowerOptions, options), folders))
    return 0


def _study_path(text: str) -> Path:
    """A path as it is; a name, which has neither folder nor dot, is that of a file in ``config/studies``."""
    path = Path(text)
    return path if path.suffix or len(path.parts) > 1 else Path("config/studies", text)


def _add_evaluate(commands: argparse._SubParsersAction[Any]) -> None:
    evaluate = commands.add_parser(
        "evaluate",
        description="Evaluate vectors, scores or a model by name without writing a study file. It writes "
        "config/studies/STUDY.yaml and, for a CSV, its dataset's file, runs the study and prints its tables.",
    )
    evaluate.add_argument(
        "--data", required=True, help="a CSV with item_id,caption[,reverse_caption], or a dataset's name"
    )
    evaluate.add_argument("--videos", default="", metavar="FOLDER", help="clips of the CSV's items, if you have them")
    evaluate.add_argument(
        "--vectors",
        nargs=2,
        action="append",
        default=[],
        metavar=("CAPTIONS", "ITEMS"),
        help="npz, npy, Parquet, CSV or safetensors; may be repeated",
    )
    evaluate.add_argument(
        "--scores", action="append", default=[], metavar="FILE", help="npz or TREC run; may be repeated"
    )
    evaluate.add_argument(
        "--encoder", default="", help="library: open_clip, sentence_transformers, transformers, mteb, or your own"
    )
    evaluate.add_argument(
        "--name", dest="model", default="", metavar="MODEL", help="what the encoder loads: a name or a local folder"
    )
    evaluate.add_argument(
        "--option",
        action="append",
        dest="options",
        default=[],
        metavar="KEY=VALUE",
        help="option of model: vectors or scores",
    )
    evaluate.add_argument(
        "--settings", nargs="+", default=[], help="origin, hard, binary, test (default: all that apply)"
    )
    evaluate.add_argument(
        "--probes",
        action="store_true",
        help="also run all probes that the data and the models allow (docs/probes.md), and list what the others need",
    )
    evaluate.add_argument(
        "--answers",
        default="",
        metavar="FILE",
        help="captions with several right clips: CSV caption_id,item_id, FIRE's JSON, or same_text; implies --probes",
    )
    evaluate.add_argument(
        "--foils",
        default="",
        metavar="FILE",
        help="CSV caption_id,foil[,kind]: captions that are not true of the clip; --vectors then hold those of "
        "CAPTION_ID~0, ~1, … too; implies --probes",
    )
    evaluate.add_argument("--study", default="", help="name of the study (default: derived from the data's)")
    evaluate.add_argument(
        "--label",
        action="append",
        dest="labels",
        default=[],
        metavar="TEXT",
        help="name of a model in tables; may be repeated, in the order vectors, scores, encoder (default: file name)",
    )
    evaluate.add_argument(
        "--add", action="store_true", help="add the models to the study of an earlier command; its runs are kept"
    )
    evaluate.add_argument("--cores", default="all", help="cores for Snakemake (default: all)")
    evaluate.add_argument(
        "-n", "--dry-run", dest="dry", action="store_true", help="write the files and show what would run"
    )
    evaluate.set_defaults(command=_evaluate)


def _evaluate(options: argparse.Namespace) -> int:
    from rewind.cli.evaluate import EvaluateOptions, evaluate_models

    return evaluate_models(given_options(EvaluateOptions, options))


def _add_rehearse(commands: argparse._SubParsersAction[Any]) -> None:
    rehearse = commands.add_parser(
        "rehearse",
        description="Run every stage of a study on a handful of items, and estimate the cost of the full study. "
        "Made-up clips and weights stand in for those that are missing; all files go to results/rehearsal.",
    )
    rehearse.add_argument("study", nargs="+", help="names of files in config/studies")
    rehearse.add_argument(
        "--cores", type=int, help="CPU cores of the machine for the full study (default: this machine's)"
    )
    rehearse.add_argument("--gpus", type=int, default=None, help="GPUs of that machine (default: this machine's)")
    rehearse.add_argument(
        "--gpu-tflops", type=finite_number, default=None, help="TFLOP/s that one GPU sustains (default: 100)"
    )
    rehearse.add_argument("--price", type=finite_number, help="of an hour of that machine: says what the study costs")
    rehearse.add_argument(
        "--full", action="store_true", help="use all layers of towers even if their weights are missing"
    )
    rehearse.add_argument(
        "--items", metavar="TRAIN,VALID,TEST", help="number of originals per split, if the dataset is missing"
    )
    rehearse.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    rehearse.set_defaults(command=_rehearse)


def _rehearse(options: argparse.Namespace) -> int:
    from rewind.cli.rehearse.command import parse_rehearse_options, rehearse

    if options.json is not None:
        check_output_file(options.json, "--json", looks_like_json)
    rehearse_options = parse_rehearse_options(
        options.cores, options.gpus, options.gpu_tflops, options.full, options.items, options.price
    )
    return rehearse(options.study, rehearse_options, options.json)


def _add_why(commands: argparse._SubParsersAction[Any]) -> None:
    why = commands.add_parser(
        "why",
        description="List what is stale, and which key, code or file changed. What is listed is what `snakemake` would "
        "compute again; nothing is run.",
    )
    why.add_argument("target", nargs="*", help="studies, result files, or rules (default: all studies in config.yaml)")
    why.set_defaults(command=_why)


def _why(options: argparse.Namespace) -> int:
    from rewind.cli.why import why

    return why(options.target)


# Paragraphs are wrapped here, since argparse would join them.
ACCEPT_DESCRIPTION = """\
Declare that an edit of code changes no result, so that nothing is computed again.

This is your claim: nothing is computed or compared. Finished results of the
targets are treated as computed by the current code from then on, until that code
is edited again, and every table that uses them states who accepted what, and
when.

For every job that is stale only because its code was edited, this writes:
  results/<study>/accepted.json, or results/data/<dataset>/accepted.json for
      clips and captions: the job, its old and its new code hash, what was
      edited, your user name, the date, and a checksum of one output
  .snakemake/metadata: the paths of the inputs, if clips and frames with the
      same content are now stored elsewhere
Results themselves are not touched. To withdraw the claim, delete
accepted.json: the outputs that it kept are then computed again.

Not accepted, and therefore computed again: jobs with a changed key or input file;
tables, figures and pages."""


def _add_accept(commands: argparse._SubParsersAction[Any]) -> None:
    accept = commands.add_parser(
        "accept",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=ACCEPT_DESCRIPTION,
    )
    accept.add_argument("target", nargs="+", help="studies, result files, or rules")
    accept.set_defaults(command=_accept)


def _accept(options: argparse.Namespace) -> int:
    from rewind.cli.why import accept

    return accept(options.target)
