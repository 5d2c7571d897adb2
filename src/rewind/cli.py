"""The command ``rewind``: what is done to a machine or to a finished run, outside the workflow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rewind.errors import RewindError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code (an error prints its message alone and gives 1)."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except RewindError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rewind", description="Tools beside the Snakemake workflow.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="what this machine has, what is missing, and how to get it")
    doctor.set_defaults(command=_doctor)
    export = commands.add_parser("export-clip4clip", help="write a run's model as CLIP4Clip's pytorch_model.bin")
    export.add_argument("run", type=Path, help="folder of a run: results/<study>/runs/<method>/seed<k>")
    export.add_argument("out", type=Path, help="file to write")
    export.set_defaults(command=_export)
    verify = commands.add_parser("verify", help="check a frame store against its checksums")
    verify.add_argument("index", type=Path, help="results/<study>/frames/frames<n>/index.json")
    verify.set_defaults(command=_verify)
    job = commands.add_parser(
        "job",
        help="one job of the workflow again, alone in this process: `python -m pdb -m rewind job FILE` steps into it",
        description="Does the job that makes FILE once more, with what it was given when Snakemake last started it. It "
        "writes below another folder: results and Snakemake's records stay as they are.",
    )
    job.add_argument("target", metavar="FILE", help="an output of the job, for example results/demo/metrics.csv")
    job.add_argument("--out", type=Path, metavar="FOLDER", help="where it writes; a new temporary folder")
    job.set_defaults(command=_job)
    power = commands.add_parser("power", help="what difference of R@1 a study can detect")
    power.add_argument("study", type=Path, help="study file: config/studies/<study>.yaml")
    power.add_argument("--setting", help="setting of the evaluation; the study's first")
    power.add_argument("--seeds", type=int, help="seeds per method; the study's")
    power.add_argument("--queries", type=int, help="test queries; as in the results, or counted in the data set")
    power.add_argument("--cluster-size", type=int, help="queries that succeed or fail together; counted too")
    power.add_argument("--seed-sd", type=float, help="± of R@1 over seeds in points; as in the results, or assumed")
    power.add_argument("--r1", type=float, help="R@1 in percent; as in the results, or 40 (binary: 60)")
    power.add_argument("--alike", type=float, help="correlation of two methods; as in the results, or 0.6 to 0.95")
    power.set_defaults(command=_power)
    publish = commands.add_parser(
        "publish", help="store a finished study's results, and print README.md and docs/ from what is stored"
    )
    publish.add_argument("source", nargs="?", metavar="STUDY", help="a study, or a benchmark; none: documents alone")
    publish.add_argument("--from", dest="results", type=Path, metavar="PATH", help="its results; results/<study>")
    publish.add_argument("--name", help="folder of this machine's results; by its instructions (avx512) or GPU")
    publish.add_argument("--check", action="store_true", help="write nothing; 1 if documents print anything else")
    publish.add_argument(
        "--compare",
        nargs="*",
        metavar="NAME",
        help="two machines' results beside each other, and where they part",
    )
    publish.set_defaults(command=_publish)
    rehearse = commands.add_parser(
        "rehearse", help="every stage of a study on a handful of items, and what all will cost"
    )
    rehearse.add_argument("study", nargs="+", help="names of files in config/studies")
    rehearse.add_argument("--cores", type=int, help="cores of the machine that will run the whole study; this one's")
    rehearse.add_argument("--gpus", type=int, default=None, help="its GPUs; this machine's")
    rehearse.add_argument("--gpu-tflops", type=float, default=None, help="TFLOP/s that one of them sustains; 100")
    rehearse.add_argument("--full", action="store_true", help="keep the depth of towers whose weights are not here")
    rehearse.add_argument("--items", metavar="TRAIN,VALID,TEST", help="originals of the data set, if it is not here")
    rehearse.add_argument("--json", type=Path, metavar="FILE", help="write everything there for machines")
    rehearse.set_defaults(command=_rehearse)
    search = commands.add_parser("search", help="search the items of a data set with a finished run")
    _add_gallery(search)
    search.add_argument("query", nargs="*", help="what to look for; without it a prompt opens")
    search.add_argument("--top", type=int, default=5, help="how many items to show; 5")
    search.add_argument("--random", type=int, metavar="N", help="ask N captions of the split instead")
    search.add_argument("--seed", type=int, default=0, help="of --random; 0")
    search.add_argument("--save", type=Path, metavar="FOLDER", help="write a picture and JSON of every answer there")
    search.add_argument("--times", action="store_true", help="say how long encoding and ranking took")
    search.set_defaults(command=_search)
    serve = commands.add_parser("serve", help="the same search in the browser")
    _add_gallery(serve)
    serve.add_argument("--host", default="127.0.0.1", help="address to listen at; this machine alone")
    serve.add_argument("--port", type=int, default=8000, help="8000; 0 takes a free one")
    serve.set_defaults(command=_serve)
    why = commands.add_parser("why", help="what is stale here, and which key, code or file changed")
    why.add_argument("target", nargs="*", help="studies, files of results, or rules; all that config.yaml asks for")
    why.set_defaults(command=_why)
    accept = commands.add_parser("accept", help="declare that edits of code change no number of results that are here")
    accept.add_argument("target", nargs="+", help="studies, files of results, or rules")
    accept.set_defaults(command=_accept)
    return parser


def _add_gallery(parser: argparse.ArgumentParser) -> None:
    """A run, and what it searches."""
    parser.add_argument("run", type=Path, help="folder of a run: results/<study>/runs/<method>/seed<k>")
    parser.add_argument("--split", choices=["test", "valid", "train", "all"], default="test", help="which items; test")
    parser.add_argument(
        "--index",
        nargs="?",
        const="-",
        metavar="FILE",
        help="keep the items' features for the next time: results/<study>/index/<method>.seed<k>.npz, or FILE",
    )


def _doctor(options: argparse.Namespace) -> int:
    from rewind.doctor import examine, show

    findings = examine()
    print(show(findings))
    return 0 if all(finding.good or not finding.needed for finding in findings) else 1


def _export(options: argparse.Namespace) -> int:
    export_clip4clip(options.run, options.out)
    print(f"{options.out}: written")
    return 0


def _verify(options: argparse.Namespace) -> int:
    from rewind.video.store import verify

    verify(options.index)
    print(f"{options.index}: every shard has the bytes that it was written with")
    return 0


def _job(options: argparse.Namespace) -> int:
    from rewind.jobs.alone import again

    return again(options.target, options.out)


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


def _rehearse(options: argparse.Namespace) -> int:
    from rewind.rehearsal.command import rehearse, wishes

    said = wishes(options.cores, options.gpus, options.gpu_tflops, options.full, options.items)
    return rehearse(options.study, said, options.json)


def _why(options: argparse.Namespace) -> int:
    from rewind.staleness.command import why

    return why(options.target)


def _accept(options: argparse.Namespace) -> int:
    from rewind.staleness.command import accept

    return accept(options.target)


def _search(options: argparse.Namespace) -> int:
    from rewind.search.command import Wishes, search

    query = " ".join(options.query) if options.query else None
    search(
        options.run,
        Wishes(
            query=query,
            top=options.top,
            split=options.split,
            index=options.index,
            random=options.random,
            seed=options.seed,
            save=options.save,
            times=options.times,
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
    from rewind.search.command import start

    run, searcher = start(options.run, options.split, options.index)
    serve(create_app(run, searcher, options.split, is_local(options.host)), options.host, options.port, run.name)
    return 0


def export_clip4clip(run: Path, out: Path) -> None:
    """Write the model of a finished run in CLIP4Clip's format.

    Args:
        run: folder with the run's ``model.safetensors`` and ``run.json``.
        out: file to write, atomically.

    Raises:
        RewindError: if there is no finished run, or its model is none that CLIP4Clip can compute.
    """
    import torch

    from rewind.compat import open_clip
    from rewind.files import read_json
    from rewind.models.architectures import architecture
    from rewind.models.clip4clip_files import check_towers, write_state
    from rewind.models.temporal import HEADS
    from rewind.models.weights import read_state

    spec = read_json(run / "run.json").get("spec", {})
    method, backbone = spec.get("method", {}), spec.get("backbone", {})
    if (method.get("model"), backbone.get("kind")) != ("clip4clip", "clip") or method.get("head") not in HEADS:
        raise RewindError(
            f"{run}: CLIP4Clip's format holds CLIP towers under {', '.join(HEADS)}; this run is "
            f"{method.get('model')} {method.get('head')} on {backbone.get('kind')}."
        )
    with torch.device("meta"):  # its form alone
        check_towers(open_clip("model").CLIP(**architecture(backbone["architecture"])), str(run))
    write_state(read_state(run / "model.safetensors"), method["head"], out)
