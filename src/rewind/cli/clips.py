"""``rewind clips`` and ``rewind verify``: extract single clips from shards; verify checksums of clips and frames."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd

from rewind.errors import RewindError
from rewind.io.files import check_output_folder, read_csv, require_regular_file

# The modules that do the work are imported when a command runs, so that `rewind --help` is fast.


def add_clip_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add ``rewind clips`` and ``rewind verify``."""
    clips = commands.add_parser(
        "clips",
        description="Extract clips from a dataset's shards. Prepared clips and images are stored in tar files; players "
        "and other tools need them as single files.",
    )
    actions = clips.add_subparsers(required=True, metavar="ACTION")
    extract = actions.add_parser(
        "extract",
        help="write clips or images as single files",
        description="Write clips or images as single files, by their ids or those of a whole split. The shards stay as "
        "they are.",
    )
    extract.add_argument("dataset", metavar="DATASET", help="name of a dataset or a study, or results/data/<dataset>")
    extract.add_argument("id", nargs="*", metavar="ID", help="items, for example v1 v1_rev (default: those of --split)")
    extract.add_argument("--split", choices=("train", "valid", "test"), help="all usable items of this split")
    extract.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where to write (default: results/data/<dataset>/clips)"
    )
    extract.add_argument(
        "--trust",
        action="store_true",
        help="also extract clips whose path in items.csv, or whose link, leads outside results/data",
    )
    extract.set_defaults(command=_extract)
    verify = commands.add_parser(
        "verify",
        description="Compare clips or a frame store with their checksums. Every byte is read; files that have "
        "changed since they were written are listed, and the exit code is then 1.",
    )
    verify.add_argument(
        "what",
        metavar="DATASET|INDEX",
        help="name of a dataset or a study, or results/<study>/frames/frames<n>/index.json",
    )
    verify.set_defaults(command=_verify)


def _extract(options: argparse.Namespace) -> int:
    from rewind.data.captions import USABLE_STATUS
    from rewind.video.shards import EXTRACTED_FOLDER, clip_within, extract_clip

    folder = find_data_folder(options.dataset)
    items = _read_items(folder / "items.csv")
    if bool(options.id) == bool(options.split):
        raise RewindError("name either ids or a --split.")
    if options.split:
        item_ids = items[(items["split"] == options.split) & (items["status"] == USABLE_STATUS)].index.tolist()
    else:
        item_ids = list(dict.fromkeys(options.id))
    if unknown := [item for item in item_ids if item not in items.index]:
        raise RewindError(f"{folder / 'items.csv'}: no item is called {unknown[0]!r}; the column item_id lists them.")
    if unusable := [item for item in item_ids if items.at[item, "status"] != USABLE_STATUS]:
        raise RewindError(
            f"{unusable[0]}: no usable clip ({items.at[unusable[0], 'status']}); see {folder}/videos/report.csv."
        )
    target = options.out or folder / EXTRACTED_FOLDER
    check_output_folder(target, "--out")
    sources = [folder / items.at[item, "path"] for item in item_ids]
    for source in sources if not options.trust else ():  # all are checked before the first is written
        clip_within(source, folder)
    for source in sources:
        path = extract_clip(source, target / source.name)
        if options.id:
            print(path)
    if not options.id:
        print(f"{target}: {len(item_ids):,} files")
    return 0


def _read_items(path: Path) -> pd.DataFrame:
    """``items.csv``, indexed by ``item_id``."""
    from rewind.data.captions import USABLE_STATUS
    from rewind.workflow.checksums import how_to_remake

    items = read_csv(path)
    for column in ("item_id", "path", "split", "status"):
        if column not in items:
            raise RewindError(f"{path}: the column {column!r} is missing. {how_to_remake(path)}")
    if (duplicated := items["item_id"].duplicated()).any():
        raise RewindError(f"{path}: {items['item_id'][duplicated].iloc[0]!r} is listed twice; remove one row.")
    without_path = items["item_id"][(items["status"] == USABLE_STATUS) & (items["path"] == "")]
    if len(without_path):
        raise RewindError(
            f"{path}: {without_path.iloc[0]!r} has no clip: the dataset consists of vectors without pictures."
        )
    return items.set_index("item_id")


def _verify(options: argparse.Namespace) -> int:
    if Path(options.what).name == "index.json":
        from rewind.video.frame_store import verify_store

        verify_store(Path(options.what))
        print(f"{options.what}: all frames are as they were written")
        return 0
    from rewind.video.shards import verify_shards

    folder = find_data_folder(options.what) / "videos"
    count, faults = verify_shards(folder)
    for fault in faults:
        print(fault)
    if faults:
        return 1
    print(f"{folder}: {count:,} files in shards, all as they were written")
    return 0


def find_data_folder(name: str) -> Path:
    """The results folder of a prepared dataset, named by the dataset, a study on it, or the folder itself.

    Raises:
        RewindError: if the dataset is not prepared.
    """
    if (Path(name) / "items.csv").is_file():
        return Path(name)
    folder = Path("results/data") / name
    if not folder.is_dir() and Path(f"config/studies/{name}.yaml").is_file():
        from rewind.workflow.config import load_configured_study

        folder = Path("results/data") / load_configured_study(name).dataset
    require_regular_file(folder / "items.csv", missing_ok=True)
    if not (folder / "items.csv").is_file():
        from rewind.commands import prepare_command

        raise RewindError(
            f"{name}: no prepared dataset here: {folder}/items.csv is missing; `{prepare_command(folder)}` prepares it."
        )
    return folder
