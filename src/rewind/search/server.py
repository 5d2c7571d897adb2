"""The search page: Flask over a :class:`rewind.search.searcher.Searcher`. No script, no cookie, nothing from elsewhere.

Flask comes with the extra ``serve``.
"""

from __future__ import annotations

import io
import ipaddress
import socket
import threading
from urllib.parse import urlsplit

from flask import Flask, Response, abort, render_template, request, send_file
from werkzeug.serving import WSGIRequestHandler, make_server

from rewind.errors import RewindError
from rewind.search.console import mark
from rewind.search.run import FinishedRun
from rewind.search.searcher import Answer, Searcher
from rewind.search.strips import Strips
from rewind.video.packed import find, read

TOPS = (5, 10, 20, 50)
EXAMPLES = 6
LONGEST = 1000  # letters of a query

# Were a caption to slip through as markup, a browser would still run nothing and fetch nothing.
_POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'self'; media-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def create_app(
    run: FinishedRun, searcher: Searcher, split: str = "test", local: bool = True, trust: bool = False
) -> Flask:
    """The application, with these addresses:

    - ``/?q=…&top=…``: the page and what a query found; ``/?caption=<caption_id>`` asks a caption whose item is known;
    - ``/strip/<item_id>.jpg``: a few frames of an item of the gallery;
    - ``/clip/<item_id>``: its file.

    Args:
        run, searcher: from :mod:`rewind.search`.
        split: gallery, for the page's heading.
        local: answer only requests that name this machine, so that no web page elsewhere can ask through a browser.
        trust: also show files that lie outside of ``results/data``.
    """
    app = Flask(__name__)
    strips = Strips(searcher.items, run.data, trust=trust)
    captions = searcher.captions.drop_duplicates("caption_id").set_index("caption_id")
    examples = searcher.random_captions(EXAMPLES, seed=0).to_dict("records")
    model = threading.Lock()  # requests come in threads, the model is one

    def row_of(item: str) -> int:
        if item not in searcher.place:
            abort(404)
        return searcher.place[item]

    @app.get("/")
    def page() -> str:
        top, asked = _top(request.args.get("top", "")), request.args.get("caption")
        query, truth = request.args.get("q"), None
        if asked is not None:
            if asked not in captions.index:
                abort(404)
            query, truth = captions.loc[asked, ["caption", "video_id"]]
        found, fault = None, ""
        if query is not None:
            with model:
                found, fault = _ask(searcher, str(query), top, truth)
        return render_template(
            "search.html", run=run.name, split=split, total=len(searcher.ids), query=query or "", top=top, tops=TOPS,
            found=found, fault=fault, examples=examples, mark=mark,
        )  # fmt: skip

    @app.get("/strip/<item>.jpg")
    def strip(item: str) -> Response:
        row = row_of(item)
        try:
            answer = Response(strips.jpeg(row), mimetype="image/jpeg")
        except RewindError as error:
            abort(404, str(error))
        answer.add_etag()
        return answer.make_conditional(request)

    @app.get("/clip/<item>")
    def clip(item: str) -> Response:
        row = row_of(item)
        path = strips.paths[row]
        try:
            strips.check(row)
            if place := find(path):  # within a shard
                return send_file(io.BytesIO(read(place)), download_name=path.name, conditional=True)
        except RewindError as error:
            abort(404, str(error))
        if not path.is_file():
            abort(404, f"{path.name}: no such file; prepare the data again.")
        return send_file(path.resolve(), conditional=True)

    @app.before_request
    def known() -> None:
        if local and not is_local(_host_name(request.host)):
            abort(400, "This search only answers on this machine.")

    @app.after_request
    def guard(answer: Response) -> Response:
        answer.headers.update(_HEADERS)
        return answer

    return app


def serve(app: Flask, host: str, port: int, name: str) -> None:
    """Answer requests until Ctrl-C.

    Raises:
        RewindError: if the address cannot be had.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise RewindError(f"http://{host}:{port} cannot be served: {error}. Choose another --host or --port.") from None
    with listening:
        port = listening.getsockname()[1]
        server = make_server(host, port, app, threaded=True, request_handler=_Quiet, fd=listening.fileno())
        print(f"{name}: http://{f'[{host}]' if ':' in host else host}:{port}/  (Ctrl-C ends it)", flush=True)
        if not is_local(host):
            print("Anyone who can reach this machine can search here; there is no password.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
        finally:
            server.server_close()


def is_local(host: str) -> bool:
    """Whether an address is this machine's own, which no other can reach."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_name(host: str) -> str:
    """``[::1]:8000`` → ``::1``."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _ask(searcher: Searcher, query: str, top: int, truth: str | None) -> tuple[Answer | None, str]:
    """What was found, or why nothing was."""
    if len(query) > LONGEST:
        return None, f"the query has {len(query):,} characters; at most {LONGEST:,} are allowed."
    try:
        return searcher.search(query, top, truth), ""
    except RewindError as error:
        return None, str(error)


def _top(text: str) -> int:
    return int(text) if text in map(str, TOPS) else TOPS[0]


class _Quiet(WSGIRequestHandler):
    """Leaves the terminal to what went wrong."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass
