"""Finished models for ``rewind init``: pair files of embeddings; guess which encoder loads a model."""

from __future__ import annotations

from pathlib import Path

from rewind.cli.init.read import UserData
from rewind.data.annotations import twin_of
from rewind.data.readers import EXPORTED_ARRAYS, open_npz, read_embedding_file
from rewind.errors import RewindError


def pair_embedding_files(paths: list[str], data: UserData) -> list[tuple[str, str]]:
    """Sort files of embeddings into pairs (captions, items), one for each model.

    Files of captions and of items may be mixed in any order; the n-th of one kind belongs to the n-th of the other.

    Args:
        paths: the files; one that a run of Rewind exported holds both sides.
        data: the items that they must cover.

    Raises:
        RewindError: for a file whose ids belong neither to captions nor to items, one without its partner, or one
            that lacks an id of the test split.
    """
    item_ids = {name for item in data.items.values() for name in (item.item_id, twin_of(item.item_id))}
    sides: dict[str, list[str]] = {"captions": [], "items": []}
    for path in paths:
        is_exported = _is_exported_run(path)
        for side in ("captions", "items") if is_exported else (_side_of_file(path, item_ids),):
            sides[side].append(path)
    if len(sides["captions"]) != len(sides["items"]):
        missing_side = "items" if len(sides["captions"]) > len(sides["items"]) else "captions"
        raise RewindError(
            f"--embeddings: {len(sides['captions'])} files of captions and {len(sides['items'])} of items: name the "
            f"file of {missing_side} too (ids of captions are <item_id>#<n>, docs/bring-your-model.md)."
        )
    test_items = [item for item in data.items.values() if item.split == "test"]
    # Reading fails where an id of the test split is missing; embeddings of reversed twins may be left out.
    for path in sides["items"]:
        read_embedding_file(path, "items").of([item.item_id for item in test_items])
    for path in sides["captions"]:
        read_embedding_file(path, "captions").of(
            [f"{item.item_id}#{n}" for item in test_items for n in range(len(item.forward))]
        )
    return list(zip(sides["captions"], sides["items"], strict=True))


def _is_exported_run(path: str) -> bool:
    """Whether a file was exported from a run of Rewind, with captions and items in it."""
    if Path(path).suffix != ".npz" or not Path(path).exists():
        return False  # a missing file is reported when it is read
    with open_npz(Path(path)) as archive:
        return set(archive.files) >= EXPORTED_ARRAYS


def _side_of_file(path: str, item_ids: set[str]) -> str:
    ids = read_embedding_file(path, "items").ids.tolist()
    if any(name in item_ids for name in ids):
        return "items"
    if any(name.rpartition("#")[0] in item_ids for name in ids):
        return "captions"
    raise RewindError(
        f"{path}: its ids ({', '.join(map(repr, ids[:3]))}, …) are ids neither of items nor of captions "
        "(<item_id>#<n>, counted from 0); docs/bring-your-model.md shows both."
    )


def guess_encoder(model: str) -> str:
    """The encoder that loads a model, judged by its name or by the files of its folder.

    >>> guess_encoder("ViT-B-32"), guess_encoder("google/siglip-base-patch16-224")
    ('open_clip', 'transformers')
    """
    folder = Path(model)
    if folder.is_dir():
        marker_files = {"open_clip_config.json": "open_clip", "modules.json": "sentence_transformers"}
        return next((encoder for file, encoder in marker_files.items() if (folder / file).is_file()), "transformers")
    if model.startswith("hf-hub:"):
        return "open_clip"
    if model.startswith("sentence-transformers/"):
        return "sentence_transformers"
    return "transformers" if "/" in model else "open_clip"
