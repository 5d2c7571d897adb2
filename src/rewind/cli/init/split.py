"""A reproducible split into train, valid and test that keeps clusters whole.

Items with one file, with the same content or with one ``cluster_id`` form a cluster. Clusters are ordered by a hash
of their names, so that adding a clip moves few others.
"""

from __future__ import annotations

from collections.abc import Sequence

from rewind.cli.init.read import UserData, UserItem
from rewind.data.annotations import SPLITS
from rewind.hashing import stable_hash
from rewind.tables.results import MIN_CLUSTERS_FOR_LETTERS

TEST_SHARE, VALID_SHARE = 0.2, 0.1  # shares of the clusters
MAX_GIVEN_TEST_SHARE = 0.8
MAX_TEST_SHARE = 0.4  # of a small dataset, so that its tables can have letters of significance
MIN_CLUSTERS = 8  # fewer clusters are not split


def needs_split(data: UserData) -> bool:
    """Whether training needs a split that the files do not give: they name none, or only the test split."""
    return data.splits <= {"", "test"}


def join_clusters(data: UserData, same: Sequence[Sequence[str]]) -> None:
    """Put items with the same file, or the same content, into one cluster, by groups of their ids."""
    for group in same:
        clusters = {data.items[name].cluster for name in group}
        first = data.items[group[0]].cluster
        for item in data.items.values():
            if item.cluster in clusters:
                item.cluster_id = first


def assign_splits(data: UserData, unusable: set[str], test_share: float | None = None) -> None:
    """Set ``split`` of every item; add a fault where there are too few clusters.

    Clusters with a reverse caption are split separately from those without, so that each split has both kinds. Where
    few have one, more than their share are tested (up to half of them), instead of others: Binary is about them.
    Clips that cannot be used go into training, where they do the least harm. A ``test_share`` that is given is kept for
    both kinds.

    >>> from pathlib import Path
    >>> data = UserData(Path("captions.csv"))
    >>> for n in range(10):
    ...     _ = data.add(f"clip{n}", f"clip{n}.mp4", "A door opens.", f"row {n}")
    >>> assign_splits(data, unusable=set())
    >>> [sum(item.split == split for item in data.items.values()) for split in SPLITS]
    [5, 1, 4]
    """
    clusters: dict[str, list[UserItem]] = {}
    for item in data.items.values():
        clusters.setdefault(item.cluster, []).append(item)
    usable = {name: items for name, items in clusters.items() if not all(item.item_id in unusable for item in items)}
    if len(usable) < MIN_CLUSTERS:
        data.faults.append(
            f"{data.source}: {len(usable)} usable clips that are not copies of one another are too few to train, "
            f"validate and test with; provide at least {MIN_CLUSTERS}, or evaluate a finished model with --model or "
            "--embeddings."
        )
        return
    ordered = sorted(usable, key=lambda name: stable_hash("split", name))
    kinds = [[name for name in ordered if any(item.reverse for item in usable[name])]]
    kinds.append([name for name in ordered if name not in set(kinds[0])])
    for item in data.items.values():
        item.split = "train"
    default = min(MAX_TEST_SHARE, max(TEST_SHARE, MIN_CLUSTERS_FOR_LETTERS / len(usable)))
    counts = [_split_counts(len(names), test_share or default) for names in kinds]
    (twin_test, twin_valid), (other_test, other_valid) = counts
    more = 0 if test_share else max(0, min(MIN_CLUSTERS_FOR_LETTERS, len(kinds[0]) // 2) - twin_test)
    more = min(more, max(0, other_test - 1))
    counts = [(twin_test + more, min(twin_valid, len(kinds[0]) - twin_test - more)), (other_test - more, other_valid)]
    for names, (test, valid) in zip(kinds, counts, strict=True):
        for split, members in (("test", names[:test]), ("valid", names[test : test + valid])):
            for name in members:
                for item in usable[name]:
                    item.split = split


def _split_counts(clusters: int, test_share: float) -> tuple[int, int]:
    """Number of clusters of the test and of the validation split, of ``clusters`` of one kind."""
    test = max(round(test_share * clusters), min(clusters, 1))
    return test, max(round(VALID_SHARE * clusters), int(clusters - test >= 2))


def add_validation_split(data: UserData) -> int:
    """Take a validation split out of training where the user has only train and test; return its number of items."""
    if data.splits != {"train", "test"}:
        return 0
    candidates = {item.cluster for item in data.items.values() if item.split == "train"}
    candidates -= {item.cluster for item in data.items.values() if item.split == "test"}
    count = max(round(VALID_SHARE * len(candidates)), 1)
    valid = set(sorted(candidates, key=lambda name: stable_hash("split", name))[:count])
    moved = [item for item in data.items.values() if item.cluster in valid]
    for item in moved:
        item.split = "valid"
    return len(moved)


def add_split_faults(data: UserData) -> None:
    """Add faults of the user's own split: items without one, empty splits, clusters in two splits."""
    splits = data.splits
    if "" in splits:
        first = next(item for item in data.items.values() if not item.split)
        data.faults.append(f"{first.where}: {first.item_id!r} has no split; name one, or leave all cells empty.")
    if missing := [name for name in SPLITS if name not in splits]:
        data.faults.append(
            f"{data.source}: no clip is in the split {' or '.join(map(repr, missing))}; name some, or remove the "
            "column, and a split is written."
        )
    owner: dict[str, UserItem] = {}
    for item in data.items.values():
        first = owner.setdefault(item.cluster, item)
        if first.split != item.split:
            data.faults.append(
                f"{item.where}: {item.item_id!r} ({item.split}) is the same file as {first.item_id!r} ({first.split}), "
                "or of its cluster, so that a method could learn what it is tested on; keep both in one split."
            )
