"""Reading JSON from hpad: errors of its API, and a limit of bytes."""

import http.client
import http.server
import json
import threading
from collections.abc import Callable, Iterator

import pytest

from hpad.cli import fetch
from hpad.cli.client import Direct
from hpad.cli.fetch import Refusal

Handler = http.server.BaseHTTPRequestHandler


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[Handler], None]], str]]:
    """Starts servers that answer each GET by a function; returns their URL."""
    started: list[http.server.HTTPServer] = []

    def start(answer: Callable[[Handler], None]) -> str:
        class Answering(Handler):
            def do_GET(self) -> None:
                answer(self)

            def log_message(self, *args: object) -> None:
                """Nothing."""

        server = http.server.HTTPServer(("127.0.0.1", 0), Answering)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def answering(status: int, body: bytes) -> Callable[[Handler], None]:
    def answer(request: Handler) -> None:
        request.send_response(status)
        request.end_headers()
        request.wfile.write(body)

    return answer


def test_the_query_of_a_path_is_sent(serve) -> None:
    seen: list[str] = []

    def answer(request: Handler) -> None:
        seen.append(request.path)
        answering(200, b'{"items": []}')(request)

    assert Direct(serve(answer)).get("/api/v1/hpas?namespace=a%2Fb&limit=1") == {"items": []}
    assert seen == ["/api/v1/hpas?namespace=a%2Fb&limit=1"]


def test_an_error_of_the_api_is_the_message(serve) -> None:
    body = json.dumps({"error": "no HPA shop/web"}).encode()
    with pytest.raises(Refusal) as refused:
        Direct(serve(answering(404, body))).get("/api/v1/hpas/shop/web")
    assert (str(refused.value), refused.value.status, refused.value.error) == (
        "no HPA shop/web",
        404,
        "no HPA shop/web",
    )


@pytest.mark.parametrize("body", [b"404: Not Found\n", b"[]", b'{"error": 1}', b"[" * 100_000, b"\xff"])
def test_an_error_without_a_text_of_the_api_names_the_status(serve, body: bytes) -> None:
    with pytest.raises(Refusal, match="answered 404 Not Found: does hpad listen there") as refused:
        Direct(serve(answering(404, body))).get("/x")
    assert refused.value.error == ""


def test_an_answer_without_end_is_refused(serve, monkeypatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BYTES", 100_000)
    url = serve(answering(200, b"1" * 200_000))
    with pytest.raises(ValueError, match="longer than 100000 bytes"):
        fetch.fetch(http.client.HTTPConnection(url.removeprefix("http://")), "/", {}, 60.0)
