"""The table of the verdict: what each method gains over the baseline, how surely, at what price."""

from __future__ import annotations

import pandas as pd

from rewind.reporting.results import Results, directions
from rewind.reporting.setting_table import place as placed
from rewind.reporting.sheet import Entry, Head, Part, Sheet, bounds, number, p_value, slug
from rewind.reporting.verdict import Claim, Judged, ZeroShotGain, judge, place


def numbers(results: Results) -> pd.DataFrame:
    """The table's CSV: one row per method, search direction and metric, with the method's verdict in each.

    ``gain_seed<k>``, ``difference``, ``shrinkage`` and ``zero_shot`` (where images are classified) are in percentage
    points, ``spread`` is a ratio of standard deviations over seeds; ``every_seed``, ``significant``, ``affordable``,
    ``controlled``, ``holds`` (all of these) and ``win`` (of the method) are 1 or 0.
    """
    rows = []
    for judged in judge(results):
        for claim in judged.claims:
            rows.append(
                {"method": judged.method, "label": results.labels[judged.method], "baseline": results.verdict.baseline}
                | {"setting": place(results), "direction": claim.direction, "metric": claim.metric}
                | {f"gain_seed{seed}": gain for seed, gain in claim.gains.items()}
                | {"every_seed": int(claim.every_seed)}
                | {"difference": claim.difference, "low": claim.low, "high": claim.high}
                | {"p_holm": claim.p_holm, "significant": int(claim.significant)}
                | {"step_time_ratio": judged.ratio, "affordable": int(judged.affordable)}
                | {"shrinkage": claim.shrinkage, "shrinkage_low": claim.shrinkage_low}
                | {"shrinkage_high": claim.shrinkage_high, "controlled": int(claim.controlled)}
                | {"spread": claim.spread, "spread_low": claim.spread_low, "spread_high": claim.spread_high}
                | _zero_shot(judged.zero_shot)
                | {"holds": int(claim.holds and judged.affordable)}
                | {"win": int(judged.win), "reasons": "; ".join(judged.reasons)}
            )
    return pd.DataFrame(rows)


def sheet(results: Results, dataset: str = "") -> Sheet:
    """A row per method, with the claim that its verdict rests on.

    Args:
        results: the study's numbers, with ``verdict``.
        dataset: title of the data, for the caption.
    """
    setting, found = place(results), judge(results)
    seeds = list(found[0].best.gains)
    several = len(directions(results, setting)) > 1
    controls = [Head("Gap shrinks by", group="Control")] if results.verdict.control else []
    heads = (
        Head("Method", number=False),
        Head("Win", number=False),
        Head("By", number=False),
        *(Head(str(seed), group="Gain, seed") for seed in seeds),
        Head("Mean gain"),
        Head("Holm’s p"),
        Head("Step time"),
        *controls,
        *([] if found[0].zero_shot is None else [Head("Zero-shot gain", group="Expected too")]),
        Head("Spread over seeds", group="Expected too"),
    )
    lines = tuple(_line(results, judged, several) for judged in found)
    title = f"{placed(dataset, setting)}: who wins over {results.labels[results.verdict.baseline]}"
    return Sheet("Verdict", title, slug(dataset, setting, "verdict"), heads, (Part("", lines),))


def named(results: Results, claim: Claim, several: bool) -> str:
    """``T2V R@5``, or the metric alone where there is one search direction."""
    return f"{results.short(claim.direction)} {claim.metric}" if several else claim.metric


def _line(results: Results, judged: Judged, several: bool) -> tuple[Entry, ...]:
    best = judged.best
    ends = bounds(best.shrinkage_low, best.shrinkage_high, signed=True)
    control = [Entry(number(best.shrinkage, signed=True), "", ends, bold=best.controlled)]
    return (
        Entry(results.labels[judged.method]),
        Entry("yes" if judged.win else "no"),
        Entry(named(results, best, several)),
        *(Entry(number(gain, signed=True), bold=gain > 0) for gain in best.gains.values()),
        Entry(number(best.difference, signed=True), "", bounds(best.low, best.high, signed=True)),
        Entry(p_value(best.p_holm), bold=best.significant),
        Entry(number(judged.ratio, 2), "", bounds(judged.ratio_low, judged.ratio_high, 2), bold=judged.affordable),
        *(control if results.verdict.control else []),
        *([] if judged.zero_shot is None else [_gain(judged.zero_shot)]),
        Entry(number(best.spread, 2), "", bounds(best.spread_low, best.spread_high, 2), bold=best.steadier),
    )


def _gain(gain: ZeroShotGain) -> Entry:
    ends = bounds(gain.low, gain.high, 2, signed=True)
    return Entry(number(gain.difference, 2, signed=True), "", ends, bold=gain.significant)


def _zero_shot(gain: ZeroShotGain | None) -> dict[str, float]:
    if gain is None:
        return {}
    ends = {"zero_shot_low": gain.low, "zero_shot_high": gain.high, "zero_shot_p_holm": gain.p_holm}
    return {"zero_shot": gain.difference} | ends
