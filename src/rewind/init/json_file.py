"""JSON annotations: RTime's object keyed by clip, or a list of captioned files."""

from __future__ import annotations

from pathlib import Path

from rewind.datasets.annotations import SPLITS, TWIN_SUFFIX, Annotations
from rewind.datasets.rtime import read_files
from rewind.errors import RewindError
from rewind.init.items import Brought, Item
from rewind.init.rows import as_json, read_objects
from rewind.reading.objects import read_json


def read_json_file(path: Path, trained: bool) -> Brought:
    """One JSON file; of RTime's ``train.json`` also ``valid.json`` and ``test.json`` beside it, and so on.

    Args:
        path: the file.
        trained: whether something is trained, so that of a file that is still to be split all captions are read.

    Raises:
        RewindError: for what is no JSON, or in neither form.
    """
    content = read_json(path)
    if isinstance(content, list):
        return read_objects(path, ((f"{path}: entry {n}", value) for n, value in enumerate(content, start=1)))
    keyed = isinstance(content, dict) and content
    if not keyed or not any(isinstance(one, dict) and "forward_captions" in one for one in content.values()):
        raise RewindError(
            f'{path}: neither RTime\'s annotations ({{"<clip>": {{"forward_captions": ["…"], "reverse_captions": '
            '["…"]}}}) nor a list of captioned files ([{"file_name": "a.mp4", "caption": "…"}]).'
        )
    beside = {split: path.with_name(f"{split}.json") for split in SPLITS}
    whole = path in beside.values() and all(one.is_file() for one in beside.values())
    files = {split: str(one) for split, one in beside.items()} if whole else {"train" if trained else "test": str(path)}
    found = Brought(path, annotations=files if whole else {"": str(path)})
    if whole:
        found.said.append(f"splits are from {', '.join(files.values())}")
    elif path.stem in SPLITS:
        lacking = [str(one) for one in beside.values() if not one.is_file()]
        found.said.append(f"{path} is used alone, as one set of clips: {', '.join(lacking)} not found beside it")
    annotations = _collect(found, files)
    if not found.items:
        raise RewindError(f"{path}: no entry has a forward caption; add some.")
    for split, note in annotations.notes["splits"].items():
        odd = ", ".join(f"{name} ({count:,})" for name, count in note["odd"].items())
        if odd:
            found.said.append(f"{files[split]}: odd entries: {odd}")
    return found


def _collect(found: Brought, files: dict[str, str]) -> Annotations:
    """Add what the files say; of a file that is to be split without its split."""
    annotations = read_files(files, True)
    texts = annotations.captions.groupby("video_id", sort=False)["caption"].apply(list)
    for row in annotations.items.itertuples():
        if not row.reversed:
            split = "" if "" in found.annotations else row.split
            found.items[row.item_id] = Item(row.item_id, row.source, files[row.split], split, "", texts[row.item_id])
        else:
            found.items[row.item_id.removesuffix(TWIN_SUFFIX)].reverse = texts[row.item_id]
    return annotations


def human_only(found: Brought) -> None:
    """Leave rewrites to training, as the format does; a clip that has nothing else belongs there."""
    human = Brought(found.source, annotations=found.annotations)
    _collect(human, {"test": str(found.source)})
    for name, item in found.items.items():
        if name not in human.items:
            item.split = "train"
        elif item.split != "train":
            item.forward, item.reverse = human.items[name].forward, human.items[name].reverse


def parts(found: Brought) -> dict[str, str]:
    """Split → text of a JSON file with the entries of its clips."""
    content = read_json(found.source)
    return {
        split: as_json({name: content[name] for name, item in found.items.items() if item.split == split})
        for split in SPLITS
    }
