"""`rewind serve`: the search page shows what is found, escapes what it is told, and gives out the gallery alone."""

from __future__ import annotations

import functools
import io
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("flask", reason="Flask is not installed; it comes with the extra serve")

from messages import expect_message, refusal
from patience import patience
from rewind.cli.main import main
from rewind.io.files import read_csv, write_csv
from rewind.search.run import open_run
from rewind.search.searcher import load_searcher
from rewind.search.server import BoundedServer, create_app, is_local, serve
from rewind.video.shards import write_clip_index, write_tar
from search_runs import COLOURS, make_study

VOID = {"meta", "link", "input", "img", "br"}
NASTY = """<script>alert("1")</script> & 'a' "b" </title> wall"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A folder with the data of `walls`, one caption of which is markup, and a run that learnt from pixels."""
    root = make_study(tmp_path_factory.mktemp("walls"), meanP=30)
    path = root / "results/data/walls/captions/walls_test.csv"
    captions = read_csv(path)
    captions.loc[captions["caption_id"] == "test_blue#2", "caption"] = NASTY
    write_csv(path, captions)
    return root


@pytest.fixture(scope="module")
def app(root):
    run = open_run(root / "results/walls/runs/meanP/seed0")
    return create_app(run, load_searcher(run, say=lambda text: None))


@pytest.fixture
def client(app):
    return app.test_client()


class Page(HTMLParser):
    """Elements with their attributes, and the text; tags must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.found, self.text = [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data

    def all(self, tag: str) -> list[dict]:
        return [attributes for name, attributes in self.found if name == tag]


def ask(client, **query) -> Page:
    answer = client.get("/", query_string=query)
    assert answer.status_code == 200 and answer.mimetype == "text/html"
    return Page(answer.text)


def test_the_first_page_asks(client):
    page = ask(client)
    assert "walls/meanP/seed0" in page.text and "7 test items" in page.text and not page.all("img")
    box = next(one for one in page.all("input") if one["name"] == "q")
    assert "autofocus" in box and "required" in box and page.all("form")[0]["method"] == "get"
    assert {"lang": "en"} in page.all("html") and any(one.get("for") == box["id"] for one in page.all("label"))
    assert len([one for one in page.all("a") if "caption=" in one["href"]]) == 6


def test_a_query_shows_cards_in_order(client):
    page = ask(client, q="a white wall", top="5")
    pictures = [one["src"] for one in page.all("img")]
    assert (
        pictures[0] == "/strip/test_white.jpg" and len(pictures) == 5 and all("alt" in one for one in page.all("img"))
    )
    assert "a white wall" in page.text and re.search(r"encode [\d.]+ ms · rank [\d.]+ ms", page.text)
    scores = [float(one) for one in re.findall(r"\s(-?\d+\.\d{3})\s", page.text)]
    assert len(scores) == 5 and scores == sorted(scores, reverse=True)
    assert len(ask(client, q="a white wall", top="50").all("img")) == 7
    assert len(ask(client, q="a white wall", top="-3; drop").all("img")) == 5, "any other number is the default"


def test_a_caption_as_query_marks_the_truth_and_its_twin(client):
    page = ask(client, caption="test_red#0")
    assert "at rank 1.5 of 7" in page.text and "✓ the truth" in page.text and "⇄ its twin" in page.text
    assert client.get("/?caption=nobody").status_code == 404


def test_what_cannot_be_ranked_is_said(client):
    for query, words in (("zebra", "'zebra'"), ("", "query is empty"), ("w" * 1001, " 1,001 ")):
        page = ask(client, q=query)
        assert words in page.text and not page.all("img")
        assert any(one.get("role") == "alert" for one in page.all("p"))
    page = ask(client, q="striped wall")
    assert "'striped'" in page.text and len(page.all("img")) == 5


def test_markup_in_captions_and_queries_stays_text(client):
    for page in (ask(client, q=NASTY, top="50"), ask(client, caption="test_blue#2"), ask(client, q=f"{NASTY} zebra")):
        assert not page.all("script") and NASTY in page.text
        assert all(not name.startswith("on") for _, attributes in page.found for name in attributes)
    assert next(one["value"] for one in ask(client, q=NASTY).all("input") if one["name"] == "q") == NASTY


def test_no_page_runs_or_fetches_anything_from_elsewhere(client):
    answer = client.get("/?q=wall")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script" not in policy and "frame-ancestors 'none'" in policy
    page = Page(answer.text)
    addresses = [one[key] for _, one in page.found for key in ("href", "src", "action") if key in one]
    assert all(address.startswith("/") or address == "data:," for address in addresses)
    style = client.get(next(one["href"] for one in page.all("link") if one["rel"] == "stylesheet"))
    assert style.status_code == 200 and "focus-visible" in style.text and "//" not in style.text
    for at in ("/", "/strip/test_red.jpg", "/nothing"):
        assert client.get(at).headers["X-Content-Type-Options"] == "nosniff"


def test_strips_and_clips_of_the_gallery(client, root):
    answer = client.get("/strip/test_blue.jpg")
    picture = np.asarray(Image.open(io.BytesIO(answer.data)))
    assert answer.mimetype == "image/jpeg" and picture.shape == (160, 3 * 160 + 8, 3)
    assert picture[:, :150, 2].min() > 200 and picture[:, :150, :2].max() < 60, "the wall is blue"
    assert client.get("/strip/test_blue.jpg").data == answer.data
    again = client.get("/strip/test_blue.jpg", headers={"If-None-Match": answer.headers["ETag"]})
    assert again.status_code == 304
    clip = client.get("/clip/test_blue")
    assert clip.data == (root / "results/data/walls/videos/test_blue.mp4").read_bytes() and clip.mimetype == "video/mp4"
    part = client.get("/clip/test_blue", headers={"Range": "bytes=4-7"})
    assert part.status_code == 206 and part.data == b"ftyp"


def test_a_clip_in_a_shard_is_given_out_and_a_damaged_one_is_not(client, root):
    videos = root / "results/data/walls/videos"
    whole, shard = (videos / "test_blue.mp4").read_bytes(), videos / "shards/0-of-1.tar"
    try:
        write_clip_index(videos, [("shards/0-of-1.tar", write_tar(shard, [("test_blue.mp4", whole)]))])
        (videos / "test_blue.mp4").rename(root / "kept.mp4")
        assert client.get("/clip/test_blue").data == whole
        damaged = bytearray(shard.read_bytes())
        damaged[damaged.index(b"ftyp")] ^= 1
        shard.write_bytes(damaged)
        answer = client.get("/clip/test_blue")
        assert answer.status_code == 404 and whole not in answer.data
        expect_message(re.search("<p>(.*?)</p>", answer.text)[1])
    finally:
        (root / "kept.mp4").rename(videos / "test_blue.mp4")
        for name in ("clips.csv", "shards.csv"):
            (videos / name).unlink()
        shutil.rmtree(videos / "shards")


OUTSIDE = [
    *["nobody", "train_red0", "test_gone", "..", "../items.csv", "..%2F..%2Fitems.csv", "%2e%2e/items.csv"],
    *["/etc/passwd", "%2Fetc%2Fpasswd", "test_red%00", "videos/test_red.mp4", "..\\items.csv"],
]


@pytest.mark.parametrize("item", OUTSIDE)
def test_nothing_else_is_given_out(client, item):
    for address in (f"/strip/{item}.jpg", f"/clip/{item}", f"/static/{item}", f"/static/../templates/{item}"):
        answer = client.get(address, follow_redirects=True)
        assert answer.status_code == 404 and b"item_id" not in answer.data


def test_a_clip_that_is_gone_is_a_404(client, root):
    path = root / "results/data/walls/videos/test_lime.mp4"
    shutil.move(path, root / "kept.mp4")
    try:
        for address in ("/strip/test_lime.jpg", "/clip/test_lime"):
            answer = client.get(address)
            assert answer.status_code == 404
            expect_message(re.search("<p>(.*?)</p>", answer.text)[1])
    finally:
        shutil.move(root / "kept.mp4", path)


def test_only_this_machine_is_answered(client, app):
    for host in ("localhost", "127.0.0.1:8000", "[::1]:8000"):
        assert client.get("/", headers={"Host": host}).status_code == 200
    for host in ("elsewhere.example", "127.0.0.1.elsewhere.example", "localhost@elsewhere.example", "10.0.0.1", "[x"):
        assert client.get("/", headers={"Host": host}).status_code == 400
    assert [is_local(host) for host in ("localhost", "127.0.0.1", "::1", "0.0.0.0", "192.168.1.2", "box")] == [
        *[True] * 3,
        *[False] * 3,
    ]


def test_requests_at_the_same_time(app):
    found: list[str] = []

    def one(colour: str) -> None:
        found.append(f"{colour} {ask(app.test_client(), q=f'a {colour} wall').all('img')[0]['src']}")

    colours = [colour for colour in COLOURS if colour not in ("red", "blue")] * 5
    threads = [threading.Thread(target=one, args=(colour,)) for colour in colours]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(f"{colour} /strip/test_{colour}.jpg" for colour in colours)


@pytest.fixture
def bounded(app):
    """A server of four threads that waits a second for a request to arrive."""
    server = BoundedServer(app, "127.0.0.1", 0, threads=4, seconds=patience(1.0))
    loop = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    loop.start()
    yield server
    server.shutdown()
    loop.join()
    server.server_close()


def sent(server, text):
    connection = socket.create_connection(("127.0.0.1", server.server_port), timeout=patience(30))
    connection.sendall(text)
    return connection


GET = b"GET /?q=a+blue+wall HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.slow
@pytest.mark.parametrize("half", [b"", b"GET / HT", GET], ids=["nothing", "half a line", "no end"])
def test_half_sent_requests_hold_no_thread(bounded, half):
    before = threading.active_count()
    waiting = [sent(bounded, half) for _ in range(12)]
    time.sleep(0.2)
    assert threading.active_count() <= before + 4, "so many are answered at a time, and no more"
    with sent(bounded, GET + b"\r\n") as mine:
        assert mine.recv(12) == b"HTTP/1.1 200", "its turn comes"
    for one in waiting:
        with one:
            while one.recv(4096):
                pass  # closed by the server: else this would run into the timeout
    until = time.monotonic() + patience(20)
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.05)
    assert threading.active_count() <= before


@pytest.mark.parametrize("start", [GET, b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999\r\n\r\n"])
def test_a_request_in_drops_is_hung_up_on(bounded, start):
    """Each piece comes in time, the whole does not."""
    end = time.monotonic() + patience(20)
    with sent(bounded, start) as slow, pytest.raises(OSError):
        while time.monotonic() < end:
            slow.sendall(b"x")
            time.sleep(0.05)


@pytest.mark.slow
def test_the_command_serves_until_it_is_ended(root):
    command = [sys.executable, "-m", "rewind", "serve", "results/walls/runs/meanP/seed0", "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Where the tests run in the background, Ctrl-C is ignored, and a child would inherit that.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, cwd=root, preexec_fn=heed, **pipes) as process:
        try:
            line = process.stdout.readline()
            address = re.search(r"walls/meanP/seed0: (http://127\.0\.0\.1:\d+/)", line)
            assert address, line + process.stderr.read()
            with urllib.request.urlopen(address[1] + "?q=a+blue+wall", timeout=patience(20)) as answer:
                assert "/strip/test_blue.jpg" in answer.read().decode()
            process.send_signal(signal.SIGINT)  # Ctrl-C
            assert process.wait(patience(20)) == 0 and "Traceback" not in process.stderr.read()
        finally:
            process.kill()


def test_by_keyboard_in_a_browser(browser, app):
    server = BoundedServer(app, "127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page(viewport={"width": 400, "height": 800})
    try:
        faults: list[str] = []
        page.on("console", lambda message: faults.append(message.text))
        page.on("requestfailed", lambda request: faults.append(request.url))
        page.goto(f"http://127.0.0.1:{server.server_port}/", wait_until="load")
        page.wait_for_selector("input:focus")  # by itself, when the browser first draws the page
        page.keyboard.type("a blue zebra")
        with page.expect_navigation(wait_until="load"):  # with all of its pictures
            page.keyboard.press("Enter")
        assert "'zebra'" in page.get_by_role("status").inner_text()
        widths = page.locator(".hits img").evaluate_all("all => all.map(one => one.naturalWidth)")
        assert widths == [488] * 5, "every strip was drawn"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing is off the side"
        for _ in range(5):
            page.keyboard.press("Tab")
        assert page.locator(":focus").get_attribute("href").startswith("/clip/test_")
        assert faults == []
    finally:
        page.close()
        server.shutdown()


def test_an_address_that_is_taken_is_refused(app):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        end = time.monotonic() + patience(20)
        with refusal(varying=r"\d{4,5}\b"):
            serve(app, "127.0.0.1", taken.getsockname()[1], "x")
        with refusal():
            serve(app, "no such host", 8000, "x")
        assert time.monotonic() < end


def test_without_flask_the_command_says_how_to_get_it(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "flask", None)
    monkeypatch.delitem(sys.modules, "rewind.search.server")
    assert main(["serve", str(Path("anywhere"))]) == 1
    assert "rewind-bench[serve]" in capsys.readouterr().err
