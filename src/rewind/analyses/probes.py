"""What probes measure of every run beside its ranks (docs/probes.md): intervals, tests and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from rewind.analyses.base import Analysis, Result, Rule
from rewind.config import Dataset, Study
from rewind.config.dataset import FORMATS_WITH_ANSWERS
from rewind.config.evaluation import BY_CHANCE, DIRECTION_PERMUTATIONS, PROBE_KEYS, VALUE_COLUMNS
from rewind.config.study import RunKey
from rewind.errors import RewindError, count_noun
from rewind.io.files import reading_user_file, write_csv
from rewind.job_values import Job, job_pairs, job_runs
from rewind.ranking_metrics import ROUNDING_TOLERANCE
from rewind.statistics import labels
from rewind.statistics.chance import ALL_TIED
from rewind.statistics.inference import family_adjusted, holm_adjusted, mean_inference, significance_level
from rewind.statistics.pairs import RandomFactors, compare_pair
from rewind.statistics.variance import Clusters, variance_components
from rewind.tables.footnotes import confidence_percent, finish_sentences
from rewind.tables.notes import key_text
from rewind.tables.results import Results, leading_direction
from rewind.tables.spec import TableInputs, TableSpec, intervals_line
from rewind.tables.table import MISSING, Cell, Column, RowGroup, Table, number_cell, slug

# ---- Which studies -------------------------------------------------------------------------------------------------


def faults(study: Study) -> Iterator[str]:
    asked = {probe for name in study.methods for probe in study.probes_of(name)}
    for probe in study.evaluation.probes:
        if probe not in asked:
            reasons = [reason for method in study.methods.values() if (reason := method.why_not_probed(probe))]
            why = f" ({reasons[0]})" if reasons else ""
            yield f"evaluation.probes: {probe}: it applies to no method here{why}; remove it, or add a method for it"


def dataset_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    where = f"config/datasets/{dataset.name}.yaml"
    probes = study.evaluation.probes
    if "direction" in probes and dataset.why_no_twins:
        yield f"evaluation.probes: direction needs time-reversed twins, but {where} {dataset.why_no_twins}; remove it"
    if "answers" in probes and not (dataset.answers or dataset.source.format in FORMATS_WITH_ANSWERS):
        yield f"evaluation.probes: answers needs right answers, and {where} has none: name a CSV with its key answers"
    asked = [name for name in study.methods if "foils" in study.probes_of(name)]
    encoding = [name for name in asked if not study.methods[name].needs_no_backbone]
    if encoding and dataset.vectors:
        yield f"evaluation.probes: methods.{encoding[0]} cannot encode foils, as {where} holds vectors; remove foils"
    if "foils" in probes and not (dataset.foils or dataset.source.format in ("foils", "shapes")):
        yield f"evaluation.probes: foils needs captions that are not true, and {where} has none: name a CSV with foils"
    if "pairs" in probes and dataset.why_no_twins and dataset.source.format != "foils":
        yield f"evaluation.probes: pairs needs time-reversed twins, but {where} {dataset.why_no_twins}; remove it"


# ---- Intervals and tests -------------------------------------------------------------------------------------------

PROBE_COLUMNS = (
    *("method", *PROBE_KEYS, "seeds", "queries", "clusters", "estimate", "std", "low", "high", "procedure", "df"),
    *("constant", "p", "p_holm"),
)
PROBE_PAIR_COLUMNS = (
    *("first", "second", *PROBE_KEYS, "difference", "low", "high", "p", "p_holm", "family", "procedure", "df"),
)

FOLDS_FACTOR = 1.3
"""What errors of cross-validated values are multiplied by: folds share most of what they are fitted on, so that queries
of different clusters are right and wrong together. Nadeau and Bengio (Machine Learning 52, 2003) multiply the variance
of k folds by 1 + k / (k − 1), an error by 1.5 for five folds, which is too much here; with this, intervals of the
direction's probe cover in 94% of simulated studies or more (benchmarks/direction_probe.py)."""
CROSS_VALIDATED = ("direction",)
"""Probes whose values are of queries left out in turn."""

RunValues = Mapping[str, Mapping[int, pd.DataFrame]]
"""Method → seed → its table of values, see :data:`rewind.config.evaluation.VALUE_COLUMNS`."""


def probe_tables(
    runs: RunValues, pairs: Sequence[tuple[str, str]], confidence: float, random: RandomFactors
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Intervals of every method, and differences of every declared pair, in every measure of every probe.

    Measures with a value per query (percent, from 0 to 100) have intervals over training seeds and clusters of queries,
    as metrics have. Those of whole runs, such as the modality gap, have a mean and a standard deviation over seeds.

    Args:
        runs: values of all runs; a method may lack a probe.
        pairs: the declared family. Holm's correction runs over those of its pairs whose methods both have a measure.
        confidence: of the intervals.
        random: which factors are random.

    Returns:
        Tables with :data:`PROBE_COLUMNS` and :data:`PROBE_PAIR_COLUMNS`. ``constant`` is 1 where every query of every
        run has one and the same value other than 0 and 100, as where all tie: that is no estimate. ``p`` is that of a
        permutation test of "more than by chance", where a probe has one, and ``p_holm`` with Holm's correction over all
        of the probe's.

    Raises:
        RewindError: if two runs have different queries in a measure.

    >>> values = pd.DataFrame({"probe": "pairs", "part": "", "direction": "", "metric": "group", "query_id": ["a", "b"],
    ...                        "cluster_id": ["a", "b"], "value": [100.0, 0.0]})
    >>> intervals, _ = probe_tables({"meanP": {0: values, 1: values}}, [], 0.95, RandomFactors())
    >>> intervals[["method", "metric", "estimate", "seeds"]].values.tolist()
    [['meanP', 'group', 50.0, 2]]
    """
    intervals, differences = [], []
    measures = dict(_measures(runs))
    for key, methods in measures.items():
        if key[-1].endswith(BY_CHANCE):
            continue
        by_chance = measures.get((*key[:-1], key[-1] + BY_CHANCE), {})
        names = dict(zip(PROBE_KEYS, key, strict=True))
        queries = _same_queries(methods, " ".join(filter(None, key)))
        if queries is None:
            intervals += [_whole_run_row(method, seeds) | names for method, seeds in methods.items()]
            continue
        clusters = Clusters.of(queries["cluster_id"].to_numpy())
        values = {
            method: np.stack([table["value"].to_numpy() for table in seeds.values()])
            for method, seeds in methods.items()
        }
        totals = {method: clusters.totals(each) for method, each in values.items()}
        if key[0] in CROSS_VALIDATED:
            totals = {method: _spread(each, clusters.sizes) for method, each in totals.items()}
        for method, each in values.items():
            row = _interval_row(method, totals[method], clusters, confidence, method in random.fixed)
            constant = np.ptp(each) == 0 and 0 < each.flat[0] < 100
            p = _permutation_p(each, by_chance.get(method, {}))
            intervals.append(row | names | {"constant": int(constant), "p": p})
        family = [pair for pair in pairs if pair[0] in totals and pair[1] in totals]
        results = [compare_pair(totals, pair, clusters.sizes, confidence, random, 100.0) for pair in family]
        adjusted = family_adjusted([result for result, _ in results])
        for (first, second), (result, procedure), p_holm in zip(family, results, adjusted, strict=True):
            differences.append(
                {"first": first, "second": second, "difference": float(result.estimate)}
                | names
                | {"low": float(result.low), "high": float(result.high), "p": float(result.p), "p_holm": p_holm}
                | {"family": len(family), "procedure": procedure, "df": float(result.df)}
            )
    table = pd.DataFrame(intervals, columns=list(PROBE_COLUMNS))
    tested = table[table["p"].notna()].groupby("probe", sort=False)["p"]
    # These p-values have no degrees of freedom that few seeds could inflate, so that Holm takes them as they are.
    table["p_holm"] = tested.transform(lambda p: holm_adjusted(p.to_numpy(dtype=float))).astype(float)
    return (
        table,
        pd.DataFrame(differences, columns=list(PROBE_PAIR_COLUMNS)),
    )


def _measures(runs: RunValues) -> Iterator[tuple[tuple[str, ...], dict[str, dict[int, pd.DataFrame]]]]:
    """(probe, part, direction, metric) → method → seed → its rows, sorted by query."""
    found: dict[tuple[str, ...], dict[str, dict[int, pd.DataFrame]]] = {}
    for method, seeds in runs.items():
        for seed in sorted(seeds):
            for key, rows in seeds[seed].groupby(list(PROBE_KEYS), sort=False):
                of_method = found.setdefault(tuple(map(str, key)), {}).setdefault(method, {})
                of_method[seed] = rows.sort_values("query_id", kind="stable")
    yield from found.items()


def _same_queries(methods: Mapping[str, Mapping[int, pd.DataFrame]], where: str) -> pd.DataFrame | None:
    """The queries of a measure, which all runs share; None for a measure of whole runs."""
    first: pd.DataFrame | None = None
    for method, seeds in methods.items():
        for seed, table in seeds.items():
            ids = table[["query_id", "cluster_id"]].astype(str).reset_index(drop=True)
            if first is None:
                first = ids
            elif not ids.equals(first):
                raise RewindError(
                    f"probes, {where}: {method}/seed{seed} has different queries from the run before it; compute the "
                    "probes of both again."
                )
    # A measure of a whole run has one row, of no query.
    return None if first is None or list(first["query_id"]) == [""] else first


def _spread(totals: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Totals (S, C) of clusters, farther from their seed's mean by :data:`FOLDS_FACTOR`; the mean stays as it is."""
    expected = totals.sum(axis=-1, keepdims=True) / sizes.sum() * sizes
    return expected + FOLDS_FACTOR * (totals - expected)


def _permutation_p(values: np.ndarray, by_chance: Mapping[int, pd.DataFrame]) -> float:
    """One-sided p of the mean of all seeds' values (S, Q) among permutations, which are the same for all seeds.

    The true directions count as one of the draws (Phipson and Smyth, 2010): p is never 0.
    """
    if not by_chance:
        return np.nan
    draws = np.mean([table["value"].to_numpy() for table in by_chance.values()], axis=0)
    # A draw that equals the true value but for rounding must count as reaching it.
    return float((1 + (draws >= values.mean() - ROUNDING_TOLERANCE).sum()) / (1 + len(draws)))


def _whole_run_row(method: str, seeds: Mapping[int, pd.DataFrame]) -> dict[str, Any]:
    values = np.array([table["value"].iloc[0] for table in seeds.values()])
    return {
        "method": method,
        "seeds": len(values),
        "estimate": float(values.mean()),
        "std": float(values.std(ddof=1)) if len(values) > 1 else np.nan,
    }


def _interval_row(
    method: str, totals: np.ndarray, clusters: Clusters, confidence: float, fixed: bool
) -> dict[str, Any]:
    result = mean_inference(variance_components(totals, clusters.sizes, fixed), confidence, least=0, most=100)
    per_seed = totals.sum(axis=-1) / clusters.sizes.sum()
    return {
        "method": method,
        "seeds": len(per_seed),
        "queries": int(clusters.sizes.sum()),
        "clusters": len(clusters.sizes),
        "estimate": float(result.estimate),
        "std": float(per_seed.std(ddof=1)) if len(per_seed) > 1 else np.nan,
        "low": float(result.low),
        "high": float(result.high),
        "procedure": labels.method(len(per_seed), fixed=fixed),
        "df": float(result.df),
    }


def read_probe_values(runs: Sequence[RunKey], files: Sequence[str]) -> dict[str, dict[int, pd.DataFrame]]:
    """Method → seed → table of values, from the files of :func:`rewind.evaluation.probes.compute_probes`.

    Raises:
        RewindError: for a file that is none of those.
    """
    found: dict[str, dict[int, pd.DataFrame]] = {}
    for (method, seed), path in zip(runs, files, strict=True):
        with reading_user_file(path, "Parquet file", "remake it"):
            table = pd.read_parquet(path)
        if missing := [column for column in VALUE_COLUMNS if column not in table]:
            raise RewindError(f"{path}: no column {missing[0]!r}; delete it and run again.")
        found.setdefault(method, {})[seed] = table
    return found


def compare(job: Job) -> None:
    """What probes measure of every method, with intervals, and differences of the declared pairs."""
    params, values = job.params, read_probe_values(job_runs(job), job.input.probed)
    intervals, pairs = probe_tables(values, job_pairs(job), params.confidence, RandomFactors.of(params.random))
    write_csv(job.output.intervals, intervals)
    write_csv(job.output.pairs, pairs)


# ---- The tables ----------------------------------------------------------------------------------------------------

BINARY = "binary"
"""Column of accuracy in Binary next to the probe of direction: what the head makes of what the features hold."""


@dataclass(frozen=True)
class ProbeTable:
    """How the table of a probe looks.

    Attributes:
        title: of the table.
        headings: metric → heading of its column, in order; metrics that are not here have no column. Empty: a column
            for every part.
        digits: after the point.
        higher: whether an arrow says that higher values are better.
        reading: what the numbers are.

    Example:
        >>> PROBE_TABLES["pairs"].headings["group"]
        'group'
    """

    title: str
    reading: str
    headings: Mapping[str, str]
    digits: int = 1
    higher: bool = True


PROBE_TABLES: Mapping[str, ProbeTable] = {
    "pairs": ProbeTable(
        "text, video and group score of pairs",
        "Of two clips with a caption each: text, each clip scores its own caption above the other; video, each caption "
        "its own clip; group, both. In percent, expected over the order of ties. Where all tie: 25, 25 and 16.7; a "
        "method that sees only the captions, only the clips or no order has a group score of 0; a guess of the clip’s "
        "direction times one of the caption’s can have 50 and know nothing",
        {"text": "text", "video": "video", "group": "group"},
    ),
    "answers": ProbeTable(
        "search with several right answers",
        "In percent, expected over the order of ties. mAP: mean average precision; R@k: a right one is among the first "
        "k; nDCG: a right one gains its grade, 1 where there are none, the highest grades first is 100",
        {"AP": "mAP", "R@1": "R@1", "R@5": "R@5", "R@10": "R@10", "nDCG": "nDCG", "judged@10": "judged"},
    ),
    "foils": ProbeTable(
        "true captions against foils",
        "How often a clip scores its true caption above all foils of a kind, in percent; a tie counts as its share",
        {},
    ),
    "direction": ProbeTable(
        "direction of time in features",
        "Which of a clip and its twin runs forward, told by a linear classifier that has seen neither (cross-validated "
        "by cluster), in percent. Frames in a row: features of all frames, what a head could read; clip vector: what "
        "its vectors have kept of it. 50: nothing",
        {"frames in a row": "frames in a row", "clip vector": "clip vector", BINARY: "Binary"},
    ),
    "geometry": ProbeTable(
        "geometry of vectors",
        "Modality gap: distance of the mean vectors of captions and clips. Hubness: skewness of how often clips are "
        "among the ten nearest of a caption. Alignment: mean squared distance of right pairs. Uniformity: log mean of "
        "exp(−2 · squared distance); lower is more uniform. No such clip: with the best threshold on validation, how "
        "often a caption whose clip is in the gallery is refused (missed), and one whose clip is not is answered "
        "(false), in percent; AUROC: how often the former scores higher",
        {
            "modality_gap": "modality gap",
            "hubness": "hubness",
            "alignment": "alignment",
            "uniformity_text": "uniformity, captions",
            "uniformity_items": "uniformity, clips",
            "missed": "missed",
            "false": "false",
            "auroc": "AUROC",
        },
        digits=2,
        higher=False,
    ),
}
"""Probe → its table."""

_PERCENT_OF_GEOMETRY = ("missed", "false", "auroc")


def probe_rows(results: Results, probe: str) -> pd.DataFrame:
    """The probe's rows of ``probes.csv`` in the order of the tables, with the methods' names."""
    rows = results.of("probes")
    return rows[rows["probe"] == probe].reset_index(drop=True) if len(rows) else rows


def layout(inputs: TableInputs, probe: str) -> Table:
    """A row per method, a column per metric; of foils, a column per kind. Parts and directions are groups of rows."""
    results, look = inputs.results, PROBE_TABLES[probe]
    rows = _shown_rows(results, probe)
    if not look.headings:  # kinds are side by side, and metrics, if there are several, below one another
        several = rows["metric"].nunique() > 1
        rows = rows.assign(part=rows["metric"] if several else "", metric=rows["part"])
    headings = look.headings or {kind: kind for kind in dict.fromkeys(rows["metric"])}
    if look.headings:
        headings = {metric: heading for metric, heading in headings.items() if metric in set(rows["metric"])}
    groups = []
    for part, direction in dict.fromkeys(zip(rows["part"].fillna(""), rows["direction"].fillna(""), strict=True)):
        here = rows[(rows["part"].fillna("") == part) & (rows["direction"].fillna("") == direction)]
        lines = tuple(
            _probe_line(results, here, method, headings, look.digits) for method in dict.fromkeys(here["method"])
        )
        title = " ".join(filter(None, [part, results.short(direction) if direction else ""]))
        groups.append(RowGroup(title, lines))
    arrow = "↑" if look.higher else ""
    columns = (Column("Method", number=False), *(Column(heading, arrow) for heading in headings.values()))
    title, key = f"{inputs.dataset}: {look.title}", key_text(_probe_sentences(results, probe, "*"))
    return Table(probe.capitalize(), title, slug(inputs.dataset, probe), columns, tuple(groups), key)


def _shown_rows(results: Results, probe: str) -> pd.DataFrame:
    """The rows that the table shows."""
    rows = probe_rows(results, probe)
    if probe == "foils":
        values = rows.pivot_table("estimate", ["method", "part"], "metric")
        if {"accuracy", "pairwise"} <= set(values) and np.allclose(values["accuracy"], values["pairwise"]):
            rows = rows[rows["metric"] != "pairwise"]  # one foil for each caption: both are the same
    if probe == "direction":
        direction = leading_direction(results, "binary") if len(results.chance) else ""
        binary = results.chance[results.chance["direction"] == direction] if direction else results.chance
        binary = binary[binary["method"].isin(rows["method"])] if direction else pd.DataFrame()
        if len(binary):
            constant = (binary["tied"] == ALL_TIED).astype(int)
            beside = binary.assign(
                probe=probe, metric=BINARY, part="", direction="", constant=constant, p=np.nan, p_holm=np.nan
            )
            rows = pd.concat([rows, beside.reindex(columns=rows.columns)], ignore_index=True)
    return rows


def _probe_line(
    results: Results, rows: pd.DataFrame, method: str, headings: Mapping[str, str], digits: int
) -> tuple[Cell, ...]:
    cells = {row.metric: row for row in rows[rows["method"] == method].itertuples()}
    level = significance_level(results.confidence)
    return (Cell(results.labels[method]), *(_probe_cell(cells.get(metric), digits, level) for metric in headings))


def _probe_cell(row: Any, digits: int, level: float) -> Cell:
    if row is None:
        return Cell(MISSING)
    digits = 1 if row.metric in _PERCENT_OF_GEOMETRY else digits
    if np.isnan(row.low):
        return number_cell(row.estimate, digits, row.std)
    if row.constant:
        return number_cell(row.estimate, digits)
    is_more = getattr(row, "p_holm", np.nan) < level
    return number_cell(row.estimate, digits, low=row.low, high=row.high, bold=is_more)


def _with_seeds(results: Results) -> set[str]:
    """Methods that were trained with several seeds."""
    runs = results.metrics.groupby("method")["seed"].nunique()
    return {method for method in results.trained() if runs.get(method, 0) > 1}


def _probe_sentences(results: Results, probe: str, mark: str) -> list[str]:
    rows = probe_rows(results, probe)
    percent = confidence_percent(results.confidence)
    sentences = [PROBE_TABLES[probe].reading]
    if "judged@10" in set(rows["metric"]):
        sentences.append(
            "Judged: share of a caption’s first 10 clips that judgements name. What they do not name is wrong, so that "
            "R@k is the least it can be, and among judged pairs alone it is left out; neither is a bound from above"
        )
    if rows["low"].notna().any():
        whose = rows.loc[rows["low"].notna() & rows["method"].isin(_with_seeds(results)), "method"]
        over = "clusters of queries"
        if len(whose):
            some = "" if set(whose) == set(rows.loc[rows["low"].notna(), "method"]) else ", where a method has several,"
            over = f"training seeds{some} and {over}"
        sentences.append(f"In brackets {percent} intervals over {over}, not adjusted")
    if (rows["low"].isna() & rows["method"].isin(_with_seeds(results))).any():
        sentences.append("±: standard deviation over seeds, of values that are properties of a whole run")
    if "p" in rows and (tests := int(rows["p"].notna().sum())):  # results of earlier versions have no tests
        sentences.append(
            f"{mark}: more than chance by a permutation test, which draws {DIRECTION_PERMUTATIONS} times which clip of "
            f"a pair runs forward, after Holm’s correction over {count_noun(tests, 'test')}"
        )
    return sentences


def _table(probe: str) -> TableSpec:
    return TableSpec(
        f"probe_{probe}",
        file=f"table_probe_{probe}",
        needs=lambda inputs: len(probe_rows(inputs.results, probe)) > 0,
        layout=lambda inputs, _: layout(inputs, probe),
        notes=lambda inputs, _: finish_sentences(_probe_sentences(inputs.results, probe, "Bold")),
        data=lambda inputs, _: probe_rows(inputs.results, probe),
        short_note=intervals_line,
        summary=lambda inputs, _: layout(inputs, probe),
        place=70,
    )


def probed_runs(plan: Any) -> list[RunKey]:
    """Every run that is probed."""
    return list(plan.runs(plan.keys.probed_methods()))


ANALYSIS = Analysis(
    applies=lambda plan: bool(plan.keys.evaluation.probes),
    faults=faults,
    dataset_faults=dataset_faults,
    rules=(
        Rule(
            "probe_table",
            "rewind.analyses.probes:compare",
            {"intervals": "statistics/probes.csv", "pairs": "statistics/probe_pairs.csv"},
            inputs={"probed": lambda plan: plan.per_run("probes/{method}/seed{seed}.parquet", probed_runs(plan))},
            params={
                "runs": probed_runs,
                "pairs": lambda plan: plan.keys.pairs(),
                "confidence": lambda plan: plan.keys.statistics.confidence,
                "random": lambda plan: plan.keys.random_factors(),
            },
        ),
    ),
    results={"probes": Result("statistics/probes.csv", PROBE_COLUMNS)},
    tables=tuple(map(_table, PROBE_TABLES)),
)
