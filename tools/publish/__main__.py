"""Numbers in our own documents: store results of finished studies, and print them in README.md and docs/.

    python tools/publish demo               # stores results/demo, rewrites all blocks, copies the figures shown
    python tools/publish demo --from PATH   # results of another checkout; --name NAME sets the machine's folder
    python tools/publish                    # only rewrites the blocks
    python tools/publish --check            # writes nothing; exit code 1 if a document is out of date
    python tools/publish demo --compare avx2 avx512

It runs in the root of a checkout, with the Python of the environment that has Rewind. Tables are rendered from the
stored numbers by :mod:`rewind.report`, as in the study itself; blocks.py lists what a document can print.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from publish import PublishOptions, publish
from rewind.cli.main import run_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python tools/publish", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "source", nargs="?", metavar="STUDY", help="a study or a benchmark (default: only update documents)"
    )
    parser.add_argument(
        "--from", dest="results", type=Path, metavar="PATH", help="its results (default: results/<study>)"
    )
    parser.add_argument(
        "--name",
        help="folder for this machine's results (default: named after its instruction set, such as avx512, or its GPU)",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a document is out of date")
    parser.add_argument(
        "--compare",
        nargs="*",
        metavar="NAME",
        help="show the results of two machines side by side, and where they differ",
    )
    parser.set_defaults(command=_publish)
    return run_command(parser, arguments)


def _publish(options: argparse.Namespace) -> int:
    return publish(PublishOptions(options.source, options.results, options.name, options.check, options.compare))


if __name__ == "__main__":
    sys.exit(main())
