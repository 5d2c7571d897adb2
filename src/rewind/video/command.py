"""``rewind clips`` and ``rewind verify``: single clips for people, and whether clips and frames are as written."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rewind.errors import RewindError
from rewind.files import require_regular_file
from rewind.targets import output_folder

if TYPE_CHECKING:
    import pandas as pd


def add_clip_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add both commands to those of ``rewind``."""
    clips = commands.add_parser("clips", help="take clips out of a dataset's shards")
    actions = clips.add_subparsers(required=True, metavar="ACTION")
    extract = actions.add_parser("extract", help="write clips or images as single files")
    extract.add_argument("dataset", metavar="DATASET", help="name of a dataset or a study, or results/data/<dataset>")
    extract.add_argument("id", nargs="*", metavar="ID", help="items, for example v1 v1_rev (default: those of --split)")
    extract.add_argument("--split", choices=("train", "valid", "test"), help="all usable items of this split")
    extract.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where to write (default: results/data/<dataset>/clips)"
    )
    extract.add_argument(
        "--trust",
        action="store_true",
        help="also take clips that items.csv names outside of results/data, or behind a link that leads out",
    )
    extract.set_defaults(command=_extract)
    verify = commands.add_parser("verify", help="compare clips or a frame store with their checksums")
    verify.add_argument(
        "what",
        metavar="DATASET|INDEX",
        help="name of a dataset or a study, or results/<study>/frames/frames<n>/index.json",
    )
    verify.set_defaults(command=_verify)


def _extract(options: argparse.Namespace) -> int:
    from rewind.datasets.captions import USABLE
    from rewind.video.clip_checks import clip_within
    from rewind.video.packed import EXTRACTED, extract

    folder = data_folder(options.dataset)
    items = _items(folder / "items.csv")
    if bool(options.id) == bool(options.split):
        raise RewindError("name either ids or a --split.")
    if options.split:
        chosen = items[(items["split"] == options.split) & (items["status"] == USABLE)].index.tolist()
    else:
        chosen = list(dict.fromkeys(options.id))
    if strangers := [item for item in chosen if item not in items.index]:
        raise RewindError(f"{folder / 'items.csv'}: no item is called {strangers[0]!r}; the column item_id lists them.")
    if lost := [item for item in chosen if items.at[item, "status"] != USABLE]:
        raise RewindError(
            f"{lost[0]}: has no clip here ({items.at[lost[0], 'status']}); see {folder}/videos/report.csv."
        )
    target = options.out or folder / EXTRACTED
    output_folder(target, "--out")
    sources = [folder / items.at[item, "path"] for item in chosen]
    for source in sources if not options.trust else ():  # all of them before the first is written
        clip_within(source, folder)
    for source in sources:
        made = extract(source, target / source.name)
        if options.id:
            print(made)
    if not options.id:
        print(f"{target}: {len(chosen):,} files")
    return 0


def _items(path: Path) -> pd.DataFrame:
    """``items.csv`` by its ids.

    Raises:
        RewindError: if a column is missing, an id is there twice, or an item that is usable has no path.
    """
    from rewind.datasets.captions import USABLE
    from rewind.files import read_csv

    items = read_csv(path)
    for column in ("item_id", "path", "split", "status"):
        if column not in items:
            raise RewindError(
                f"{path}: the column {column!r} is missing; `snakemake --cores all prepared` makes the file again."
            )
    if (twice := items["item_id"].duplicated()).any():
        raise RewindError(f"{path}: {items['item_id'][twice].iloc[0]!r} is listed twice; remove one row.")
    lacking = items["item_id"][(items["status"] == USABLE) & (items["path"] == "")]
    if len(lacking):
        raise RewindError(f"{path}: {lacking.iloc[0]!r} has no clip: the dataset consists of vectors without pictures.")
    return items.set_index("item_id")


def _verify(options: argparse.Namespace) -> int:
    if Path(options.what).name == "index.json":
        from rewind.video.store import verify

        verify(Path(options.what))
        print(f"{options.what}: all frames are as they were written")
        return 0
    from rewind.video.packed import verify as verify_clips

    folder = data_folder(options.what) / "videos"
    count, wrong = verify_clips(folder)
    for sentence in wrong:
        print(sentence)
    if wrong:
        return 1
    print(f"{folder}: {count:,} files in shards, all as they were written")
    return 0


def data_folder(name: str) -> Path:
    """Results of a data set, by its name, that of a study, or the folder itself.

    Raises:
        RewindError: if there is none.
    """
    if (Path(name) / "items.csv").is_file():
        return Path(name)
    folder = Path("results/data") / name
    if not folder.is_dir() and Path(f"config/studies/{name}.yaml").is_file():
        from rewind.study import load_study

        folder = Path("results/data") / load_study(name).dataset
    require_regular_file(folder / "items.csv", missing_ok=True)
    if not (folder / "items.csv").is_file():
        raise RewindError(
            f"{name}: no prepared dataset here: {folder}/items.csv is missing; `snakemake --cores all prepared` "
            "prepares it."
        )
    return folder
