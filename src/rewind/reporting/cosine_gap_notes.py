"""The sentences below the tables of cosine gaps."""

from __future__ import annotations

from rewind.reporting.cosine_gap_table import SPLITS, GapResults
from rewind.reporting.footnotes import Footnotes, finished, seed_caution, seed_sentence, study_sentences


def gap_sentences(facts: Footnotes, results: GapResults, noise: list[str]) -> list[str]:
    """The notes of the main table.

    Args:
        facts: of the study.
        results: its cosine gaps.
        noise: names of methods that saw noise in the place of clips.
    """
    return finished(
        [
            "Cosine gap: mean cosine of captions with their own clips (Pairs) minus mean cosine with clips of other "
            "clusters (Others); a clip’s twin belongs to its cluster and is in neither mean",
            "The gap is not a retrieval score; R@k (percent) is the result of a search by the same cosines",
            _sizes(results),
            _paired(results),
            f"Control: {'; '.join(noise)}: every clip was replaced by noise, so there is nothing to find"
            if noise
            else "",
            _spread(results),
            _intervals(results),
            f"No gap, because the method does not compare vectors: {'; '.join(results.absent())}"
            if results.absent()
            else "",
            seed_caution(_seeds(results)),
            *study_sentences(facts),
        ]
    )


def pair_sentences(facts: Footnotes, results: GapResults) -> list[str]:
    """The notes of the table of differences."""
    family = int(results.pairs["family"].max())
    pairs = f"{family:,} {'pair' if family == 1 else 'pairs'}"
    return finished(
        [
            f"Difference: the first method’s cosine gap minus the second’s; in brackets its {_percent(results)} "
            "interval, not adjusted for multiple comparisons",
            f"Holm’s p: adjusted over at most {pairs}, separately for each split and scoring; bold: below "
            f"{1 - results.confidence:.3g}",
            f"Intervals and tests: {', '.join(dict.fromkeys(results.pairs['procedure']))}",
            seed_caution(_seeds(results)),
            seed_sentence(facts),
        ]
    )


def _sizes(results: GapResults) -> str:
    rows = results.runs.drop_duplicates("split").set_index("split")
    there = [split for split in SPLITS if split in rows.index]
    found = [f"{SPLITS[s]}: {rows.loc[s, 'captions']:,} captions, {rows.loc[s, 'items']:,} clips" for s in there]
    return "; ".join(found)


def _paired(results: GapResults) -> str:
    if len(results.scorings()) < 2:
        return ""
    return (
        "Sees the answer (pair-conditioned): before the comparison, cross-attention mixes every caption into its own "
        "clip and the result into the caption, which a search cannot do because it does not know the answer. This is a "
        "warning, not a result: the gap can be large even if the clips are noise"
    )


def _spread(results: GapResults) -> str:
    counts = [count for count in _seeds(results) if count > 1]
    return f"Mean ± standard deviation over {' or '.join(map(str, counts))} seeds" if counts else ""


def _intervals(results: GapResults) -> str:
    how = results.intervals.drop_duplicates("method").groupby("procedure", sort=False)["method"].apply(list)
    first, *others = how.index
    rest = (f"{name} ({'; '.join(results.labels[m] for m in how[name])})" for name in others)
    hows = "; but ".join([first, *rest])
    return f"In brackets {_percent(results)} intervals, not adjusted for multiple comparisons: {hows}"


def _seeds(results: GapResults) -> list[int]:
    rows = results.runs[~results.runs["method"].isin(list(results.baselines))]
    return sorted(set(rows.groupby("method")["seed"].nunique()))


def _percent(results: GapResults) -> str:
    return f"{100 * results.confidence:g}%"
