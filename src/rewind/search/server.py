"""The search page of ``rewind serve``: a Flask application over a :class:`rewind.search.searcher.Searcher`.

The page has no script and no cookies and loads nothing from elsewhere. Flask comes with the extra ``serve``.
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
from werkzeug.wrappers import Response as WerkzeugResponse

from rewind.errors import RewindError
from rewind.search.render import StripReader, hit_mark
from rewind.search.run import FinishedRun
from rewind.search.searcher import Answer, Searcher
from rewind.video.shards import find_clip, read_packed_clip

TOP_CHOICES = (5, 10, 20, 50)
EXAMPLE_COUNT = 6
MAX_QUERY_CHARACTERS = 1000
MAX_THREADS = 32  # requests answered at a time; a browser sends six
REQUEST_SECONDS = 10.0  # time for a request to arrive in full
ANSWER_SECONDS = 60.0  # time for a browser to take the next part of an answer; one that has paused a clip takes none

# If a caption ever got into the page as markup, a browser would still run no script and fetch nothing from elsewhere.
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'self'; media-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def create_app(
    run: FinishedRun, searcher: Searcher, split: str = "test", local: bool = True, trust: bool = False
) -> Flask:
    """The Flask application, with these addresses:

    - ``/?q=…&top=…``: the page with the answer to a query; ``/?caption=<caption_id>`` searches with a caption of the
      gallery, whose item is known;
    - ``/strip/<item_id>.jpg``: a few frames of an item of the gallery;
    - ``/clip/<item_id>``: its file.

    Args:
        split: gallery, for the page's heading.
        local: refuse requests whose Host header names another machine. A web page elsewhere whose name is made to
            point to this machine (DNS rebinding) can then not read the search through the user's browser.
        trust: also show files outside of ``results/data``.
    """
    app = Flask(__name__)
    strips = StripReader(searcher.items, run.data, trust=trust)
    captions = searcher.captions.drop_duplicates("caption_id").set_index("caption_id")
    examples = searcher.random_captions(EXAMPLE_COUNT, seed=0).to_dict("records")
    model_lock = threading.Lock()  # requests are answered in threads, which share the model

    def row_of(item: str) -> int:
        if item not in searcher.place:
            abort(404)
        return searcher.place[item]

    @app.get("/")
    def page() -> str:
        top, caption_id = _parse_top(request.args.get("top", "")), request.args.get("caption")
        query, truth = request.args.get("q"), None
        if caption_id is not None:
            if caption_id not in captions.index:
                abort(404)
            query, truth = captions.loc[caption_id, ["caption", "video_id"]]
        answer, fault = None, ""
        if query is not None:
            with model_lock:
                answer, fault = _answer_or_fault(searcher, str(query), top, truth)
        return render_template(
            "search.html",
            run=run.name,
            split=split,
            total=len(searcher.ids),
            query=query or "",
            top=top,
            tops=TOP_CHOICES,
            found=answer,
            fault=fault,
            examples=examples,
            mark=hit_mark,
        )

    @app.get("/strip/<item>.jpg")
    def strip(item: str) -> WerkzeugResponse:
        row = row_of(item)
        try:
            response = Response(strips.jpeg(row), mimetype="image/jpeg")
        except RewindError as error:
            abort(404, str(error))
        response.add_etag()
        return response.make_conditional(request)

    @app.get("/clip/<item>")
    def clip(item: str) -> Response:
        row = row_of(item)
        path = strips.paths[row]
        try:
            strips.check(row)
            if packed := find_clip(path):  # within a shard
                return send_file(io.BytesIO(read_packed_clip(packed)), download_name=path.name, conditional=True)
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
    def guard(response: Response) -> Response:
        response.headers.update(_HEADERS)
        return response

    return app


def serve(app: Flask, host: str, port: int, name: str) -> None:
    """Answer requests until Ctrl-C; port 0 is any free one, and ``name`` of the run is for the message.

    Raises:
        RewindError: if the address cannot be used.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise RewindError(f"http://{host}:{port} cannot be served: {error}. Choose another --host or --port.") from None
    with listener:
        port = listener.getsockname()[1]
        server = BoundedServer(app, host, port, listener.fileno())
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
    """A WSGI server with a limited number of threads and a limited time for each request to arrive.

    Clients that send half a request can thus not occupy all threads for good. While all threads are busy, further
    connections wait.
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
        """Listen at an address, or on ``listening``, the file descriptor of a socket that listens there already.

        ``threads`` requests are answered at a time, and one must arrive in full in ``seconds``, in however many pieces.
        """
        super().__init__(host, port, app, _QuietRequestHandler, fd=listening)
        self.seconds = seconds
        self._free = threading.BoundedSemaphore(threads)
        self._due: dict[socket.socket, float] = {}  # connections whose request has not arrived yet
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a new thread, once fewer than the allowed number run; called by ``serve_forever``."""
        # serve_forever calls service_actions only between requests, so it is called here while this one waits.
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
        """The work of a request's thread, after which another thread may start."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.arrived(request)
            self._free.release()

    def service_actions(self) -> None:
        """Close connections whose request is overdue; called a few times a second."""
        super().service_actions()
        now = time.monotonic()
        with self._lock:
            for request in [request for request, due in self._due.items() if due < now]:
                del self._due[request]
                with contextlib.suppress(OSError):  # it has hung up itself
                    request.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes it

    def arrived(self, request: socket.socket) -> None:
        """Note that a connection's request is here in full, or that the connection is closed."""
        with self._lock:
            self._due.pop(request, None)


def is_local(host: str) -> bool:
    """Whether an address is this machine's own, which no other machine can reach.

    >>> is_local("127.0.0.1"), is_local("::1"), is_local("0.0.0.0")
    (True, True, False)
    """
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


def _answer_or_fault(searcher: Searcher, query: str, top: int, truth: str | None) -> tuple[Answer | None, str]:
    """The answer to a query, or why there is none."""
    if len(query) > MAX_QUERY_CHARACTERS:
        return None, f"the query has {len(query):,} characters; at most {MAX_QUERY_CHARACTERS:,} are allowed."
    try:
        return searcher.search(query, top, truth), ""
    except RewindError as error:
        return None, str(error)


def _parse_top(text: str) -> int:
    return int(text) if text in map(str, TOP_CHOICES) else TOP_CHOICES[0]


class _QuietRequestHandler(WSGIRequestHandler):
    """Handles requests without a line in the terminal for each."""

    server: BoundedServer
    timeout = ANSWER_SECONDS  # of a single read or write on the socket

    def run_wsgi(self) -> None:
        """Answer the request, which has been read."""
        self.server.arrived(self.connection)
        with contextlib.suppress(OSError):
            # No address takes a body. Werkzeug reads one to its end after the answer, and would wait for each piece.
            self.connection.shutdown(socket.SHUT_RD)
        super().run_wsgi()

    def connection_dropped(self, error: BaseException, environ: Any = None) -> None:
        """Say nothing: a browser may leave at any time."""

    def log_error(self, format: str, *args: Any) -> None:
        """Say nothing: a request that was late or malformed is the client's fault."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Say nothing."""
