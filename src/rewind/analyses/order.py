"""Order of frames: what a method loses when clips show theirs in another order (:mod:`rewind.evaluation.order`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from rewind.analyses.base import Analysis, Result, Rule, analysis_table, picture_rule
from rewind.config import Dataset, Study
from rewind.config.report import Statistics
from rewind.config.study import RunKey
from rewind.errors import RewindError
from rewind.io.files import read_csv, reading_user_file, write_csv
from rewind.job_values import Job, job_runs
from rewind.ranking_metrics import METRICS, metric_of_column
from rewind.statistics.blocks import RunRanks
from rewind.statistics.controls import CONTROL_COLUMNS, compare_with_controls
from rewind.statistics.inference import significance_level
from rewind.statistics.pairs import RandomFactors
from rewind.statistics.rank_files import ranks_folder, read_ranks
from rewind.tables.best_method import Finding, interval_text, join_names
from rewind.tables.footnotes import confidence_percent, seed_caution, table_notes
from rewind.tables.notes import order_key, same_ranks_sentence, unequal_budgets
from rewind.tables.paired import control_table
from rewind.tables.results import Results
from rewind.tables.spec import TableInputs
from rewind.tables.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# ---- Which studies -------------------------------------------------------------------------------------------------


def faults(study: Study) -> Iterator[str]:
    if not study.evaluation.order:
        return
    if not study.order_methods():
        yield "evaluation.order: no method here looks at frames when it is evaluated; set it to []"
    if study.order_setting() not in study.evaluation.settings:
        yield (
            "evaluation.order: frames in another order are ranked in origin or test; add one to evaluation.settings, "
            "or set the key to []"
        )
    if "text_to_item" not in study.evaluation.directions:
        yield "evaluation.order: captions search the clips; add text_to_item to evaluation.directions, or set it to []"
    frozen = [name for name in study.order_methods() if "visual" in study.methods[name].training.freeze]
    if study.backbone.kind == "viclip" and frozen:
        yield (
            f"evaluation.order: viclip sees several frames at once, and methods.{frozen[0]} reads features that are "
            "computed once for all runs; remove visual from training.freeze, or set the key to []"
        )


def dataset_faults(study: Study, dataset: Dataset) -> Iterator[str]:
    where = f"config/datasets/{dataset.name}.yaml"
    if study.evaluation.order and dataset.vectors:
        yield f"evaluation.order: vectors have no frames in an order, and {where} holds vectors; remove the key"
    if study.evaluation.order and dataset.items == "images":
        yield f"evaluation.order: a picture is one frame, and {where} has pictures; remove the key"


# ---- What it costs -------------------------------------------------------------------------------------------------


def read_order_ranks(runs: Sequence[RunKey], files: Sequence[str]) -> dict[str, RunRanks]:
    """Control → method → seed → rank table, from the files of :mod:`rewind.evaluation.order`.

    Raises:
        RewindError: for a file that is none of those.
    """
    found: dict[str, RunRanks] = {}
    for (method, seed), path in zip(runs, files, strict=True):
        with reading_user_file(path, "Parquet file", "remake it"):
            table = pd.read_parquet(path)
        if "control" not in table:
            raise RewindError(f"{path}: no column 'control'; delete it and run again.")
        for control, rows in table.groupby("control", sort=False):
            ranks = rows.drop(columns="control").reset_index(drop=True)
            found.setdefault(str(control), {}).setdefault(method, {})[seed] = ranks
    return found


def compare(job: Job) -> None:
    """What frames in another order cost every method, with intervals and tests."""
    params, runs = job.params, job_runs(job)
    ranks, controlled = read_ranks(runs, ranks_folder(job.input.ranks)), read_order_ranks(runs, job.input.controlled)
    keys, random = Statistics(**params.settings), RandomFactors.of(params.random)
    write_csv(job.output[0], compare_with_controls(ranks, controlled, params.setting, keys, random))


# ---- The table -----------------------------------------------------------------------------------------------------

CONTROL_TITLES = {
    "reversed": "reversed",
    "shuffled": "shuffled",
    "halves": "halves swapped",
    "single": "one frame",
    "frozen": "one frame, repeated",
}


def layout(inputs: TableInputs, setting: str = "") -> Table:
    """A row per method: its value on clips as they are, and what each control costs."""
    results, rows = inputs.results, inputs.results.of("order")
    key = order_key(inputs.facts, confidence_percent(results.confidence), int(rows["family"].max()), _order_blind(rows))
    return control_table(inputs, rows, "Order", "that frames in another order cost", "order", CONTROL_TITLES, key)


def _order_blind(rows: pd.DataFrame) -> list[str]:
    """Methods of which a control changes no rank at all."""
    return list(dict.fromkeys(rows.loc[rows["identical"] == 1, "label"]))


def notes_below(inputs: TableInputs, setting: str = "") -> list[str]:
    """The sentences below the table."""
    results = inputs.results
    rows = results.of("order")
    metric = results.deciding(rows["setting"].iloc[0])
    first = rows.iloc[0]
    percent = confidence_percent(results.confidence)
    sign = "below" if METRICS[metric].lower_is_better else "above"
    return table_notes(
        [
            f"{metric} of the same models and captions on clips as they are minus that with each clip’s frames in "
            f"another order; {sign} 0 where it costs something",
            "Shuffled: at random, each clip with a seed of its own; halves swapped: the second half before the first; "
            "one frame: the middle one, alone or in the place of all",
        ],
        [f"In brackets {percent} intervals of the paired difference over training seeds and queries"],
        [f"Bold: differs after Holm’s correction over {first['family']} pairs of a method and a control"],
        [same_ranks_sentence(_order_blind(rows))],
        [unequal_budgets(inputs.facts), seed_caution(results.seed_counts())],
    )


# ---- The answer ----------------------------------------------------------------------------------------------------

SAID_CONTROLS = {"reversed": "backwards", "shuffled": "in random order"}  # the table has the others


def finding(results: Results) -> Finding | None:
    """What each method loses where frames are backwards or shuffled; a metric that is better lower loses by rising."""
    rows = results.of("order")
    if rows.empty:
        return None
    metric = results.deciding(rows["setting"].iloc[0])
    entry = metric_of_column(metric)
    rows = rows[rows["metric"] == metric]
    if entry.lower_is_better:
        rows = rows.assign(loss=-rows["loss"], low=-rows["high"], high=-rows["low"])
    controls = set(rows["control"])
    sentences = [
        _control_sentence(control, rows[rows["control"] == control], significance_level(results.confidence))
        for control in [name for name in SAID_CONTROLS if name in controls] or [rows["control"].iloc[0]]
    ]
    remark = (
        f"What {metric} loses in the same runs{', in points,' * entry.percent} with "
        f"{confidence_percent(results.confidence)} intervals, not adjusted for several comparisons; tested with Holm’s "
        "correction over all methods and controls."
    )
    return Finding("Order of frames", sentences, [remark])


def _control_sentence(control: str, rows: pd.DataFrame, level: float) -> str:
    rows, same = rows[rows["identical"] == 0], rows.loc[rows["identical"] == 1, "label"].tolist()
    shown, unclear = rows[rows["p_holm"] < level], rows[~(rows["p_holm"] < level)]

    def listed(some: pd.DataFrame, form: str = "{} {}", sign: int = 1) -> list[str]:
        ends = some.assign(loss=sign * some["loss"], low=sign * some["low"], high=sign * some["high"])
        by_size = ends.sort_values("loss", ascending=False, kind="stable")
        return [form.format(r.label, interval_text(r.loss, *sorted((r.low, r.high)))) for r in by_size.itertuples()]

    worse, better = listed(shown[shown["loss"] > 0]), listed(shown[shown["loss"] < 0], sign=-1)
    open_ = listed(unclear, "{} (loss: {})")
    parts = [
        f"costs {', '.join(worse)}" if worse else "",
        f"makes {join_names(better)} better" if better else "",
        f"not shown to change {join_names(open_, 'or')}" if open_ else "",
        f"leaves every rank of {join_names(same)} as it is" if same else "",
    ]
    what = f"Frames {SAID_CONTROLS[control]}" if control in SAID_CONTROLS else f"The control “{control}”"
    return f"{what}: {'; '.join(part for part in parts if part)}."


# ---- The picture ---------------------------------------------------------------------------------------------------


def draw(job: Job) -> None:
    """Every method's value on clips as they are, and under each control."""
    from rewind.figures import style

    study = Study(**job.params.study)
    style.save_output(draw_profile(study, read_csv(job.input.order, ("control",))), study.condition, job.output[0])


def draw_profile(study: Study, table: pd.DataFrame) -> Figure:
    """The picture of ``statistics/order.csv``.

    Bars are intervals of the loss, at the value under the control; there is none where every rank stayed the same.
    """
    from rewind.figures import style
    from rewind.figures.forest import metric_label

    labels, metric = study.labels(), study.primary_metric()
    rows = table[table["metric"] == metric]
    controls = [control for control in CONTROL_TITLES if control in set(rows["control"])]
    methods = [method for method in labels if method in set(rows["method"])]
    with style.applied():
        fig = style.figure(style.DOUBLE_COLUMN, 3.0)
        axes = fig.subplots()
        styles = style.method_styles(labels)
        for at, method in enumerate(methods):
            own = rows[rows["method"] == method].set_index("control").loc[controls]
            places = np.arange(len(controls) + 1) + 0.7 / len(methods) * (at - (len(methods) - 1) / 2)
            values = np.array([own["estimate"].iloc[0], *own["controlled"]])
            # The value under the control is the value as it is minus the loss: its ends are the other way round.
            spread = (
                np.array([own["high"] - own["loss"], own["loss"] - own["low"]]) * (own["identical"] == 0).to_numpy()
            )
            colour, marker = styles[method].color, styles[method].marker
            axes.errorbar(places[1:], values[1:], spread, fmt="none", ecolor=colour, elinewidth=4, alpha=0.32)
            axes.plot(
                places, values, marker=marker, color=colour, linestyle="none", markersize=5.5, label=labels[method]
            )
        axes.set_xticks(range(len(controls) + 1), ["as it is", *(CONTROL_TITLES[control] for control in controls)])
        axes.set_ylabel(metric_label(metric))
        axes.grid(axis="x", visible=False)
        axes.set_xlabel(
            f"frames of each clip; bars: {100 * study.statistics.confidence:g}% intervals of what the control costs"
        )
        style.legend_below(fig, axes, min(4, len(methods)))
    return fig


def controlled_runs(plan: Any) -> list[RunKey]:
    """Every run that is shown frames in another order."""
    return list(plan.runs(plan.keys.order_methods()))


ANALYSIS = Analysis(
    applies=lambda plan: bool(plan.keys.evaluation.order),
    faults=faults,
    dataset_faults=dataset_faults,
    rules=(
        Rule(
            "order_table",
            "rewind.analyses.order:compare",
            {"": "statistics/order.csv"},
            inputs={
                # Ranks of the same runs on the clips as they are.
                "ranks": lambda plan: plan.per_run("ranks/{method}/seed{seed}.parquet", controlled_runs(plan)),
                "controlled": lambda plan: plan.per_run("order/{method}/seed{seed}.parquet", controlled_runs(plan)),
            },
            params={
                "runs": controlled_runs,
                "setting": lambda plan: plan.keys.order_setting(),
                "settings": lambda plan: plan.keys.statistics,
                "random": lambda plan: plan.keys.random_factors(),
            },
            own_metrics=True,
        ),
        picture_rule(
            "order_figure",
            "rewind.analyses.order:draw",
            {"order": lambda plan: f"{plan.folder}/statistics/order.csv"},
            "order",
            lambda study, setting: (
                f"{study.figure_metric()} of the same runs on clips as they are and with their frames in another "
                f"order. Bars: {100 * study.statistics.confidence:g}% intervals of what it costs."
            ),
            own_metrics=True,
        ),
    ),
    results={"order": Result("statistics/order.csv", CONTROL_COLUMNS)},
    tables=(analysis_table("order", 50, layout, notes_below),),
    finding=finding,
)
