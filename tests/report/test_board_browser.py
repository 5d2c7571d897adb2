"""The overview of a board in a browser: every row shows its numbers, whatever the width of the window."""

import pytest

from board_studies import card, write_results
from rewind.io.files import read_csv, write_csv
from rewind.report.board.site import Board
from rewind.report.board.studies import BASELINE, TRAINED, MethodCard, read_board_study
from tabs import axe_faults, opened

VALUES = {"meanP": 50, "seqLSTM": 72, "seqTransf": 84, "chance": 50}


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    """Two studies; meanP ties every clip with its twin."""
    folder = tmp_path_factory.mktemp("board")
    studies = []
    for number, (name, settings) in enumerate({"one": ("origin", "hard", "binary"), "two": ("test",)}.items()):
        place = folder / "results" / name
        write_results(place, VALUES, settings=settings)
        metrics, intervals = read_csv(place / "metrics.csv"), read_csv(place / "statistics/intervals.csv")
        metrics["R@1_pessimistic"] = metrics["R@1"].mask(metrics["method"] == "meanP", 0)
        tied = (metrics["method"] == "meanP") & (metrics["setting"] == "binary")
        metrics.loc[tied, "R@1"] = 50.0
        here = (intervals["method"] == "meanP") & (intervals["setting"] == "binary")
        intervals.loc[here, ["estimate", "low", "high"]] = 50.0, 48.5, 51.5
        write_csv(place / "metrics.csv", metrics)
        write_csv(place / "statistics/intervals.csv", intervals)
        labels = {m: MethodCard(m, BASELINE if m == "chance" else TRAINED) for m in VALUES}
        data = {"dataset": name, "title": name.capitalize(), "metrics": dict.fromkeys(settings, "R@1")}
        studies.append(read_board_study(place, card(name, {}, methods=labels, **data), number, str(place)))
    return Board(studies).write(folder / "board")[0].as_uri()


@pytest.mark.parametrize("width", [400, 768, 1440, 2560])
def test_every_row_of_the_overview_shows_its_numbers(browser, board, width):
    with opened(browser, board, width, plain=True) as tab:
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        rows = tab.locator("#compared tbody tr")
        assert rows.count() == 2 * len(VALUES)
        for at in range(len(VALUES)):
            box = rows.nth(at).locator(".drawn span").bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= width
        first = rows.first.inner_text()
        assert "seqTransf" in first and "3 seeds" in first and "[" in first, "the best first"
        tied = rows.filter(has_text="meanP").first.locator(".drawn").inner_text()
        assert tied.strip() == "50.0", "what is 50 by construction has no interval"


def test_the_overview_is_filtered_and_sorted_as_the_whole_table_is(browser, board):
    with opened(browser, board, 1440, plain=True) as tab:
        rows = tab.locator("#compared tbody tr:visible")
        tab.locator('select[data-filter="data_set"]').select_option("two")
        assert rows.count() == len(VALUES) and "#?data_set=two" in tab.url
        tab.locator('input[data-filter="text"]').fill("seq")
        assert rows.count() == 2
        tab.locator('select[data-filter="data_set"]').select_option("")
        tab.locator("#compared thead .sort").nth(3).click()
        values = [
            text.split()[0] for text in tab.locator("#compared tbody tr:visible .drawn").all_inner_texts() if text
        ]
        assert values == sorted(values, reverse=True, key=float)


@pytest.mark.parametrize("width", [400, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_objects_to_nothing(browser, board, width, scheme):
    with opened(browser, board, width, plain=True, color_scheme=scheme, bypass_csp=True) as tab:
        assert axe_faults(tab) == {}
