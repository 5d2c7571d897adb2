"""The head and the tables of the page in a browser: what stands first, sorting, copying, narrow windows."""

import csv
import io

import pandas as pd
import pytest

from page_numbers import page
from rewind.config import Study
from rewind.figures import forest, style
from rewind.report.answer import study_findings
from rewind.report.page.document import html_figure, html_paragraph, html_section, table_section, text_table
from rewind.report.page.headline import headline_html, question_rows
from rewind.report.tables import build_tables
from rewind.tables.footnotes import Footnotes
from rewind.tables.render import write_tables
from rewind.tables.spec import TableInputs
from table_numbers import FACTS, results
from tabs import axe_faults, opened, settled

STUDY = {
    "dataset": "shapes",
    "backbone": {"architecture": "config/models/tiny.json"},
    "methods": {"meanP": {"head": "meanP"}, "seqLSTM": {"head": "seqLSTM"}, "seqTransf": {"head": "seqTransf"}}
    | {"chance": {"model": "chance", "seeds": [0]}},
    "seeds": [0, 1],
    "evaluation": {"settings": ["hard"]},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A page with the made-up study's tables and answer, and the files that the tables were read from."""
    made, facts = results(with_gaps=True), Footnotes.from_json(FACTS)
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder / "tables", build_tables(TableInputs(made, ["hard"], facts, "Data")), "x_")
    for name, stacked in (("intervals", False), ("intervals_column", True), ("pairs", False)):
        figure = forest.interval_forest(made.intervals, made.labels, made.baselines, stacked=stacked)
        style.save(figure, folder / name)
    shown, copies = table_section(folder / "tables", "x_")
    study = Study(name="made", **STUDY)
    first = headline_html(
        question_rows(study, made, facts),
        study_findings(made, ["hard"]),
        html_figure(folder / "intervals.png", "Intervals", folder / "intervals_column.png"),
    )
    rows = pd.DataFrame({"method": ["b", "a", "c"], "seconds": [None, 1200.5, 30.0]}, dtype=object)
    sections = {
        "answer": html_section("answer", "Answer", first),
        "figures": html_section("figures", "Figures", html_figure(folder / "pairs.png", "Pairs")),
        "tables": html_section("tables", "Tables", '<div class="sheets">', *shown, "</div>"),
        "runs": html_section(
            "runs", "Runs", text_table(rows, "Every run", ("seconds",)), html_paragraph(f"Content: {'8b' * 32}.")
        ),
    }
    (folder / "report.html").write_text(page(4, sections=sections, copies=copies)[0], encoding="utf-8")
    return folder


@pytest.fixture
def tab(browser, folder):
    with opened(browser, (folder / "report.html").as_uri()) as made:
        yield made


def column(table, at):
    """Texts of a column, without rows that are titles."""
    rows = table.locator("tbody tr").filter(has=table.page.locator("td"))
    return [row.locator("th, td").nth(at).inner_text().replace("\u2007", "") for row in rows.all()]


def test_the_answer_is_on_the_first_screen(tab):
    assert tab.locator("main section").first.get_attribute("id") == "answer"
    finding, image = tab.locator(".finding").first.bounding_box(), tab.locator("#figure-intervals img")
    assert "seqTransf has the best estimate of 3 compared methods" in tab.locator(".finding .lead").first.inner_text()
    assert image.evaluate("one => one.complete && one.naturalWidth > 0 && one.src.startsWith('data:image/svg')")
    for box in (finding, image.bounding_box()):
        assert box["y"] + box["height"] < 900, "both are seen without scrolling"
    asked_for = tab.locator(".asked-for").text_content()
    assert all(text in asked_for for text in ("Trained: meanP, seqLSTM and seqTransf", "0, 1", "2,000 captions"))
    assert tab.locator("#figure-intervals").count() == 1


def test_a_heading_sorts_by_click_and_by_key(tab):
    table = tab.locator("#table-data-hard")
    methods = column(table, 0)
    heading = table.get_by_role("columnheader", name="R@1 ↑")
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") == "descending", "higher is better, so the best comes first"
    assert [name[:7] for name in column(table, 0)] == ["seqTran", "seqLSTM", "meanPa", "chance"]
    heading.get_by_role("button").focus()
    tab.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert [name[:7] for name in column(table, 0)] == ["meanPa", "seqLSTM", "seqTran", "chance"], "baselines stay below"
    tab.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") is None and column(table, 0) == methods
    table.get_by_role("columnheader", name="MnR").get_by_role("button").click()
    assert column(table, 0)[0].startswith("seqTransf"), "lower ranks are better"
    assert table.locator("[aria-sort]").count() == 1


def test_signs_bounds_and_gaps_in_a_column_are_sorted_as_numbers(tab):
    table = tab.locator("#table-data-hard-pairs")
    assert not table.is_visible(), "tables of pairs are folded away"
    tab.locator("details", has=table).locator("summary").first.click()
    table.get_by_role("columnheader", name="Difference").get_by_role("button").click()
    first = [float(text.split()[0].replace("−", "-")) for text in column(table, 1)]
    assert first[:3] == sorted(first[:3], reverse=True) and first[0] > 0 > first[2], "within a part"
    runs = tab.locator("#runs table")
    runs.get_by_role("button", name="seconds").click()
    assert column(runs, 1) == ["1,200.50", "30.00", "–"]
    runs.get_by_role("button", name="seconds").click()
    assert column(runs, 1) == ["30.00", "1,200.50", "–"], "what is missing comes last either way"
    runs.get_by_role("button", name="method").click()
    assert column(runs, 0) == ["a", "b", "c"]


@pytest.mark.parametrize("clipboard", [True, False])
def test_a_table_is_copied_as_the_workflow_wrote_it(browser, folder, clipboard):
    with opened(browser, (folder / "report.html").as_uri(), clipboard=clipboard) as tab:
        if not clipboard:  # the way of browsers that refuse it to a page from a disk
            tab.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }")
        tab.evaluate("document.body.prepend(document.createElement('textarea'))")
        tab.evaluate("() => { globalThis.setTimeout = () => 0; }")  # what is said stays, however slow this machine is
        bar = tab.locator(".sheet", has=tab.locator("#table-data-hard")).locator(".copies")
        for name, suffix in (("LaTeX", "tex"), ("Markdown", "md"), ("CSV", "csv")):
            bar.get_by_role("button", name=name).click()
            settled(tab)
            assert bar.get_by_text("copied").count() == 1
            field = tab.locator("textarea").first
            field.fill("")
            field.press("Control+v")
            wanted = (folder / f"tables/x_table_B_hard.{suffix}").read_text(encoding="utf-8")
            assert field.input_value() == wanted and len(wanted) > 200
        assert "estimate" in next(csv.reader(io.StringIO(wanted)))
        assert tab.locator(".copies").count() == 4, "settings, gap, pairs and runs, but not the table of runs.json"


def test_a_wide_table_shows_that_it_scrolls_in_a_narrow_window(browser, folder):
    for scheme in ("light", "dark"):
        with opened(browser, (folder / "report.html").as_uri(), width=400, color_scheme=scheme) as tab:
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), "the page itself does not"
            scrolls = "one => one.scrollWidth > one.clientWidth"
            assert tab.locator("#figure-pairs .wide").evaluate(scrolls), "words of a figure are not shrunk"
            assert not tab.locator("#figure-intervals .wide").evaluate(scrolls), "its panels are below one another"
            box = tab.locator("#figure-intervals img").bounding_box()
            assert box["height"] > 0.5 * box["width"]
            wide = tab.locator(".wide", has=tab.locator("#table-data-hard"))
            size = "one => [one.scrollWidth, one.clientWidth, getComputedStyle(one, '::-webkit-scrollbar').height]"
            whole, seen, bar = wide.evaluate(size)
            assert whole > seen and float(bar.removesuffix("px")) >= 8
            assert "linear-gradient" in wide.evaluate("one => getComputedStyle(one).backgroundImage")
            wide.evaluate("one => { one.scrollLeft = 200; }")
            name = tab.locator("#table-data-hard tbody th[scope=row]").first.bounding_box()
            assert 0 <= name["x"] < 40, "names of methods stay in sight"


def test_charts_turn_dark_with_the_page_and_pictures_of_clips_do_not(browser, folder):
    page, filtered = (folder / "report.html").as_uri(), "one => getComputedStyle(one).filter"
    for scheme, expected in (("dark", "invert(1) hue-rotate(180deg)"), ("light", "none")):
        with opened(browser, page, color_scheme=scheme) as tab:
            assert tab.locator("#figure-intervals img").evaluate(filtered) == expected
            for kind in ("examples", "heatmap"):
                if (picture := tab.locator(f"#figure-{kind} img")).count():
                    assert picture.evaluate(filtered) == "none"


def test_a_link_to_a_folded_part_opens_it(browser, tmp_path):
    sections = {
        "tables": html_section("tables", "Tables"),
        "runs": html_section("runs", "Runs", "<p>all</p>", folded=True),
    }
    (tmp_path / "report.html").write_text(page(12, sections=sections)[0], encoding="utf-8")
    address = (tmp_path / "report.html").as_uri()
    with opened(browser, address) as tab:
        assert not tab.get_by_text("all", exact=True).is_visible()
        for _ in range(2):
            tab.locator('nav a[href="#runs"]').click()
            assert tab.get_by_text("all", exact=True).is_visible()
            tab.locator("#runs summary").click()
            assert not tab.get_by_text("all", exact=True).is_visible()
    with opened(browser, f"{address}#runs") as tab:
        assert tab.get_by_text("all", exact=True).is_visible()


@pytest.mark.parametrize("width", [400, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_objects_to_nothing(browser, folder, width, scheme):
    with opened(browser, (folder / "report.html").as_uri(), width, color_scheme=scheme, bypass_csp=True) as tab:
        assert axe_faults(tab) == {}


def test_no_fold_lies_over_what_is_above_it(tab):
    """Notes of all tables come last, below a table that is folded away."""
    overlapping = tab.evaluate(
        """() => {
          const sheets = document.querySelector(".sheets"), notes = document.querySelector("details.below");
          sheets.insertAdjacentHTML("beforeend", "<details><summary>Seeds</summary></details>" + notes.outerHTML);
          return [...document.querySelectorAll("details")].filter(one => one.previousElementSibling
            && one.offsetParent && one.getBoundingClientRect().top
               < one.previousElementSibling.getBoundingClientRect().bottom - 1).map(one => one.innerText);
        }"""
    )
    assert overlapping == [] and tab.locator("details.below").count() > 1
