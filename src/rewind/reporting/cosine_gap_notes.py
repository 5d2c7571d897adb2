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
            "clusters (Others); a clip’s twin is of its cluster and counts on neither side",
            "A gap is no retrieval score: R@k (percent) is what a search by the same cosines finds",
            _sizes(results),
            _paired(results),
            f"Control: {'; '.join(noise)}: noise stood in the place of every clip, so there is nothing to be found"
            if noise
            else "",
            _spread(results),
            _intervals(results),
            f"No gap, because no vectors are compared: {'; '.join(results.absent())}" if results.absent() else "",
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
            "interval, not adjusted for the number of pairs",
            f"Holm’s p: adjusted over at most {pairs}, in each split and scoring by itself; bold: below "
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
        "Sees the answer (pair-conditioned): before they are compared, cross-attention mixes every caption into its "
        "own clip and the result into the caption, which no search can do without knowing the answer. It is shown as a "
        "warning, not as a result: its gap can be large where clips hold nothing"
    )


def _spread(results: GapResults) -> str:
    counts = [count for count in _seeds(results) if count > 1]
    return f"Mean ± standard deviation over {' or '.join(map(str, counts))} seeds" if counts else ""


def _intervals(results: GapResults) -> str:
    how = results.intervals.drop_duplicates("method").groupby("procedure", sort=False)["method"].apply(list)
    first, *others = how.index
    rest = (f"{name} ({'; '.join(results.labels[m] for m in how[name])})" for name in others)
    return f"In brackets {_percent(results)} intervals, not adjusted for their number: {'; but '.join([first, *rest])}"


def _seeds(results: GapResults) -> list[int]:
    rows = results.runs[~results.runs["method"].isin(list(results.baselines))]
    return sorted(set(rows.groupby("method")["seed"].nunique()))


def _percent(results: GapResults) -> str:
    return f"{100 * results.confidence:g}%"
