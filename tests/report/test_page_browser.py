"""The page in a browser, from a disk: filtering, sorting, playing, switching, by mouse and by keyboard."""

import shutil
import time

import pytest

from page_numbers import METHODS, explorer, page, scores
from patience import patience
from rewind.report.explorer import make_query_view, search_results
from tabs import counted, opened, pick, settled, words

try:
    from playwright import sync_api as sync
except ImportError:  # the fixture `browser` skips what needs it, and says why
    sync = None
CLIPS = 40


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(page(CLIPS)[0], encoding="utf-8")
    return file.as_uri()


@pytest.fixture
def tab(browser, address):
    with opened(browser, address) as made:
        yield made


def test_filtering(tab):
    assert counted(tab) == 2 * CLIPS
    tab.locator("#filter").fill("RED cir")
    assert words(tab) and all("red" in text and "circle" in text for text in words(tab))
    assert counted(tab) == len(words(tab)) < 2 * CLIPS
    tab.locator("#filter").fill("naive")  # marks above letters do not matter
    assert len(words(tab)) == 1
    assert "</script><b>no</b>" in tab.locator(".detail h3").inner_text() and tab.locator(".detail b").count() == 0
    tab.locator("#filter").fill("no such words")
    assert "No query matches" in settled(tab).locator(".detail").inner_text()
    tab.locator("#filter").fill("")
    assert settled(tab).locator(".detail h3").count() == 1


def test_sorting_by_confusion_with_the_twin(tab):
    tab.locator("#method").select_option("seqLSTM")
    tab.locator("#order").select_option("twin")
    made, _ = explorer(CLIPS, ["seqLSTM"])
    hard = make_query_view(made.split, "hard", "text_to_item")
    # The page's second method: its matrices are those of scores(…, 10 + seed).
    found = [search_results([hard], scores(2 * CLIPS, 10 + seed), made.split, k=0)[0].margin for seed in range(3)]
    confused = sum((margin < 0) + 0.5 * (margin == 0) for margin in found)
    most = {made.split.captions["caption"][i] for i in range(2 * CLIPS) if confused[i] == confused.max()}
    shown = words(tab)
    assert shown[0] in most and set(shown[: min(len(most), 10)]) <= most
    assert "⇄" in tab.locator(".row .ranks").first.inner_text()


def test_sorting_by_disagreement(tab):
    first = {}
    for order in ("file", "worst", "best", "seeds", "methods"):
        tab.locator("#method").select_option("seqTransf")
        tab.locator("#order").select_option(order)
        first[order] = [
            float(n.replace(",", "")) for n in tab.locator(".row .ranks").first.inner_text().split("⇄")[0].split("·")
        ]
    assert first["best"] == [1, 1, 1] and max(first["worst"]) > 2
    assert max(first["seeds"]) / min(first["seeds"]) > 2


def test_playing_a_clip(tab):
    clip = tab.locator(".hits .clip").first
    strip = clip.locator(".strip")
    plays = lambda: strip.evaluate("e => e.getAnimations()[0].playState")  # noqa: E731
    assert plays() == "paused" and clip.get_attribute("aria-pressed") == "false"
    clip.click()
    assert plays() == "running" and clip.get_attribute("aria-pressed") == "true"
    # The clock of the animation is set, not waited for: a busy machine misses frames.
    frames = """e => Array.from({length: 6}, (_, frame) => {
        e.getAnimations()[0].currentTime = 250 * frame + 125;
        return getComputedStyle(e).backgroundPositionX;
    })"""
    assert strip.evaluate(frames) == ["0%", "20%", "40%", "60%", "80%", "100%"], "six frames, one after the other"
    clip.click()
    assert plays() == "paused"


def test_a_twin_plays_backwards(tab):
    tab.locator("#method").select_option("seqTransf")
    twin = tab.locator(".hits .is-twin").first
    first = lambda where: where.locator(".strip").evaluate("e => getComputedStyle(e).backgroundPositionX")  # noqa: E731
    assert "its twin" in twin.inner_text() and twin.locator(".backwards").count() == 1
    assert (first(tab.locator(".hits .is-truth").first), first(twin)) == ("0%", "100%")


def test_switching_by_clicks(tab):
    assert tab.locator('input[name="setting"]:checked').get_attribute("value") == "hard"
    caption = tab.locator(".detail h3").inner_text()
    pick(tab, "setting", "origin")
    assert counted(tab) == CLIPS and tab.locator(".detail h3").inner_text() == caption
    pick(tab, "setting", "binary")
    assert tab.locator(".hits li").count() == 2
    pick(tab, "setting", "hard")
    pick(tab, "direction", "item_to_text")
    assert "80 captions searched" in tab.locator("#count").inner_text()
    assert tab.locator(".hits.words li").count() == 10 and tab.locator(".asked .clip").count() == 1
    before = tab.locator(".hits").inner_text()
    tab.locator("#method").select_option("seqTransf")
    pick(tab, "seed", "2")
    assert tab.locator(".hits").inner_text() != before
    tab.locator("#method").select_option("chance")
    assert tab.locator('input[name="seed"]').count() == 1
    rows = tab.locator(".detail tbody tr")
    assert rows.count() == len(METHODS) and rows.last.locator("td").first.inner_text().startswith("40.5")


def test_everything_by_keyboard(tab):
    tab.locator("#filter").focus()
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.id") == "list"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "focus is seen"
    second = words(tab)[1]
    tab.keyboard.press("ArrowDown")
    assert tab.locator(".detail h3").inner_text() == second
    assert tab.locator("#list").get_attribute("aria-activedescendant") == "row-1"
    assert tab.locator("#row-1").get_attribute("aria-selected") == "true"
    tab.keyboard.press("End")
    assert tab.locator('.row[aria-selected="true"]').get_attribute("aria-posinset") == str(2 * CLIPS)
    assert tab.locator(".row").count() < 40, "only rows in sight are there"
    tab.keyboard.press("PageUp")
    tab.keyboard.press("Home")
    assert tab.locator("#list").get_attribute("aria-activedescendant") == "row-0"
    tab.keyboard.press("Tab")
    for _ in range(8):
        if tab.evaluate("document.activeElement.className") == "clip":
            break
        tab.keyboard.press("Tab")
    tab.keyboard.press("Space")
    assert tab.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"


@pytest.mark.parametrize("width", [1440, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_the_window(browser, address, width, scheme):
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    tab = context.new_page()
    tab.goto(address)
    assert settled(tab).evaluate("document.documentElement.scrollWidth") <= width
    ground, ink = tab.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    light = lambda colour: sum(map(int, colour[4:-1].split(",")))  # noqa: E731
    assert (light(ground) > light(ink)) == (scheme == "light")
    context.close()


def test_clips_that_are_not_inside_are_looked_for_beside_the_page(browser, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(page(3, budget=0, folder="gone")[0], encoding="utf-8")
    tab = browser.new_page()
    tab.goto(file.as_uri())
    fault = tab.locator(".hits .clip .fault").first
    sync.expect(fault).to_contain_text("clip not found: gone/videos/clip0000")
    tab.close()


def test_two_thousand_queries_appear_at_once(browser, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(page(1000)[0], encoding="utf-8")
    tab = browser.new_page()
    began = time.monotonic()
    tab.goto(file.as_uri())
    assert settled(tab).locator("#count").inner_text() == "2,000 of 2,000 queries, 2,000 videos searched by each"
    whole = time.monotonic() - began
    paint = tab.evaluate("""new Promise((told) => new PerformanceObserver((list) =>
        list.getEntriesByName("first-contentful-paint").forEach((one) => told(one.startTime))
    ).observe({type: "paint", buffered: true}))""")
    print(f"{file.stat().st_size:,} bytes, first paint {paint:.0f} ms, ready {whole:.2f} s")
    assert paint < patience(3000) and whole < patience(15), "wide bounds: machines that run tests are busy"
    tab.locator("#order").select_option("methods")
    assert settled(tab).locator(".row").count() < 40
    tab.close()


@pytest.fixture
def beside(browser, tmp_path):
    """The page with its runs' numbers in files beside it; what it loaded, and what went wrong."""
    text, made, _ = page(CLIPS, beside="report_data")
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    for name, content in made.files("report_data").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    context = browser.new_context(viewport={"width": 1440, "height": 900}, offline=True)
    made_tab, asked, faults = context.new_page(), [], []
    made_tab.on("pageerror", lambda error: faults.append(str(error)))
    made_tab.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    made_tab.on("request", lambda one: asked.append(one.url.rpartition("/")[2]) if "report_data" in one.url else None)
    yield made_tab, (tmp_path / "report.html").as_uri(), asked, faults
    context.close()


def shown(tab, address):
    """What the page says of the worst query in Hard, captions searching, and of the first one in Binary."""
    tab.goto(address)
    settled(tab).locator("#method").select_option("seqLSTM")
    settled(tab).locator("#order").select_option("worst")
    found = [words(tab), tab.locator(".detail").inner_text()]
    pick(tab, "seed", "2")
    assert tab.locator('.detail input[value="2"]').is_checked() and tab.locator(".hits li").count() == 10
    found.append(tab.locator(".detail").inner_text())
    pick(tab, "setting", "binary")
    assert tab.locator(".hits li").count() == 2
    return [*found, words(tab), tab.locator(".detail").inner_text()]


# As from a slow disk: longer than a reader needs who does not wait.
SLOW = """HTMLHeadElement.prototype.append = function (...added) {
    setTimeout(() => Element.prototype.append.apply(this, added), 100);
};"""


def test_numbers_beside_the_page_are_read_on_demand_and_say_the_same(tab, beside, address):
    other, large, asked, faults = beside
    other.add_init_script(SLOW)
    assert shown(other, large) == shown(tab, address) and faults == []
    runs = 3 * (len(METHODS) - 1) + 1
    assert len(asked) == len(set(asked)), "no file is read twice"
    assert len([name for name in asked if ".ranks." in name]) == 2 * runs, "of the two views that were looked at"
    assert 3 <= len([name for name in asked if ".top." in name]) <= 5, "of the runs whose first places were shown"


def test_a_page_whose_numbers_are_not_beside_it_says_so(beside, tmp_path):
    other, large, _, _ = beside
    shutil.rmtree(tmp_path / "report_data")
    other.goto(large)
    assert "keep that folder next to this page" in settled(other).locator("#count").inner_text()
