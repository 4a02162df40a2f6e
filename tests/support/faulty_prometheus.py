"""An HTTP server that answers range queries as Prometheus does, with the faults that a test chooses."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit


class AskedQuery(NamedTuple):
    """A query: its PromQL, and its times in seconds since 1970; `step` is 0 for one at a single time."""

    expression: str
    begin: float
    end: float
    step: float
    method: str = "GET"
    encoding: str = ""

    @property
    def times(self) -> list[float]:
        return [self.begin + index * self.step for index in range(round((self.end - self.begin) / self.step) + 1)]


class Body(NamedTuple):
    """An answer; `length` is the Content-Length, if not that of the content."""

    status: int
    content: bytes
    length: int | None = None


Answer = Callable[[AskedQuery], Body | None]
"""Returns the answer to a query; None for an empty one."""


def matrix(*series: tuple[Mapping[str, str], Sequence[Any]]) -> Body:
    """Returns an answer with these labels and pairs of a time and a value."""
    result = [{"metric": labels, "values": values} for labels, values in series]
    return Body(200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode())


def error(status: int, text: str) -> Body:
    """Returns an error in the form of Prometheus."""
    return Body(status, json.dumps({"status": "error", "errorType": "execution", "error": text}).encode())


@contextmanager
def answering(answer: Answer) -> Iterator[tuple[str, list[AskedQuery]]]:
    """Yields the URL of the server, and the queries that it got so far."""
    asked: list[AskedQuery] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(urlsplit(self.path).query)

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def _answer(self, query_string: str) -> None:
            fields = {name: values[0] for name, values in parse_qs(query_string).items()}
            at = fields.get("time", "0")
            begin, end, step = (float(fields.get(name, at)) for name in ("start", "end", "step"))
            query = AskedQuery(fields["query"], begin, end, step if "step" in fields else 0.0)
            query = query._replace(method=self.command, encoding=self.headers["Accept-Encoding"])
            asked.append(query)
            body = answer(query) or matrix()
            self.send_response(body.status)
            self.send_header("Content-Length", str(len(body.content) if body.length is None else body.length))
            self.end_headers()
            self.wfile.write(body.content)
            self.close_connection = body.length is not None

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
