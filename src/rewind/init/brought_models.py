"""Finished models: which file of vectors is of captions and which of items, and what loads a model by its name."""

from __future__ import annotations

from pathlib import Path

from rewind.datasets.annotations import twin_of
from rewind.datasets.npz_files import npz
from rewind.datasets.vector_files import EXPORTED, read_vectors
from rewind.errors import RewindError
from rewind.init.items import Brought


def pairs(paths: list[str], found: Brought) -> list[tuple[str, str]]:
    """(captions, items) files, a pair for each model, whatever the order in which their kinds are mixed.

    Raises:
        RewindError: for a file whose ids are neither of captions nor of items, one without its partner, or one that
            lacks an id.
    """
    items = {name for item in found.items.values() for name in (item.item_id, twin_of(item.item_id))}
    sides: dict[str, list[str]] = {"captions": [], "items": []}
    for path in paths:
        both = _exported(path)
        for side in ("captions", "items") if both else (_side(path, items),):
            sides[side].append(path)
    if len(sides["captions"]) != len(sides["items"]):
        lone = "items" if len(sides["captions"]) > len(sides["items"]) else "captions"
        raise RewindError(
            f"--embeddings: {len(sides['captions'])} files of captions and {len(sides['items'])} of items: name the "
            f"file of {lone} too (ids of captions are <item_id>#<n>, docs/bring-your-model.md)."
        )
    chosen = [item for item in found.items.values() if item.split == "test"]
    for path in sides["items"]:  # those of twins may be left out
        read_vectors(path, "items").of([item.item_id for item in chosen])
    for path in sides["captions"]:
        read_vectors(path, "captions").of([f"{item.item_id}#{n}" for item in chosen for n in range(len(item.forward))])
    return list(zip(sides["captions"], sides["items"], strict=True))


def _exported(path: str) -> bool:
    """Whether a file is one of a run of Rewind, which has both sides."""
    if Path(path).suffix != ".npz" or not Path(path).exists():
        return False  # told when it is read
    with npz(Path(path)) as archive:
        return set(archive.files) >= EXPORTED


def _side(path: str, items: set[str]) -> str:
    ids = read_vectors(path, "items").ids.tolist()
    if any(name in items for name in ids):
        return "items"
    if any(name.rpartition("#")[0] in items for name in ids):
        return "captions"
    raise RewindError(
        f"{path}: its ids ({', '.join(map(repr, ids[:3]))}, …) are ids neither of items nor of captions "
        "(<item_id>#<n>, counted from 0); docs/bring-your-model.md shows both."
    )


def encoder_for(model: str) -> str:
    """What loads a model, judged by its name or by the files of its folder."""
    folder = Path(model)
    if folder.is_dir():
        marks = {"open_clip_config.json": "open_clip", "modules.json": "sentence_transformers"}
        return next((encoder for file, encoder in marks.items() if (folder / file).is_file()), "transformers")
    if model.startswith("hf-hub:"):
        return "open_clip"
    if model.startswith("sentence-transformers/"):
        return "sentence_transformers"
    return "transformers" if "/" in model else "open_clip"
