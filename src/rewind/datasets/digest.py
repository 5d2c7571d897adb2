"""One hash for the content of a data set: of its normalised clips or images, or of its vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import pandas as pd

from rewind.datasets.captions import USABLE


def clips_digest(report: pd.DataFrame) -> str | None:
    """SHA-256 over the id and the hash of every usable clip or image, in the order of ids.

    Args:
        report: the report of the video stage: item_id, status, sha256.

    Returns:
        64 hex digits; None where the report is of a version that kept no hashes.
    """
    good = report[report["status"] == USABLE]
    hashes = good.get("sha256", pd.Series("", index=good.index)).fillna("").astype(str)
    if (hashes == "").any():
        return None
    return _over(sorted(zip(good["item_id"], hashes, strict=True)))


def vectors_digest(hashes: Mapping[str, str]) -> str:
    """The same of a data set of vectors, from the hashes in its index."""
    return _over(sorted(hashes.items()))


def _over(pairs: Iterable[tuple[str, str]]) -> str:
    whole = hashlib.sha256()
    for name, value in pairs:
        whole.update(f"{name}\0{value}\n".encode())
    return whole.hexdigest()
