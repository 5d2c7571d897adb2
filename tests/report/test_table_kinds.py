"""The tables beside the settings' own: pairs, gaps, runs; and every table as HTML and JSON."""

import dataclasses
import html
import json
import re
import shutil
from html.parser import HTMLParser

import jinja2
import pandas as pd
import pytest
from markupsafe import Markup

from checkout import ROOT
from messages import expect_message, refusal
from rewind.analyses import pairs, retrieval
from rewind.report import tables
from rewind.report.page.document import assets_hash
from rewind.tables import render
from rewind.tables.footnotes import Footnotes
from rewind.tables.latex import escape_latex
from rewind.tables.render import MARKUPS, read_tables, render_html, write_table, write_tables
from rewind.tables.settings import compare_in_setting, format_setting_table
from rewind.tables.spec import TableInputs
from rewind.tables.table import Cell, Column, format_number
from table_numbers import FACTS, TESTS, results
from table_texts import NASTY, compile_latex, markdown_rows, needs_latex


def of_kind(stem, given_=None, settings=("hard",)):
    """One published table."""
    made = tables.build_tables(
        TableInputs(given_ or results(with_gaps=True), settings, Footnotes.from_json(FACTS), "RTime")
    )
    return {table.name: table for table in made}[stem]


def shown(table):
    return markdown_rows(MARKUPS[".md"](table))


def test_what_is_published_and_in_which_order(tmp_path):
    made = list(
        tables.build_tables(TableInputs(results(with_gaps=True), ["hard"], Footnotes.from_json(FACTS), "RTime"))
    )
    assert [t.name for t in made] == ["table_B_hard", "table_gap", "table_pairs_hard", "table_seeds_hard"]
    paths = [path for table in made for path in write_table(tmp_path, table)]
    assert sorted(path.suffix for path in paths) == sorted([".md", ".tex", ".html", ".csv"] * 4)
    assert all(path.stat().st_size > 200 for path in paths)
    assert len({t.slug for t in made}) == 4, "labels are distinct"


def test_without_pairs_or_gaps_their_tables_are_left_out():
    bare = results(pairs=pd.DataFrame(), gaps=pd.DataFrame(columns=["method", "direction"]))
    assert [t.name for t in tables.build_tables(TableInputs(bare, ["hard"], Footnotes()))] == [
        "table_B_hard",
        "table_seeds_hard",
    ]
    assert "Gap" not in tables.summary_text(TableInputs(bare, ["hard"]))


def test_a_pair_is_a_difference_with_its_interval_both_ps_effect_and_bootstrap():
    table = of_kind("table_pairs_hard")
    head, _, *rows = shown(table)
    assert head == ["Pair", "Difference", "p", "Holm’s p", "Detectable", "Effect", "Bootstrap these checkpoints"]
    assert rows[0] == ["*T2V*", "", "", "", "", "", ""] and rows[4][0] == "*V2T*" and len(rows) == 8
    assert rows[1] == [
        "meanP − seqLSTM",
        r"&numsp;−9.2 \[−11.2, −6.2\]",
        "&numsp;0.067",
        "0.200",
        "4.5",
        "+0.12",
        r"\[−10.2, −8.2\]",
    ]
    assert rows[2][:4] == ["meanP − seqTransf", r"**−19.5** \[−21.5, −16.5\]", "<0.001", "**0.001**"]
    assert rows[3][1] == r"**+10.2** \[+8.2, +13.2\]"
    assert len(set(table.notes)) == len(table.notes)
    expect_message("\n".join(table.notes))


def test_the_csv_of_pairs_holds_every_metric(tmp_path):
    path = write_table(tmp_path, of_kind("table_pairs_hard"))[-1]
    table = pd.read_csv(path)
    assert path.name == "table_pairs_hard.csv" and len(table) == 3 * 2 * 5
    assert table.columns[:4].tolist() == ["first_label", "second_label", "first", "second"]
    assert {"p", "p_holm", "effect", "boot_low", "boot_high", "procedure"} <= set(table.columns)
    row = table[(table["metric"] == "MnR") & (table["first"] == "seqTransf")].iloc[0]
    assert row["difference"] == pytest.approx(-10.25)


def test_a_pair_of_single_checkpoints_has_no_p():
    single = results({"meanP": [20.0], "seqLSTM": [30.0]}, {("meanP", "seqLSTM"): float("nan")})
    table = of_kind("table_pairs_hard", single)
    rows = shown(table)[2:]
    assert rows[1][1:4] == [r"−10.0 \[−12.0, −7.0\]", "–", "–"]
    assert not any("Holm" in note for note in table.notes)
    expect_message("\n".join(note for note in table.notes if "p-value" in note))


def test_gaps_have_intervals_and_chance_has_none():
    given_ = results(with_gaps=True)
    exact = given_.gaps.assign(
        low=given_.gaps["low"].where(given_.gaps["method"] != "chance", given_.gaps["gap"]),
        high=given_.gaps["high"].where(given_.gaps["method"] != "chance", given_.gaps["gap"]),
    )
    table = of_kind("table_gap", dataclasses.replace(given_, gaps=exact))
    head, _, *rows = shown(table)
    assert head == ["Method", "R@1", "R@5", "R@10", "MnR"]
    assert [row[0] for row in rows] == [
        "*T2V*",
        "meanP",
        "seqLSTM",
        "seqTransf",
        "chance",
        *["*V2T*"],
        *(["meanP", "seqLSTM", "seqTransf", "chance"]),
    ]
    assert rows[3][1:] == [
        r"+4.0 \[+2.0, +7.0\]",
        r"0.0 \[−2.0, +3.0\]",
        r"+1.5 \[−0.5, +4.5\]",
        r"−1.0 \[−3.0, +2.0\]",
    ]
    assert rows[4][1] == "&numsp;0.0", "a gap without error"
    expect_message(table.heading)
    assert table.data["label"].tolist() == table.data["method"].tolist() and len(table.data) == 4 * 2 * 5
    assert table.heading in tables.summary_text(TableInputs(given_, ["hard"], dataset="RTime"))


def test_the_appendix_has_every_run_and_metric():
    table = of_kind("table_seeds_hard")
    head, _, *rows = shown(table)
    assert head == ["Method", "Seed", "R@1 ↑", "R@5 ↑", "R@10 ↑", "MdR ↓", "MnR ↓", "MRR ↑", "R@1 strict ↑"]
    body = [row for row in rows if not row[0].startswith("*")]
    assert [row[:2] for row in body[:3]] == [["meanP", "0"], ["meanP", "1"], ["seqLSTM", "0"]] and len(body) == 14
    assert body[1][2:] == ["22.0", "32.0", "42.0", "24.5", "&numsp;98.0", "0.220", "11.0"]
    assert len(table.data) == 14 and "R@1_pessimistic" in table.data.columns
    binary = of_kind("table_seeds_binary", results(setting="binary"), ("binary",))
    assert shown(binary)[0] == ["Method", "Seed", "accuracy ↑", "strict ↑"]


def test_numbers_of_pairs_and_runs_are_checked_too():
    given_ = results()
    broken = dataclasses.replace(given_, metrics=given_.metrics[given_.metrics["method"] != "seqLSTM"])
    for csv_rows in (pairs.pair_csv_rows, retrieval.seed_csv_rows):
        with refusal("metrics.csv"):
            csv_rows(broken, "hard")


@needs_latex
def test_all_kinds_compile_fit_the_page_and_go_on_where_it_ends(tmp_path):
    values = {f"method{i}": [20.0 + i, 21.0 + i, 22.0 + i, 23.0 + i, 24.0 + i] for i in range(5)}
    names = {("method0", "method1"): 0.001, ("method3", "method4"): 0.2}
    made = list(
        tables.build_tables(
            TableInputs(results(values, names, with_gaps=True), ["hard"], Footnotes.from_json(FACTS), "RTime")
        )
    )
    paths = [write_table(tmp_path, table)[1] for table in made]
    log = compile_latex(tmp_path, paths)
    for fault in ("Overfull", "Missing character", "multiply defined", "Float too large"):
        assert fault not in log
    assert paths[-1].read_text().count(r"\begin{table*}") == 2 and paths[-1].read_text().count(r"\caption{") == 1


class Reader(HTMLParser):
    """Texts of cells, row by row, and a check that tags are closed in order."""

    VOID = frozenset({"br", "img", "meta"})

    def __init__(self, source):
        super().__init__()
        self.open, self.rows, self.scopes, self.notes, self.tags = [], [], [], [], []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self.scopes += [dict(attrs)["scope"]] if tag == "th" else []
        elif tag == "li":
            self.notes.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "li" in self.open:
            self.notes[-1] += data
        elif {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def test_html_is_a_whole_table_with_scopes_caption_and_notes():
    table = compare_in_setting(results(setting="binary"), "binary", "RTime")
    source = render_html(
        dataclasses.replace(format_setting_table(table, "telling a video from its twin"), notes=("one & two",))
    )
    found = Reader(source)
    assert source.startswith('<table class="rewind-table" id="table-rtime-binary">') and source.endswith("</table>\n")
    assert "<caption>Table Binary. RTime: telling a video from its twin</caption>" in source
    assert found.rows[0] == ["", "T2V", "V2T"]
    assert found.rows[1] == ["Method", "Train", *["accuracy ↑", "strict ↑"] * 2]
    assert found.rows[4] == ["seqTransfc", "RTime", "40.5±0.7 [37.2, 45.0]a,b", "20.2±0.4", *found.rows[4][2:4]]
    assert set(found.scopes) == {"col", "colgroup", "row", "rowgroup"}
    assert next(row for row in found.rows if len(row) == 1) == ["Baselines"] and found.notes == ["one & two"]
    assert "<strong>40.5</strong>" in source and 'title="higher is better"' in source


def test_html_stands_at_the_decimal_point():
    found = Reader(render_html(format_setting_table(compare_in_setting(results(), "hard"), "w")))
    column = [row[2] for row in found.rows[1:] if len(row) > 2]
    assert {cell.index(".") for cell in column} == {2} and column[-1] == "\u20070.1"


@pytest.mark.parametrize("kind", ["table_gap", "table_pairs_hard", "table_seeds_hard"])
def test_every_kind_is_sound_html(kind):
    labels = NASTY | {"meanP": '<script>alert("x")</script>'}
    table = of_kind(kind, results(labels=labels, train=NASTY, with_gaps=True))
    source = render_html(dataclasses.replace(table, notes=(*table.notes, "</table><b>")))
    found = Reader(source)
    assert not any(tag in ("script", "b") for tag, _ in found.tags)
    assert {len(row) for row in found.rows if len(row) > 1} <= {len(table.columns), len(table.spans())}
    assert any("alert" in cell for row in found.rows for cell in row) and found.notes[-1] == "</table><b>"
    assert not re.search(r"https?://|style=", source)


def test_pairs_of_one_direction_have_no_titles():
    given_ = results(tests=TESTS)
    only = {name: getattr(given_, name) for name in ("metrics", "intervals", "pairs")}
    one_way = {name: t[t["direction"] == "text_to_item"].reset_index(drop=True) for name, t in only.items()}
    table = of_kind("table_pairs_hard", dataclasses.replace(given_, **one_way))
    assert [part.title for part in table.groups] == [""] and not any("T2V" in note for note in table.notes)


def test_json_has_every_table_as_it_is_printed_and_its_numbers(tmp_path):
    made = list(
        tables.build_tables(TableInputs(results(with_gaps=True), ["hard"], Footnotes.from_json(FACTS), "RTime"))
    )
    path = write_tables(tmp_path, made, "x_")[-1]
    assert path.name == "tables.json" and read_tables(tmp_path) == [dataclasses.replace(t, key="") for t in made]
    content = json.loads(path.read_text(), parse_constant=pytest.fail)  # NaN is no JSON
    assert content["format"] == 1 and [t["kind"] for t in content["tables"]] == ["setting", "gap", "pairs", "seeds"]
    listed = {name for table in content["tables"] for name in table["files"]} | {"tables.json"}
    assert listed == {file.name for file in tmp_path.iterdir()} and "x_table_B_hard.tex" in listed
    setting = content["tables"][0]
    assert [column["title"] for column in setting["columns"]][:3] == ["Method", "Train", "R@1"]
    numbers = pd.read_csv(tmp_path / "x_table_B_hard.csv").set_index(["label", "direction", "metric"])
    for group in setting["groups"]:
        for label, _, cell, *_ in group["rows"]:
            row = numbers.loc[label["text"], "text_to_item", "R@1"]
            assert cell["value"] == row["estimate"] and cell["text"] == format_number(row["estimate"])
            assert [cell.get(name) for name in ("std", "low", "high")] == [
                None if pd.isna(row[name]) else row[name] for name in ("std", "low", "high")
            ]
            assert cell.get("bold", False) == bool(row["bold"])


def test_every_kind_of_table_is_named_in_the_list_of_results():
    page = (ROOT / "results/README.md").read_text()
    in_json = page.split("### `tables/tables.json`")[1]
    kinds = [spec.kind for spec in tables.table_specs() if spec.needs != "costs"]
    assert [kind for kind in kinds if f"`{kind}`" not in in_json] == []
    keys = set(next(tables.build_tables(TableInputs(results(), ["hard"]))).to_json()) | {"files", "format", "tables"}
    keys |= {field.name for field in dataclasses.fields(Column)} | {field.name for field in dataclasses.fields(Cell)}
    assert [key for key in keys if f"`{key}`" not in in_json] == []


def test_an_edit_of_a_template_counts(tmp_path, monkeypatch):
    before = render.templates_hash(), assets_hash()
    folder = shutil.copytree(render.TEMPLATES_FOLDER, tmp_path / "templates")
    monkeypatch.setattr(render, "TEMPLATES_FOLDER", folder)
    assert (render.templates_hash(), assets_hash()) == before, "not where they are"
    (folder / "table.tex").write_text((folder / "table.tex").read_text() + "% more\n")
    assert render.templates_hash() != before[0] and assets_hash() != before[1]


@pytest.mark.parametrize("suffix", [".md", ".tex", ".html"])
def test_templates_escape_what_they_print(suffix, tmp_path):
    escape = {".md": render.escape_markdown, ".tex": escape_latex, ".html": html.escape}[suffix]
    signs = ("<<", ">>") if suffix == ".tex" else ("{{", "}}")
    (tmp_path / f"one{suffix}").write_text(f"{signs[0]} text {signs[1]}|{signs[0]} ready {signs[1]}")
    hostile = "a_b & <b>*c*</b> 100% \\x {{ x }} << x >>"
    try:
        assert (
            render.render_template(f"one{suffix}", tmp_path, text=hostile, ready=Markup(hostile))
            == f"{escape(hostile)}|{hostile}"
        )
        with pytest.raises(jinja2.UndefinedError, match="ready"):
            render.render_template(f"one{suffix}", tmp_path, text=hostile)
    finally:
        render._environment.cache_clear()
