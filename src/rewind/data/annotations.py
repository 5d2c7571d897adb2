"""The common form of all datasets: a table of items and a table of captions.

:func:`read_annotations` calls the reader of the dataset's format; readers collect their rows with
:class:`AnnotationBuilder`, which checks ids and counts duplicates.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from rewind.config.dataset import Dataset
from rewind.data.readers import id_fault
from rewind.errors import RewindError, printable
from rewind.io.files import check_id
from rewind.io.schema import caption_fault, unknown_name
from rewind.io.strict import read_user_text
from rewind.registry import FORMATS

SPLITS = ("train", "valid", "test")
SHOWN_SPLIT = "shown"  # of clips that only queries show: they are prepared, and in no gallery
QUERY_COLUMNS = ("shown_id", "query_text")
TWIN_SUFFIX = "_rev"
MAX_NOTE_EXAMPLES = 50  # ids, captions or files that a note or a report lists
MAX_ID_CHARACTERS = 200
CAPTION_BLOCK_ROWS = (
    2**16
)  # captions that are kept as tuples; in the columns of a table they take a third of the memory
_CAPTION_FIELDS = ("video_id", "caption", "caption_id", "split")

# ---- Annotations, and the reader of a dataset's format -------------------------------------------------------------


@dataclass(frozen=True)
class Annotations:
    """Items and captions of a dataset, before any video is looked at.

    Attributes:
        items: one row per video or image: ``item_id``, ``source`` (file of the original, relative to the folder of
            source clips, and without suffix where the format gives none), ``split``, ``cluster_id`` (what
            statistics resample together: a video with its twin), ``reversed`` (1 for a twin, else 0). A dataset of
            vectors also has ``path``: its picture, relative to its results folder, or empty.
        captions: one row per caption: ``video_id``, ``caption``, ``caption_id`` (unique, disjoint from item ids),
            ``split``. A column ``group`` is optional: what a caption is about, empty for nothing; results are then also
            shown group by group. So are :data:`QUERY_COLUMNS`, of queries that show a clip: the item, which may be of
            the split :data:`SHOWN_SPLIT`, and what is to be different in it; the caption then has both, in words.
    """

    items: pd.DataFrame
    captions: pd.DataFrame
    notes: dict[str, Any] = field(default_factory=dict)  # counts, JSON-able, also of all that is odd or left out


def is_among(ids: pd.Series, known: Any) -> np.ndarray:
    """Whether each of some ids is among those in ``known``, a set, list, array or column; bool (n,).

    It replaces pandas' ``isin``, which takes seconds for a million ids.

    >>> is_among(pd.Series(["a", "b"]), ["b", "c"]).tolist()
    [False, True]
    """
    names = known if isinstance(known, set) else set(known.tolist() if hasattr(known, "tolist") else known)
    return np.fromiter(map(names.__contains__, ids.tolist()), dtype=bool, count=len(ids))


def twin_of(item_id: str) -> str:
    """Id of an original's time-reversed twin, such as ``abc123_rev``."""
    return item_id + TWIN_SUFFIX


def twin_rows(item_ids: Sequence[str]) -> np.ndarray:
    """(m,) row of each item's twin, and of a twin that of its original; -1 for items without one; ids are unique.

    >>> twin_rows(["a", "b", "a_rev"]).tolist()
    [2, -1, 0]
    """
    row_of_item = {item: row for row, item in enumerate(item_ids)}
    twin = np.full(len(item_ids), -1)
    for item, row in row_of_item.items():
        if (partner := row_of_item.get(twin_of(item))) is not None:
            twin[row], twin[partner] = partner, row
    return twin


def read_annotations(dataset: Dataset, sources: str) -> Annotations:
    """Read a dataset's annotations; with the key ``only``, those of the originals that it lists.

    The workflow writes the files of formats with ``make_sources`` into ``sources``; others ignore it.
    """
    annotations = dataset_format(dataset)(dataset, sources)
    return annotations if dataset.only is None else select_originals(annotations, dataset.only)


def dataset_format(dataset: Dataset) -> Any:
    """The reader of a dataset's format, ``read(dataset, sources) -> Annotations``; other hooks are its attributes.

    A format of the user's own is named by the dotted path of the function, or of a module that has it.
    """
    key = f"config/datasets/{dataset.name}.yaml: source.format"
    found = FORMATS.find(dataset.source.format, key)
    reader = getattr(found, "read", found)
    if not callable(reader):
        raise RewindError(f"{key}: {dataset.source.format} is a module without `read(dataset, sources)`.")
    return reader


def select_originals(annotations: Annotations, path: str) -> Annotations:
    """The originals listed in the file ``path``, one per line, with their twins and captions.

    Raises:
        RewindError: if the file is missing, lists nothing, or has an id that is not an original of the annotations.
    """
    items = annotations.items
    item_ids = set(items["item_id"])
    lines = [line.strip() for line in read_user_text(path, "(`only`); give one item id per line").splitlines()]
    # An id may have blanks; a line that is not an id is split at blanks.
    listed = (name for line in lines for name in ([line] if line in item_ids else line.split()))
    selected = list(dict.fromkeys(listed))
    is_original = items["reversed"] == 0
    unknown = sorted(set(selected) - set(items["item_id"][is_original]))
    if unknown or not selected:
        known = items["item_id"][is_original]
        fault = unknown_name("the item_id", unknown[0], known, "the annotations", "line") if unknown else ""
        raise RewindError(f"only: {path}: {fault or 'no item id in it; give one item id per line'}.")
    original_ids = items["item_id"].where(is_original, items["item_id"].str.removesuffix(TWIN_SUFFIX))
    is_selected = original_ids.isin(selected)
    captions = annotations.captions[annotations.captions["video_id"].isin(items["item_id"][is_selected])]
    shown = captions.get(QUERY_COLUMNS[0], pd.Series(dtype=str))
    rows = items[is_selected | items["item_id"].isin(shown)]
    notes = annotations.notes | {"only": {"file": path, "originals": len(selected), "of": int(is_original.sum())}}
    return Annotations(rows.reset_index(drop=True), captions.reset_index(drop=True), notes)


# ---- Collecting items and captions, with the checks that all formats share -----------------------------------------


class AnnotationBuilder:
    """Collects items and captions in the order in which they are added, and checks them.

    Without ``files`` named after their ids, items may have any text on one line as an id.

    >>> builder = AnnotationBuilder()
    >>> name = builder.original("v1", "v1.mp4", "test", "v1", "clips.csv: row 2")
    >>> twin = builder.twin(name, "v1.mp4", "test", "v1")
    >>> builder.describe(name, ["a door opens"], "test")
    >>> builder.describe(twin, ["a door closes"], "test")
    >>> annotations = builder.annotations({"test": {"file": "clips.csv"}})
    >>> annotations.notes["splits"]["test"]["twins"], len(annotations.captions)
    (1, 2)
    """

    def __init__(self, files: bool = True) -> None:
        self.files = files
        self.items: list[tuple[str, str, str, str, int]] = []
        self.captions: list[tuple[str, str, str, str]] = []
        self.caption_blocks: list[pd.DataFrame] = []  # full blocks of captions
        self.first_mention: dict[str, str] = {}  # original → where it was first named
        self.groups: dict[str, str] = {}  # caption id → group

    def original(self, item_id: object, source: str, split: str, cluster_id: str, where: str) -> str:
        """Add an original and return its id; one that is unsafe, ends like a twin's, or was added before is refused."""
        name = check_id(item_id, where) if self.files else check_text_id(item_id, where)
        if name.endswith(TWIN_SUFFIX):
            raise RewindError(f"{where}: the id {name!r} ends with {TWIN_SUFFIX!r}, as reversed twins do; rename it.")
        if name in self.first_mention:
            raise RewindError(
                f"{where}: the id {name!r} occurs twice; it is also in {self.first_mention[name]}. Keep one."
            )
        self.first_mention[name] = where
        self.items.append((name, source, split, cluster_id, 0))
        return name

    def twin(self, item_id: str, source: str, split: str, cluster_id: str) -> str:
        """Add the reversed twin of an original and return its id."""
        name = twin_of(item_id)
        self.items.append((name, source, split, cluster_id, 1))
        return name

    def describe(self, video_id: str, captions: list[str], split: str, groups: Sequence[str] = ()) -> None:
        """Add all captions of an item; ``caption_id`` is ``<video_id>#<n>``; ``groups``: one for each, or none.

        A caption that is a list written as text is refused.
        """
        if fault := next(filter(None, map(caption_fault, captions)), ""):
            where = self.first_mention.get(video_id.removesuffix(TWIN_SUFFIX), repr(video_id))
            raise RewindError(f"{where}: {fault}.")
        self.groups |= {f"{video_id}#{n}": group for n, group in enumerate(groups) if group}
        self.captions += [(video_id, text, f"{video_id}#{n}", split) for n, text in enumerate(captions)]
        if len(self.captions) >= CAPTION_BLOCK_ROWS:
            self._close_block()

    def _close_block(self) -> None:
        self.caption_blocks.append(pd.DataFrame(self.captions, columns=list(_CAPTION_FIELDS)))
        self.captions = []

    def annotations(self, notes: dict[str, dict[str, Any]]) -> Annotations:
        """The finished tables; ``notes``, by split, gain counts of items, captions and duplicates."""
        items = pd.DataFrame(self.items, columns=["item_id", "source", "split", "cluster_id", "reversed"])
        if self.captions or not self.caption_blocks:
            self._close_block()
        for split, note in notes.items():
            rows = items[items["split"] == split]
            texts = [part.loc[part["split"] == split, ["video_id", "caption"]] for part in self.caption_blocks]
            note |= {
                "originals": int((rows["reversed"] == 0).sum()),
                "twins": int((rows["reversed"] == 1).sum()),
            }
            note |= {
                "captions": sum(map(len, texts)),
                "captions_per_item": _count_captions_per_item(texts),
                "duplicates": duplicate_captions(_possibly_repeated(texts)),
                "captions_like_no_value": captions_like_no_value(text for part in texts for text in part["caption"]),
            }
            del texts  # before the next split's, which may be as large
        captions = pd.concat(self.caption_blocks, ignore_index=True)
        # Ids of captions and items are one set of names: both are queries and gallery, in one direction or the other.
        if ambiguous := set(captions["caption_id"]).intersection(name for name in self.first_mention if "#" in name):
            name = min(ambiguous)
            raise RewindError(
                f"{self.first_mention[name]}: the id {name!r} is also that of a caption of "
                f"{name.rpartition('#')[0]!r}; rename the item."
            )
        if self.groups:
            captions["group"] = captions["caption_id"].map(self.groups).fillna("")
        return Annotations(items, captions, {"splits": notes})


def check_text_id(value: object, where: str) -> str:
    """Return ``value`` as the id of an item without a file; an empty, padded, long or unprintable one is refused."""
    name = str(value)
    fault = id_fault(name)
    if not fault and (len(name) > MAX_ID_CHARACTERS or printable(name) != name or re.search(r"[\t\r\n]", name)):
        fault = (
            f"the id {name[:MAX_ID_CHARACTERS]!r} has a control character, or more than {MAX_ID_CHARACTERS} "
            "characters; shorten it"
        )
    if fault:
        raise RewindError(f"{where}: {fault}.")
    return name


NO_VALUES = frozenset(("nan", "null", "none", "n/a", "na", "#n/a", "<na>", "nil", "nul", "undefined"))
"""Words that programs write where a value is missing, in lower case."""


def captions_like_no_value(captions: Iterable[str]) -> dict[str, int]:
    """How many captions are nothing but a word for a missing value; they are kept, for they may be meant.

    >>> captions_like_no_value(["NaN", "a dog", "NaN"])
    {'NaN': 2}
    """
    return dict(Counter(text for text in captions if len(text) <= 9 and text.casefold() in NO_VALUES))


_LEFT_OUT = {
    "listed_twice": "repeated names in a list",
    "listed_without_caption": "listed clips without a caption",
    "described_and_not_listed": "described clips that no list has",
    "rows_repeated": "repeated rows",
    "empty_captions": "empty captions",
    "left_out_not_an_object": "entries that are no object",
    "left_out_no_forward_caption": "entries without a caption",
    **{
        f"{way}_{kind}_{fault}": f"{way} {kind} that are {said}"
        for way in ("forward", "reverse")
        for kind in ("captions", "rewrites")
        for fault, said in (("empty_text", "empty"), ("not_text", "no text"))
    },
    "entries_left_out": "entries that annotators rejected",
    "empty_texts": "texts without words",
    "texts_without_item": "texts without a right item",
    "images_not_in_split_file": "images that the split file lacks",
    "images_in_split_file_alone": "images of the split file without a caption",
}
"""What readers count in their notes because they leave it out → what it is called."""


def reading_sentences(notes: Mapping[str, Any]) -> list[str]:
    """What a reader has left out, and captions that look like no value: sentences for tables and logs.

    >>> reading_sentences({"splits": {"test": {"empty_captions": 2, "captions_like_no_value": {}}}})
    ['Annotations leave out: test: empty captions (2)']
    """
    found: dict[str, list[str]] = {"Annotations leave out": [], "Captions that look like a missing value, kept": []}
    left_out, odd = found.values()
    for split, note in {"": notes, **notes.get("splits", {})}.items():
        counts, start = note | note.get("odd", {}), f"{split}: " if split else ""
        if parts := [f"{what} ({counts[key]:,})" for key, what in _LEFT_OUT.items() if counts.get(key)]:
            left_out.append(start + ", ".join(parts))
        if parts := [f"{text!r} ({count:,})" for text, count in note.get("captions_like_no_value", {}).items()]:
            odd.append(start + ", ".join(parts))
    sentences = [f"{what}: {'; '.join(parts)}" for what, parts in found.items() if parts]
    test = notes.get("splits", {}).get("test", {})
    if "queries_of_gallery_clips" in test:
        sentences.append(
            f"Captions are queries: a clip, of which the middle frame is shown, and what is to be different in it; "
            f"{test['queries_of_gallery_clips']:,} of {test['queries']:,} show a clip that is searched too"
        )
    return sentences


def _count_captions_per_item(parts: list[pd.DataFrame]) -> dict[str, int]:
    """Number of captions → how many items have that many, for example ``{"1": 500}``."""
    counts = pd.concat([part.groupby("video_id").size() for part in parts])  # an item may have captions in two blocks
    sizes = counts.groupby(level=0).sum().value_counts().sort_index()
    return {str(size): int(count) for size, count in sizes.items()}


def duplicate_captions(captions: pd.DataFrame) -> dict[str, Any]:
    """Captions of one split whose exact text occurs more than once: counts and examples.

    ``between_items`` is the number of texts that describe two or more items (so a search for them has no single right
    answer), ``within_items`` that of texts repeated inside one item; ``shared`` has the first
    :data:`MAX_NOTE_EXAMPLES` texts of several items.

    >>> table = pd.DataFrame({"video_id": ["v1", "v2", "v2"], "caption": ["a dog", "a dog", "a cat"]})
    >>> duplicate_captions(table)
    {'between_items': 1, 'within_items': 0, 'shared': [{'caption': 'a dog', 'items': ['v1', 'v2']}]}
    """
    owners = captions.groupby("caption", sort=False)["video_id"].nunique()
    between = owners.index[owners > 1]
    repeated = captions.duplicated(["video_id", "caption"], keep=False)
    shown = captions[captions["caption"].isin(between[:MAX_NOTE_EXAMPLES])].groupby("caption", sort=False)["video_id"]
    return {
        "between_items": len(between),
        "within_items": int(captions[repeated].drop_duplicates(["video_id", "caption"]).shape[0]),
        "shared": [{"caption": text, "items": list(dict.fromkeys(items))} for text, items in shown],
    }


def _possibly_repeated(parts: list[pd.DataFrame]) -> pd.DataFrame:
    """Captions whose text has a hash that occurs more than once: few of millions, whose texts are then compared.

    Python's hash of a text differs from process to process, but only which false candidates remain depends on it.
    """
    hashes = [np.fromiter(map(hash, part["caption"].tolist()), np.int64, len(part)) for part in parts]
    ordered = np.sort(np.concatenate(hashes))
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    return pd.concat([part[np.isin(own, repeated)] for part, own in zip(parts, hashes, strict=True)], ignore_index=True)
