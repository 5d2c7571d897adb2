"""Two methods side by side in the explorer, and links to a query, in a browser."""

import numpy as np
import pytest

from page_numbers import METHODS, explorer, page
from rewind.report.explorer import unpack_array
from tabs import counted, opened, pick, settled, words

CLIPS = 40
A, B = "seqLSTM", "tightTransf"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    file = tmp_path_factory.mktemp("compare") / "report.html"
    file.write_text(page(CLIPS)[0], encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def tab(browser, address):
    with opened(browser, address, clipboard=True) as made:
        yield made


@pytest.fixture(scope="module")
def ranks():
    """Method → its ranks (seeds, queries) in Hard, captions searching."""
    made, _ = explorer(CLIPS)
    place = next(i for i, v in enumerate(made.views) if (v.setting, v.direction) == ("hard", "text_to_item"))
    seeds = {m: [s for name, s in made.runs if name == m] for m in METHODS}
    found = {m: np.stack([unpack_array(made.runs[m, s][place]["rank"], "f4") for s in seeds[m]]) for m in METHODS}
    return found, made.split.captions["caption"].to_numpy()


def beside(tab, first=A, second=B):
    tab.get_by_label("Method A").select_option(first)
    tab.get_by_label("Method B, next to it").select_option(second)
    settled(tab)


def test_without_a_second_method_nothing_asks_for_one(tab):
    assert not tab.locator("#show").is_visible() and tab.locator("#order option[hidden]").count() == 3
    assert tab.locator(".found").count() == 1
    beside(tab)
    assert tab.locator("#show").is_visible() and tab.locator("#order option[hidden]").count() == 0
    tab.locator("#show").select_option("first")
    tab.locator("#order").select_option("change")
    tab.locator("#other").select_option("")
    assert tab.locator("#order").input_value() == "file" and counted(tab) == 2 * CLIPS
    assert tab.locator(".found").count() == 1


def test_the_page_may_begin_with_two_methods(browser, tmp_path):
    (tmp_path / "report.html").write_text(page(4, begin=(B, A))[0], encoding="utf-8")
    with opened(browser, (tmp_path / "report.html").as_uri()) as made:
        assert (made.locator("#method").input_value(), made.locator("#other").input_value()) == (B, A)
        assert made.locator(".found").count() == 2 and made.locator("#show").is_visible()


@pytest.mark.parametrize(
    ("show", "wanted"), [("first", (1, 0)), ("second", (0, 1)), ("both", (1, 1)), ("neither", (0, 0))]
)
def test_right_and_wrong_are_told_apart(tab, ranks, show, wanted):
    found, captions = ranks
    beside(tab)
    tab.locator("#show").select_option(show)
    right = {m: (found[m] <= 1).mean(axis=0) > 0.5 for m in (A, B)}
    places = np.flatnonzero((right[A] == wanted[0]) & (right[B] == wanted[1]))
    assert 0 < len(places) < 2 * CLIPS and counted(tab) == len(places)
    assert words(tab) == [captions[place] for place in places][: len(words(tab))]


@pytest.mark.parametrize("order", ["change", "rises", "falls"])
def test_sorting_by_the_change_of_rank(tab, ranks, order):
    found, captions = ranks
    beside(tab)
    tab.locator("#order").select_option(order)
    climb = np.log2(found[A]).mean(axis=0) - np.log2(found[B]).mean(axis=0)
    wanted = {"change": np.abs(climb), "rises": climb, "falls": -climb}[order]
    shown = [int(np.flatnonzero(captions == text)[0]) for text in words(tab)]
    np.testing.assert_allclose(wanted[shown], np.sort(wanted)[::-1][: len(shown)], atol=1e-6)
    assert wanted[shown[0]] > 1


def test_two_methods_stand_side_by_side(tab):
    beside(tab)
    one, two = tab.locator(".found").all()
    assert one.locator("legend").inner_text() == "A, seqLSTM: first places of"
    assert two.locator("legend").inner_text() == "B, tight $x: first places of"
    left, right = one.bounding_box(), two.bounding_box()
    assert left["y"] == right["y"] and left["x"] + left["width"] <= right["x"] and left["width"] == right["width"]
    assert [one.locator(".hits li").count(), two.locator(".hits li").count()] == [10, 10]
    before = one.inner_text()
    pick(tab, "seed-b", "2")
    assert tab.locator('input[name="seed-b"]:checked').get_attribute("value") == "2"
    assert tab.locator(".found").first.inner_text() == before, "A keeps its seed"
    ranks = tab.locator(".row .ranks").first.inner_text()
    assert ranks.startswith("A ") and "B " in ranks and tab.locator(".detail th.here").count() == 2
    pick(tab, "setting", "binary")
    assert tab.locator(".found").last.locator(".hits li").count() == 2


def test_in_a_narrow_window_they_stand_below_each_other(browser, address):
    with opened(browser, address, width=400) as tab:
        beside(tab)
        one, two = (found.bounding_box() for found in tab.locator(".found").all())
        assert two["y"] >= one["y"] + one["height"] and one["x"] == two["x"]
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_link_brings_back_what_was_shown(browser, tab, address):
    beside(tab)
    pick(tab, "direction", "item_to_text")
    tab.locator("#order").select_option("change")
    tab.locator("#list").focus()
    for _ in range(3):
        tab.keyboard.press("ArrowDown")
    pick(tab, "seed", "1")
    pick(tab, "seed-b", "2")
    tab.get_by_role("button", name="Copy link").click()
    copied = settled(tab).evaluate("navigator.clipboard.readText()")
    assert copied == tab.get_by_role("link", name="Link to this query").evaluate("one => one.href")
    assert copied.startswith(address + "#query=clip") and "&b=tightTransf" in copied and "seedb=2" in copied
    shown = tab.locator(".detail").inner_text().replace("copied", "").split()
    with opened(browser, copied) as other:
        assert other.locator("#count").is_visible()
        assert other.locator(".detail").inner_text().split() == shown
        assert other.locator("#explorer").evaluate("one => Math.abs(one.getBoundingClientRect().top) < 40")
        assert other.locator('.row[aria-selected="true"]').count() == 1
        # Another link in the same tab, as from a message.
        link = "#query=clip0002_rev%230&setting=hard&direction=text_to_item&a=meanP"
        followed = "(link) => new Promise((done) => { addEventListener('hashchange', done); location.hash = link; })"
        other.evaluate(followed, link)
        assert (
            settled(other).locator("#other").input_value() == "" and other.locator("#method").input_value() == "meanP"
        )
        assert other.locator('input[name="direction"]:checked').get_attribute("value") == "text_to_item"
        other.get_by_role("link", name="Link to this query").click()
        assert "query=clip0002_rev" in other.url and other.locator(".found").count() == 1


@pytest.mark.parametrize(
    ("link", "what"),
    [
        ("#query=gone", "query gone"),
        ("#query=clip0000%230&a=gone", "method gone"),
        ("#query=clip0000%230&setting=test", "test"),
    ],
)
def test_a_link_to_what_is_not_there_says_so(browser, address, link, what):
    with opened(browser, address + link) as tab:
        assert f"The link asks for {what}, which this page does not have." == tab.locator("#count").inner_text()
        assert tab.locator(".row").count() > 0, "the explorer works all the same"


def test_other_anchors_are_left_alone(browser, address):
    with opened(browser, address + "#tables") as tab:
        assert counted(tab) == 2 * CLIPS and tab.evaluate("scrollY") < 600


def test_comparing_by_keyboard(tab):
    tab.locator("#method").focus()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "other"
    tab.keyboard.type("tight")
    tab.keyboard.press("Enter")
    assert tab.locator(".found").count() == 2
    tab.locator("#show").focus()
    tab.keyboard.press("ArrowDown")
    assert tab.locator("#show").input_value() == "first"
