"""The page holds everything it needs, says what it was given, and cannot be broken by what captions say."""

import base64
import colorsys
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from PIL import Image

import rewind
from page_numbers import METHODS, ODD, SETTINGS, WAYS, frames, page
from page_reader import Reader, read_json_script
from rewind.figures import style
from rewind.report.explorer import unpack_array
from rewind.report.page.document import (
    ASSETS_FOLDER,
    MAX_SVG_BYTES,
    SCRIPT_FILES,
    STYLE_FILES,
    assets_hash,
    html_figure,
    html_section,
    json_script,
    page_table,
    text_table,
)
from rewind.report.page.strips import encode_strip, is_mirrored, make_strips
from rewind.tables.table import Cell, Column, RowGroup, Table, number_cell


@pytest.fixture(scope="module")
def small():
    text, made, strips = page(6)
    return text, Reader(text), made, strips


def test_the_page_is_one_well_formed_document(small):
    text, reader, _, _ = small
    assert text.startswith("<!doctype html>") and reader.title == "Bars & <stars>"
    assert len(set(reader.ids)) == len(reader.ids), "an id twice"
    for address in (a for a in reader.addresses if a.startswith("#")):
        assert address[1:] in reader.ids, f"{address} leads nowhere"


def test_nothing_is_asked_of_a_network(small):
    text, reader, _, _ = small
    assert not re.search(r"https?://|//cdn|@import|\bfetch\(|XMLHttpRequest|WebSocket|<iframe|<object", text)
    assert all(address.startswith(("#", "data:")) for address in reader.addresses)
    assert "default-src 'none'" in text and "connect-src" not in text


def test_captions_cannot_break_out(small):
    text, reader, _, _ = small
    data = read_json_script(dict(reader.scripts)["explorer-data"])
    assert data["captions"]["text"][0] == ODD
    assert "<b>no" not in text and text.count("</script>") == 4
    odd = ["</script><!--", "\u2028"]
    assert read_json_script(json_script("x", odd).split(">", 1)[1].removesuffix("</script>")) == odd


def test_the_data_come_back_as_they_were(small):
    _, reader, made, strips = small
    scripts = dict(reader.scripts)
    data = read_json_script(scripts["explorer-data"])
    assert [one["key"] for one in data["methods"]] == list(METHODS)
    assert [one["seeds"] for one in data["methods"]] == [[0, 1, 2]] * 4 + [[0]]
    assert [one["baseline"] for one in data["methods"]] == [False] * 4 + [True]
    assert [(v["setting"], v["direction"]) for v in data["views"]] == [(s, w) for s in SETTINGS for w in WAYS]
    np.testing.assert_array_equal(unpack_array(data["items"]["twin"], "i4"), np.arange(12) ^ 1)
    np.testing.assert_array_equal(unpack_array(data["captions"]["item"], "i4"), np.arange(12))
    assert data == json.loads(json.dumps(made.data(METHODS, ("chance",), data["items"]["clip"], strips.numbers())))
    stored = read_json_script(scripts["explorer-strips"])
    picture_ = Image.open(io.BytesIO(base64.b64decode(stored["data"][0])))
    assert stored["frames"] == [6] * 6 and picture_.size == (6 * 32, 32)


def test_the_same_study_gives_the_same_bytes(small):
    assert page(6)[0] == small[0]


def test_every_file_of_the_page_is_in_it(small):
    text = small[0]
    for name in (*STYLE_FILES, *SCRIPT_FILES):
        assert (ASSETS_FOLDER / name).read_text() in text, name
    assert {p.name for p in ASSETS_FOLDER.iterdir() if p.suffix in (".css", ".js")} == {*STYLE_FILES, *SCRIPT_FILES}
    assert re.fullmatch("[0-9a-f]{16}", assets_hash())


def test_style_sheets_have_one_palette_in_the_hues_of_the_figures():
    """Of the page and of the search page, light and dark: shades of the figures' colours that are legible as text."""
    search = Path(rewind.__file__).parent / "search/static/search.css"
    blocks = {}  # of :root: light, then dark; page.css has a third one, black on white for printers
    for path in (ASSETS_FOLDER / "page.css", search):
        roots = re.findall(r":root \{(.*?)\}", path.read_text(), re.DOTALL)[:2]
        blocks[path.name] = [dict(re.findall(r"--([\w-]+): ([^;]+);", root)) for root in roots]
    for of_page, of_search in zip(*blocks.values(), strict=True):
        shared = of_page.keys() & of_search.keys()
        assert shared == {*("ink", "faint", "paper", "panel", "rule", "accent", "truth", "twin")}
        assert {name: of_page[name] for name in shared} == {name: of_search[name] for name in shared}
        for name, colour in (("truth", style.TRUTH), ("twin", style.TWIN), ("accent", style.BLUE)):
            here, there = (colorsys.rgb_to_hls(*to_rgb(value))[0] for value in (of_page[name], colour))
            assert 360 * abs(here - there) < 5, name


@pytest.mark.slow
def test_two_thousand_queries_stay_small():
    text, made, _ = page(1000, budget=0)
    assert len(made.split.captions) == 2000
    assert len(text) < 5_000_000, f"{len(text):,} characters"


def test_strips_of_mirrored_twins_are_shared():
    made = make_strips(frames, [1, 0, 3, 2], [False, True, False, True])
    assert made.numbers() == [0, ~0, 1, ~1] and len(made.data) == 2 and made.embedded() == 4
    other = make_strips(lambda item: frames(2) if item % 2 else frames(item), [1, 0], [False, True])
    assert other.numbers() == [0, 1], "a twin that is no mirror has a strip of its own"
    assert (
        is_mirrored(frames(0), frames(1))
        and not is_mirrored(frames(0), frames(0))
        and not is_mirrored(frames(0), frames(1)[:5])
    )


def test_clips_beyond_the_budget_are_left_out_and_told_apart():
    size = len(encode_strip(frames(0)))
    made = make_strips(frames, [1, 0, 3, 2, -1], [False, True, False, True, False], budget=int(1.5 * size))
    assert made.of_item == [0, ~0, None, None, None] and made.bytes <= 1.5 * size
    assert made.numbers() == [0, ~0, 1, 1, 1], "the number of strips stands for none"
    assert make_strips(frames, [-1], [False], budget=0).embedded() == 0


def test_tables_and_texts_are_escaped():
    rows = pd.DataFrame({"a<b": ["<i>", None], "n": [1234, 0.5]}, dtype=object)
    text = html_section("k", "T & U", text_table(rows, 'the "first"', ("n",)))
    Reader(text)
    assert "a&lt;b" in text and "&lt;i&gt;" in text and "<i>" not in text and "T &amp; U" in text
    assert '<td class="number">1,234</td>' in text and '<td class="number">0.50</td>' in text and "<td>–</td>" in text


def test_notes_stand_below_a_table_and_runs_are_folded():
    columns = (Column("Method", number=False), Column("R@1"))
    group = RowGroup("", ((Cell("<b>"), number_cell(1.0)),))
    table = Table("Table A", 'the "x"', "x", columns, (group,), notes=("said",))
    shown, folded = page_table(table, "table_x"), page_table(replace(table, appendix=True))
    for text in (shown, folded):
        Reader(text)
        assert "tfoot" not in text and text.count("<li>said</li>") == 1
        assert 'aria-label="Table A. the &quot;x&quot;"' in text and "&lt;b&gt;" in text
    assert shown.index("</table>") < shown.index("said") and '<table data-copies="table_x" class=' in shown
    assert folded.startswith("<details><summary>Table A. the &quot;x&quot;<") and "data-copies" not in folded
    assert page_table(replace(table, notes=())).count("<details") == 0


def test_pictures_are_inlined(tmp_path):
    png, _, svg = style.save(style.message_figure("nothing"), tmp_path / "gap")
    text = html_figure(png, 'a "gap" & more')
    Reader(text)
    assert base64.b64encode(svg.read_bytes()).decode() in text and 'alt="a &quot;gap&quot; &amp; more"' in text
    assert 'width="385" height="110"' in text and "image/svg+xml" in text
    svg.write_bytes(svg.read_bytes() + b" " * MAX_SVG_BYTES)
    large = html_figure(png, "a gap")
    svg.unlink()
    assert large == html_figure(png, "a gap"), "a large drawing is not in the page"
    packed = re.search(r'src="data:image/webp;base64,([^"]*)"', large)[1]
    with Image.open(io.BytesIO(base64.b64decode(packed))) as shown, Image.open(png) as drawn:
        assert shown.format == "WEBP" and shown.size == drawn.size
    assert 'width="385" height="110"' in large
