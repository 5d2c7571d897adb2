"""What frames in another order cost: the table, the sentences of the answer, the picture."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from figure_texts import assert_legible
from messages import expect_message
from rewind.analyses.order import CONTROL_TITLES, draw_profile
from rewind.config import Study
from rewind.report.answer import study_findings
from rewind.report.tables import build_tables
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import MARKUPS
from rewind.tables.spec import TableInputs
from table_numbers import FACTS, results
from table_texts import markdown_rows

LOSSES = {"meanP": (0.0, np.nan), "seqLSTM": (2.0, 0.4), "seqTransf": (30.0, 0.001)}


def order(losses=LOSSES, controls=("shuffled", "reversed")):
    """Every control costs as much; where p is NaN, nothing changes."""
    value = {"meanP": 21.0, "seqLSTM": 30.25, "seqTransf": 40.5}
    rows = [
        {"method": method, "control": control, "setting": "origin", "direction": "text_to_item", "metric": metric}
        | {"estimate": value[method], "controlled": value[method] - loss, "loss": loss}
        | {"low": loss - 3, "high": loss + 4, "p": p, "p_holm": p, "family": 6, "identical": int(np.isnan(p))}
        for control in controls
        for method, (loss, p) in losses.items()
        for metric in ("R@1", "MnR")
    ]
    return pd.DataFrame(rows)


def given():
    return results(setting="origin", analyses={"order": order()})


def table(made):
    found = build_tables(TableInputs(made, ["origin"], Footnotes.from_json(FACTS), "Data"))
    return next(one for one in found if one.name == "table_order")


def test_the_table_says_what_each_control_costs():
    rows = markdown_rows(MARKUPS[".md"](table(given())))
    assert rows[0] == ["Method", "R@1, as is ↑", "reversed", "shuffled"], "in the order of the controls"
    found = {row[0]: [cell.replace("&numsp;", "").replace("\\", "") for cell in row[1:]] for row in rows[1:]}
    assert found["meanP"] == ["21.0", "0.0", "0.0"], "without an interval where nothing can change"
    assert found["seqLSTM"][1] == "+2.0 [−1.0, +6.0]" and found["seqTransf"][1] == "**+30.0** [+27.0, +34.0]"
    assert "chance" not in found
    expect_message("\n".join(table(given()).notes))


def test_the_answer_says_what_backwards_and_shuffled_frames_cost():
    finding = next(f for f in study_findings(given(), ["origin"]) if f.heading == "Order of frames")
    assert len(finding.sentences) == 2 and finding.sentences[0].startswith("Frames backwards: costs seqTransf 30.0 [")
    expect_message("\n".join([*finding.sentences, *finding.remarks]))
    one = dataclasses.replace(given(), analyses={"order": order(controls=("frozen",))})
    expect_message(next(f for f in study_findings(one, ["origin"]) if f.heading == "Order of frames").sentences[0])
    assert not any(f.heading == "Order of frames" for f in study_findings(results(setting="origin"), ["origin"]))


def test_the_answer_says_what_improves_and_follows_the_metrics_direction():
    losses = {"meanP": (-9.0, 0.001), "seqLSTM": (2.0, 0.4), "seqTransf": (30.0, 0.001)}

    def said(made):
        finding = next(f for f in study_findings(made, ["origin"]) if f.heading == "Order of frames")
        expect_message("\n".join([*finding.sentences, *finding.remarks]))
        return finding

    better = said(results(setting="origin", analyses={"order": order(losses, ("reversed",))}))
    assert "costs seqTransf 30.0 [27.0, 34.0]; makes meanP 9.0 [5.0, 12.0] better;" in better.sentences[0]
    by_rank = said(results(setting="origin", primary="MnR", analyses={"order": order(losses, ("reversed",))}))
    assert "costs meanP 9.0 [5.0, 12.0]; makes seqTransf 30.0 [27.0, 34.0] better;" in by_rank.sentences[0]
    assert (
        "not shown to change seqLSTM (loss: −2.0 [−6.0, 1.0])" in by_rank.sentences[0]
        and "points" not in by_rank.remarks[0]
    )


@pytest.mark.parametrize("controls", [("reversed",), tuple(CONTROL_TITLES)])
def test_the_picture_draws_values_and_the_ends_of_losses(controls):
    study = Study(name="s", dataset="d", methods={name: {} for name in LOSSES}, evaluation={"settings": ["origin"]})
    fig = draw_profile(study, order(controls=controls))
    assert_legible(fig)
    (axes,) = fig.axes
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["as it is", *(CONTROL_TITLES[c] for c in controls)]
    dots = {line.get_label(): line.get_ydata() for line in axes.lines if not line.get_label().startswith("_")}
    assert list(dots["seqTransf"]) == [40.5] + [10.5] * len(controls) and list(dots["meanP"][1:]) == [21.0] * len(
        controls
    )
    ends = [segment[:, 1].tolist() for part in axes.collections for segment in part.get_segments()]
    assert [6.5, 13.5] in ends, "a loss of 27 to 34 leaves 6.5 to 13.5"
    assert [21.0, 21.0] in ends, "nothing where nothing can change"
