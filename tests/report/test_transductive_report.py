"""What normalising scores over the test captions adds: a table of its own, which says that it sees the test set."""

import numpy as np
import pandas as pd

from messages import expect_message
from rewind.analyses.transductive import WARNING
from rewind.report.tables import build_tables
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import MARKUPS
from rewind.tables.spec import TableInputs
from table_numbers import FACTS, results
from table_texts import markdown_rows

GAINS = {"meanP": (0.0, np.nan), "seqLSTM": (2.0, 0.4), "seqTransf": (3.0, 0.001)}


def normalised() -> pd.DataFrame:
    value = {"meanP": 21.0, "seqLSTM": 30.25, "seqTransf": 40.5}
    rows = [
        {"method": method, "control": control, "setting": "hard", "direction": "text_to_item", "metric": "R@1"}
        | {"estimate": value[method], "controlled": value[method] + gain, "loss": -gain}
        | {"low": -gain - 1, "high": -gain + 2, "p": p, "p_holm": p, "family": 6, "identical": int(np.isnan(p))}
        for control in ("qb_norm", "dual_softmax")
        for method, (gain, p) in GAINS.items()
    ]
    return pd.DataFrame(rows)


def test_gains_stand_in_a_table_that_warns():
    given = results(setting="hard", analyses={"transductive": normalised()})
    tables = build_tables(TableInputs(given, ["hard"], Footnotes.from_json(FACTS), "Data"))
    table = next(one for one in tables if one.name == "table_transductive")
    rows = markdown_rows(MARKUPS[".md"](table))
    assert rows[0] == ["Method", "R@1, as is ↑", "dual softmax", "QB-Norm"]
    found = {row[0]: [cell.replace("&numsp;", "").replace("\\", "") for cell in row[1:]] for row in rows[1:]}
    assert found["meanP"] == ["21.0", "0.0", "0.0"] and found["seqTransf"][1] == "**+3.0** [+1.0, +4.0]"
    assert any(WARNING in note for note in table.notes)
    expect_message("\n".join(table.notes))
