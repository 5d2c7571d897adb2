"""What annotations lack that an earlier version made and an upgrade kept."""

from __future__ import annotations

from rewind.datasets.annotations import SPLITS
from rewind.datasets.shapes_grammar import compose
from rewind.study.dataset import Dataset, ShapesSource


def groups(dataset: Dataset) -> dict[tuple[str, str], str]:
    """(Original, caption) → group: of shapes the kind of motion, of other formats nothing."""
    source = dataset.source
    if not isinstance(source, ShapesSource):
        return {}
    counts = {str(split): count for split, count in source.clips.items()}
    splits = compose(counts, source.paraphrases, source.seed)
    return {
        (f"{split}{number:04}", caption): entry.scene.event
        for split in SPLITS
        for number, entry in enumerate(splits[split])
        for reverse in (False, True)
        for caption in entry.captions(reverse)
    }
