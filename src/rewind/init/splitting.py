"""A split into train, valid and test that is the same whenever it is made.

Clusters stay whole: what is one file, or has the same content, or one ``cluster_id``. Their order is that of a hash of
their names, so that a clip which is added moves few others.
"""

from __future__ import annotations

from collections.abc import Sequence

from rewind.datasets.annotations import SPLITS
from rewind.files import digest
from rewind.init.items import Brought, Item
from rewind.reporting.significance import LETTERS_FROM

TEST, VALID = 0.2, 0.1  # shares of the clusters
MOST_TEST = 0.4  # of a small set, so that its tables may have letters
FEWEST = 8  # clusters of which a split can be made


def needed(found: Brought) -> bool:
    """Whether something trained needs a split that the files do not give: they name none, or the test split alone."""
    return found.splits <= {"", "test"}


def join(found: Brought, same: Sequence[Sequence[str]]) -> None:
    """Give items whose files are the same one cluster."""
    for group in same:
        clusters = {found.items[name].cluster for name in group}
        first = found.items[group[0]].cluster
        for item in found.items.values():
            if item.cluster in clusters:
                item.cluster_id = first


def split(found: Brought, lost: set[str]) -> None:
    """Set ``split`` of every item; a fault is added where there are too few clusters.

    Clips with a reverse caption are shared out by themselves, and so are those without, so that each split has both.
    Clips that cannot be used go into training, where their number does the least harm.

    Args:
        found: items, with their clusters.
        lost: ids of items without a usable file.
    """
    clusters: dict[str, list[Item]] = {}
    for item in found.items.values():
        clusters.setdefault(item.cluster, []).append(item)
    good = {name: items for name, items in clusters.items() if not all(item.item_id in lost for item in items)}
    if len(good) < FEWEST:
        found.faults.append(
            f"{found.source}: {len(good)} usable clips that are not copies of one another are too few to train, "
            f"validate and test with; bring at least {FEWEST}, or evaluate a finished model with --model or "
            "--embeddings."
        )
        return
    ordered = sorted(good, key=lambda name: digest("split", name))
    both = [[name for name in ordered if any(item.reverse for item in good[name])]]
    both.append([name for name in ordered if name not in set(both[0])])
    for item in found.items.values():
        item.split = "train"
    for part in both:
        test, valid = _counts(len(part), len(good))
        for chosen, names in (("test", part[:test]), ("valid", part[test : test + valid])):
            for name in names:
                for item in good[name]:
                    item.split = chosen


def _counts(clusters: int, of: int) -> tuple[int, int]:
    """Clusters of the test split and of the validation split, of ``clusters`` of one kind among ``of``."""
    share = min(MOST_TEST, max(TEST, LETTERS_FROM / of))
    test = max(round(share * clusters), min(clusters, 1))
    return test, max(round(VALID * clusters), int(clusters - test >= 2))


def add_validation(found: Brought) -> int:
    """Take a validation split out of the training split where the user has train and test alone; how many items."""
    if found.splits != {"train", "test"}:
        return 0
    clusters = {item.cluster for item in found.items.values() if item.split == "train"}
    clusters -= {item.cluster for item in found.items.values() if item.split == "test"}
    chosen = sorted(clusters, key=lambda name: digest("split", name))[: max(round(VALID * len(clusters)), 1)]
    moved = [item for item in found.items.values() if item.cluster in set(chosen)]
    for item in moved:
        item.split = "valid"
    return len(moved)


def faults(found: Brought) -> None:
    """Add what is wrong with a split that the user made: empty parts, items that two parts share."""
    there = found.splits
    if "" in there:
        first = next(item for item in found.items.values() if not item.split)
        found.faults.append(f"{first.where}: {first.item_id!r} has no split; name one, or leave all cells empty.")
    if lacking := [name for name in SPLITS if name not in there]:
        found.faults.append(
            f"{found.source}: no clip is in the split {' or '.join(map(repr, lacking))}; name some, or remove the "
            "column, and a split is made."
        )
    owner: dict[str, Item] = {}
    for item in found.items.values():
        first = owner.setdefault(item.cluster, item)
        if first.split != item.split:
            found.faults.append(
                f"{item.where}: {item.item_id!r} ({item.split}) is the same file as {first.item_id!r} ({first.split}), "
                "or of its cluster, so that a method could learn what it is tested on; keep both in one split."
            )
