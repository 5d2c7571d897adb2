"""The search page: Flask over a :class:`rewind.search.searcher.Searcher`. No script, no cookie, nothing from elsewhere.

Flask comes with the extra ``serve``.
"""

from __future__ import annotations

import contextlib
import io
import ipaddress
import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from flask import Flask, Response, abort, render_template, request, send_file
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from rewind.errors import RewindError
from rewind.search.console import mark
from rewind.search.run import FinishedRun
from rewind.search.searcher import Answer, Searcher
from rewind.search.strips import Strips
from rewind.video.packed import find, read

TOPS = (5, 10, 20, 50)
EXAMPLES = 6
LONGEST = 1000  # letters of a query
MAX_THREADS = 32  # requests answered at a time; a browser sends six
REQUEST_SECONDS = 10.0  # for a request to arrive in full
ANSWER_SECONDS = 60.0  # for a browser to take the next part of an answer: one that has paused a clip takes none

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
        server = BoundedServer(app, host, port, listening.fileno())
        print(f"{name}: http://{f'[{host}]' if ':' in host else host}:{port}/  (Ctrl-C ends it)", flush=True)
        if not is_local(host):
            print("Anyone who can reach this machine can search here; there is no password.", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
        finally:
            server.server_close()


class BoundedServer(ThreadedWSGIServer):
    """Answers so many requests at a time, and waits only so long for each: half-sent ones hold no thread for good.

    While all threads are busy, further connections wait their turn.
    """

    def __init__(
        self,
        app: Flask,
        host: str,
        port: int,
        listening: int | None = None,
        threads: int = MAX_THREADS,
        seconds: float = REQUEST_SECONDS,
    ) -> None:
        """A server that listens.

        Args:
            app: answers.
            host, port: the address.
            listening: file descriptor of a socket that listens there already.
            threads: requests answered at a time.
            seconds: for a request to arrive in full, however many pieces it comes in.
        """
        super().__init__(host, port, app, _Quiet, fd=listening)
        self.seconds = seconds
        self._free = threading.BoundedSemaphore(threads)
        self._due: dict[socket.socket, float] = {}  # connections whose request has not arrived yet
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, once one is free."""
        while not self._free.acquire(timeout=self.seconds / 10):
            self.service_actions()
        with self._lock:
            self._due[request] = time.monotonic() + self.seconds
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self.arrived(request)
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """The thread's work, after which another may begin."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.arrived(request)
            self._free.release()

    def service_actions(self) -> None:
        """Hang up on those whose request is overdue; called a few times a second."""
        super().service_actions()
        now = time.monotonic()
        with self._lock:
            for request in [request for request, due in self._due.items() if due < now]:
                del self._due[request]
                with contextlib.suppress(OSError):  # it has hung up itself
                    request.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes it

    def arrived(self, request: socket.socket) -> None:
        """A connection's request is here in full, or the connection is over."""
        with self._lock:
            self._due.pop(request, None)


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

    server: BoundedServer
    timeout = ANSWER_SECONDS  # of one reading or writing

    def run_wsgi(self) -> None:
        """Answer the request, which has been read."""
        self.server.arrived(self.connection)
        with contextlib.suppress(OSError):
            # No address takes a body. Werkzeug reads one to its end after the answer, and would wait for each piece.
            self.connection.shutdown(socket.SHUT_RD)
        super().run_wsgi()

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        """Nothing is wrong here if a browser leaves."""

    def log_error(self, format: str, *args: Any) -> None:
        """What a client did not send in time, or sent wrongly, is its own affair."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass
