"""The command ``rewind``: what is done to a machine or to a finished run, outside the workflow."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from rewind.arguments import finite
from rewind.console import printable_output
from rewind.init.command import add_init_command
from rewind.interop.command import add_commands
from rewind.search.arguments import add_search_commands
from rewind.starting.command import add_new_command
from rewind.targets import archive_with, is_json, output_file, output_folder
from rewind.trouble import told
from rewind.video.command import add_clip_commands


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code (1 for an error for people or a fault of the machine, told in a sentence)."""
    with printable_output():
        return _main(arguments)


def _main(arguments: Sequence[str] | None) -> int:
    options = _parser().parse_args(arguments)
    try:
        code = options.command(options)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # `rewind … | head`: nobody reads on
        _write_no_more()
        return 128 + signal.SIGPIPE
    except Exception as error:
        sentence = told(error)
        if sentence is None:  # a defect of ours
            raise
        print(f"error: {sentence}", file=sys.stderr)
        try:
            sys.stdout.flush()
        except OSError:
            _write_no_more()
        return 1


def _write_no_more() -> None:
    """Forget what standard output has not taken: Python would try once more when it ends, and complain."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rewind",
        description="Tools around the Snakemake workflow: check a machine, plan a study, search with a finished run.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_new_command(parser, commands)
    doctor = commands.add_parser("doctor", help="list what this machine has, what is missing, and how to get it")
    doctor.set_defaults(command=_doctor)
    export = commands.add_parser("export-clip4clip", help="export the model of a run as CLIP4Clip's pytorch_model.bin")
    export.add_argument("run", type=Path, help="folder of a run: results/<study>/runs/<method>/seed<k>")
    export.add_argument("out", type=Path, help="file to write")
    export.set_defaults(command=_export)
    add_commands(commands)
    add_clip_commands(commands)
    add_init_command(commands)
    job = commands.add_parser(
        "job",
        help="run one job of the workflow again in this process: `python -m pdb -m rewind job FILE` steps into it",
        description="Runs the job that makes FILE once more, with what Snakemake gave it the last time. It writes to "
        "another folder; results and Snakemake's records are not changed.",
    )
    job.add_argument("target", metavar="FILE", help="an output of the job, for example results/demo/metrics.csv")
    job.add_argument("--out", type=Path, metavar="FOLDER", help="where to write (default: a new temporary folder)")
    job.set_defaults(command=_job)
    power = commands.add_parser("power", help="estimate what difference of R@1 a study can detect")
    power.add_argument("study", type=_study_file, help="a study's name, or its file")
    power.add_argument("--setting", help="evaluation setting (default: the study's first)")
    power.add_argument("--seeds", type=int, help="seeds per method (default: the study's)")
    power.add_argument(
        "--queries", type=int, help="number of test queries (default: from results, or counted in the dataset)"
    )
    power.add_argument("--cluster-size", type=int, help="queries per cluster (default: counted too)")
    power.add_argument(
        "--seed-sd", type=finite, help="± of R@1 over seeds, in points (default: from results, or assumed)"
    )
    power.add_argument("--r1", type=finite, help="R@1 in percent (default: from results, or 40; binary: 60)")
    power.add_argument(
        "--alike", type=finite, help="correlation of two methods (default: from results, or 0.6 to 0.95)"
    )
    power.set_defaults(command=_power)
    publish = commands.add_parser(
        "publish", help="store the results of a finished study and write them into README.md and docs/"
    )
    publish.add_argument(
        "source", nargs="?", metavar="STUDY", help="a study or a benchmark (default: only update documents)"
    )
    publish.add_argument(
        "--from", dest="results", type=Path, metavar="PATH", help="its results (default: results/<study>)"
    )
    publish.add_argument(
        "--name",
        help="folder for this machine's results (default: named after its instruction set, such as avx512, or its GPU)",
    )
    publish.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a document is out of date")
    publish.add_argument(
        "--compare",
        nargs="*",
        metavar="NAME",
        help="show the results of two machines side by side, and where they differ",
    )
    publish.set_defaults(command=_publish)
    evaluate = commands.add_parser(
        "evaluate",
        help="evaluate vectors, scores or a model by name without writing a study file",
        description="Writes config/studies/STUDY.yaml and, for a CSV, its dataset's file, runs it and prints tables.",
    )
    evaluate.add_argument("--data", required=True, help="a CSV item_id,caption[,reverse_caption], or a dataset's name")
    evaluate.add_argument("--videos", default="", metavar="FOLDER", help="clips of the CSV's items, if they are here")
    evaluate.add_argument(
        "--vectors", nargs=2, action="append", default=[], metavar=("CAPTIONS", "ITEMS"), help="may be repeated"
    )
    evaluate.add_argument(
        "--scores", action="append", default=[], metavar="FILE", help="npz or TREC run; may be repeated"
    )
    evaluate.add_argument(
        "--encoder", default="", help="open_clip, sentence_transformers, transformers, mteb, or your own"
    )
    evaluate.add_argument(
        "--name", default="", metavar="MODEL", help="what the encoder loads: a name or a local folder"
    )
    evaluate.add_argument("--option", action="append", default=[], metavar="KEY=VALUE", help="option of model: vectors")
    evaluate.add_argument(
        "--settings", nargs="+", default=[], help="origin, hard, binary, test (default: all that fit)"
    )
    evaluate.add_argument("--study", default="", help="name of the study (default: from the data's)")
    evaluate.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="TEXT",
        help="name of a model in tables; may be repeated, in the order vectors, scores, encoder (default: its file's)",
    )
    evaluate.add_argument(
        "--add", action="store_true", help="put the models into the study of an earlier command; its runs stay"
    )
    evaluate.add_argument("--cores", default="all", help="for Snakemake (default: all)")
    evaluate.add_argument("-n", "--dry-run", action="store_true", help="write the files, and show what would run")
    evaluate.set_defaults(command=_evaluate)
    rehearse = commands.add_parser(
        "rehearse", help="run every stage of a study on a handful of items, and estimate the cost of the full study"
    )
    rehearse.add_argument("study", nargs="+", help="names of files in config/studies")
    rehearse.add_argument(
        "--cores", type=int, help="CPU cores of the machine for the full study (default: this machine's)"
    )
    rehearse.add_argument("--gpus", type=int, default=None, help="GPUs of that machine (default: this machine's)")
    rehearse.add_argument(
        "--gpu-tflops", type=finite, default=None, help="TFLOP/s that one GPU sustains (default: 100)"
    )
    rehearse.add_argument(
        "--full", action="store_true", help="use all layers of towers even if their weights are missing"
    )
    rehearse.add_argument(
        "--items", metavar="TRAIN,VALID,TEST", help="number of originals per split, if the dataset is not here"
    )
    rehearse.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    rehearse.set_defaults(command=_rehearse)
    add_search_commands(commands)
    why = commands.add_parser("why", help="list what is stale, and which key, code or file changed")
    why.add_argument("target", nargs="*", help="studies, result files, or rules (default: all studies in config.yaml)")
    why.set_defaults(command=_why)
    accept = commands.add_parser("accept", help="declare that an edit of code changes no existing result")
    accept.add_argument("target", nargs="+", help="studies, result files, or rules")
    accept.set_defaults(command=_accept)
    return parser


def _doctor(options: argparse.Namespace) -> int:
    from rewind.doctor import examine, show

    findings = examine()
    print(show(findings))
    return 0 if all(finding.good or not finding.needed for finding in findings) else 1


def _export(options: argparse.Namespace) -> int:
    from rewind.interop.clip4clip import export_clip4clip

    output_file(options.out, "OUT", archive_with("data.pkl"))
    export_clip4clip(options.run, options.out)
    print(f"{options.out}: written")
    return 0


def _job(options: argparse.Namespace) -> int:
    from rewind.jobs.alone import again

    if options.out is not None:
        output_folder(options.out, "--out")
    return again(options.target, options.out)


def _study_file(text: str) -> Path:
    """A path as it is; a name, which has neither folder nor dot, is that of a file in ``config/studies``."""
    path = Path(text)
    return path if path.suffix or len(path.parts) > 1 else Path("config/studies", text)


def _power(options: argparse.Namespace) -> int:
    from rewind.jobs.power import detection
    from rewind.jobs.power_known import Places, Wishes
    from rewind.study import load_study

    wishes = Wishes(
        setting=options.setting,
        seeds=options.seeds,
        queries=options.queries,
        cluster=options.cluster_size,
        seed_sd=options.seed_sd,
        r1=options.r1,
        alike=options.alike,
    )
    study = load_study(options.study.stem, options.study.parent)
    print(detection(study, wishes, Places(datasets=options.study.parent.parent / "datasets")))
    return 0


def _publish(options: argparse.Namespace) -> int:
    from rewind.publishing.command import Wishes, publish

    return publish(Wishes(options.source, options.results, options.name, options.check, options.compare))


def _evaluate(options: argparse.Namespace) -> int:
    from rewind.evaluating import Wishes, evaluate

    return evaluate(
        Wishes(
            data=options.data,
            study=options.study,
            videos=options.videos,
            vectors=[tuple(pair) for pair in options.vectors],
            scores=options.scores,
            encoder=options.encoder,
            model=options.name,
            options=options.option,
            settings=options.settings,
            labels=options.label,
            add=options.add,
            cores=options.cores,
            dry=options.dry_run,
        )
    )


def _rehearse(options: argparse.Namespace) -> int:
    from rewind.rehearsal.command import rehearse, wishes

    if options.json is not None:
        output_file(options.json, "--json", is_json)
    said = wishes(options.cores, options.gpus, options.gpu_tflops, options.full, options.items)
    return rehearse(options.study, said, options.json)


def _why(options: argparse.Namespace) -> int:
    from rewind.staleness.command import why

    return why(options.target)


def _accept(options: argparse.Namespace) -> int:
    from rewind.staleness.command import accept

    return accept(options.target)
