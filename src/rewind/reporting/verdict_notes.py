"""The sentences below the table of the verdict: what a win is, and why a method has none."""

from __future__ import annotations

from rewind.reporting.cells import TITLES
from rewind.reporting.footnotes import Footnotes, finished, procedure_sentence, seed_caution
from rewind.reporting.results import Results, directions
from rewind.reporting.searches import short_sentence
from rewind.reporting.verdict import Judged, judge, place
from rewind.reporting.verdict_table import named
from rewind.study.verdict import CLAIMED, Verdict


def sentences(facts: Footnotes, results: Results) -> list[str]:
    """The notes of the table."""
    keys = results.verdict
    several = len(directions(results, place(results))) > 1
    baseline = results.labels[keys.baseline]
    family = f" over {facts.family:,} {'pair' if facts.family == 1 else 'pairs'}" if facts.family else ""
    seeds = sorted({len(results.seeds[name]) for name in (keys.baseline, *keys.methods) if name in results.seeds})
    return finished(
        [
            *outcomes(results),
            f"A method wins over {baseline} if, for {' or '.join(CLAIMED)} in one search direction of "
            f"{TITLES[place(results)]}, every seed gains, the mean gain is significant (p < "
            f"{1 - results.confidence:.3g} after Holm’s correction{family}), {_and_step(keys)}",
            "The row shows the metric that comes closest to a win; bold: this condition holds; all are in the CSV file",
            short_sentence(facts, directions(results, place(results))) if several else "",
            f"Gains: method minus {baseline} with the same seed, in percentage points; in brackets "
            f"{100 * results.confidence:g}% intervals, not adjusted for multiple comparisons",
            _step_time(results),
            _control(results),
            _expected(results),
            procedure_sentence(facts, tested=True),
            seed_caution(seeds),
        ]
    )


def outcomes(results: Results) -> list[str]:
    """The verdict on each method in a sentence."""
    several = len(directions(results, place(results))) > 1
    return [_outcome(results, judged, several) for judged in judge(results)]


def _outcome(results: Results, judged: Judged, several: bool) -> str:
    label, claim = results.labels[judged.method], named(results, judged.best, several)
    if judged.win:
        return f"{label}: a win, in {claim}."
    return f"{label}: no win; in {claim}, which comes closest: {', '.join(judged.reasons)}."


def _and_step(keys: Verdict) -> str:
    step = f"a training step takes at most {1 + keys.max_slowdown:.2f} times as long"
    besides = {
        "zero_shot": "zero-shot accuracy gains significantly",
        "spread": "its seeds certainly differ less than the baseline’s",
    }
    conditions = [step, *["the control holds"] * bool(keys.control), *(besides[name] for name in keys.requires)]
    return f"{', '.join(conditions[:-1])}, and {conditions[-1]}" if len(conditions) > 1 else f"and {step}"


def _expected(results: Results) -> str:
    """What stands in the last columns."""
    baseline, wanted = results.labels[results.verdict.baseline], results.verdict.requires
    zero_shot = ""
    if not results.zero_shot_pairs.empty:
        family = int(results.zero_shot_pairs["family"].iloc[0])
        zero_shot = (
            f"gain in zero-shot accuracy over {baseline}, in percentage points, paired over the images (bold: Holm’s p "
            f"over {family:,} {'pair' if family == 1 else 'pairs'} is below {1 - results.confidence:.3g}); "
        )
    return (
        f"Expected too: {zero_shot}standard deviation over seeds of the metric in the row, divided by that of "
        f"{baseline}, with the interval of Fisher’s F, which a few seeds leave wide (bold: all of it is below 1). "
        + ("What is required of them is named above" if wanted else "Neither is needed for a win")
    )


def _step_time(results: Results) -> str:
    row = results.step_time.iloc[0]
    return (
        f"Step time: the time of a training step divided by that of {results.labels[results.verdict.baseline]} on the "
        f"same batch of {int(row['batch'])}, measured in turn in one process ({row['device']}); median over "
        f"{int(row['rounds'])} rounds, in brackets the quartiles"
    )


def _control(results: Results) -> str:
    keys = results.verdict
    if not keys.control:
        return ""
    names = results.labels
    pairs = "; ".join(f"{names[keys.control[m]]} − {names[keys.control[keys.baseline]]}" for m in keys.methods)
    return (
        f"Control: how much larger the gain over {names[keys.baseline]} is than the gain of the counterparts "
        f"({pairs}); the condition holds if the whole interval is above 0"
    )
