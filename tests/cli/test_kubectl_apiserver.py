"""Requests through `kubectl proxy`: errors of the API server, of kubectl and of hpad are told apart, and limited."""

import http.server
import json
import os
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpad.cli.fetch import Refusal
from hpad.cli.kubectl import proxied
from hpad.cli.kubectl.apiserver import ApiServer, StatusError
from hpad.cli.kubectl.discovery import Pod
from hpad.cli.kubectl.proxied import Patience, Proxied
from hpad.cli.output import Failure

Answer = tuple[int, str, str]
Serve = Callable[..., ApiServer]
POD = Pod("hpad", "a", "http", 8473)


class Silent:
    """A kubectl that has written this to its standard error."""

    def __init__(self, text: str = "") -> None:
        self.text = text

    def said(self) -> str:
        return self.text


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts a server on a Unix socket that answers each GET with status, content type and body."""
    started: list[Server] = []

    def start(answer: Callable[[str], Answer] | Answer, said: str = "") -> ApiServer:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, kind, body = answer(self.path) if callable(answer) else answer
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(body.encode())

            def address_string(self) -> str:
                return ""

            def log_message(self, *args: object) -> None:
                """Nothing."""

        path = tmp_path / "socket"
        server = Server(os.fspath(path), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        started.append(server)
        return ApiServer(path, Silent(said))  # type: ignore[arg-type]

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def status(code: int, message: str) -> Answer:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return code, "application/json", json.dumps(body)


def test_objects_are_read_with_a_query(serve: Serve) -> None:
    api = serve(lambda path: (200, "application/json", json.dumps([path])))
    assert api.objects("/api/v1/pods", labelSelector="a=b,c=d") == ["/api/v1/pods?labelSelector=a%3Db%2Cc%3Dd"]
    assert api.objects("/api/v1/pods") == ["/api/v1/pods"]


def test_an_error_of_the_api_server_has_its_code_and_message(serve: Serve) -> None:
    with pytest.raises(StatusError, match=r"^the API server answered 403: pods is forb\\u001bidden$") as failed:
        serve(status(403, "pods is forb\x1bidden")).objects("/api/v1/pods")
    assert failed.value.code == 403


def test_an_error_of_kubectl_is_quoted(serve: Serve) -> None:
    text = "dial tcp 10.0.0.1:6443: connect: connection refused\n"
    with pytest.raises(Failure, match=r"answered 502 Bad Gateway: dial tcp 10\.0\.0\.1:6443: connect: connection ref"):
        serve((502, "text/plain", text)).objects("/api/v1/pods")


@pytest.mark.parametrize("body", ["", "no JSON"])
def test_an_answer_that_is_not_json_is_an_error(serve: Serve, body: str) -> None:
    with pytest.raises(Failure, match="the API server answered 200 OK: "):
        serve((200, "text/html", body)).objects("/api/v1/pods")


def test_a_kubectl_that_has_ended_is_an_error(tmp_path: Path) -> None:
    api = ApiServer(tmp_path / "none", Silent("getting credentials: exit 1"))  # type: ignore[arg-type]
    with pytest.raises(
        Failure, match=r"^kubectl proxy does not answer: No such file .* \(getting credentials: exit 1\)"
    ):
        api.get("/api/v1/pods")


def test_only_the_first_request_waits_for_a_login(serve: Serve) -> None:
    requests: list[str] = []

    def answer(path: str) -> Answer:
        requests.append(path)
        time.sleep(0.6)
        return 200, "application/json", "[]"

    api = serve(answer, "To sign in, open https://example.com")
    assert api.get("/first", 0.2).json() == []
    with pytest.raises(Failure, match=r"^no answer within 0\.2s \(To sign in, open https://example\.com\)$"):
        api.get("/second", 0.2)
    assert requests == ["/first", "/second"]


def test_a_pod_is_asked_through_its_proxy(serve: Serve) -> None:
    api = serve(lambda path: (200, "application/json", json.dumps({"path": path})))
    assert Proxied(api, POD).get("/api/v1/hpas?limit=1") == {
        "path": "/api/v1/namespaces/hpad/pods/a:8473/proxy/api/v1/hpas?limit=1"
    }


@pytest.mark.parametrize(
    ("answer", "code", "message"),
    [
        ((404, "application/json", '{"error": "no HPA shop/web"}'), 404, "no HPA shop/web"),
        ((404, "text/plain", "404: Not Found"), 404, "pod hpad/a answered 404 Not Found: is it hpad?"),
        ((401, "application/json", '{"error": "401: Unauthorized"}'), 401, "pod hpad/a answered 401 Unauthorized: "
         "hpad asks for a token or certificate, which the API server does not pass on"),
        ((421, "text/plain", "421"), 421, "pod hpad/a answered 421 Misdirected Request: hpad listens on loopback only"),
    ],
)  # fmt: skip
def test_a_refusal_of_hpad_is_told_apart_from_one_of_the_api_server(
    serve: Serve, answer: Answer, code: int, message: str
) -> None:
    with pytest.raises(Refusal) as refused:
        Proxied(serve(answer), POD).get("/x")
    assert (refused.value.status, str(refused.value)) == (code, message)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (status(503, "error trying to reach service: dial tcp"), "pod hpad/a: error trying to reach service: dial tcp"),
        (status(404, 'pods "a" not found'), 'pod hpad/a: pods "a" not found'),
        ((200, "text/html", "<html>"), "pod hpad/a did not answer with JSON: is it hpad?"),
    ],
)
def test_other_answers_are_failures_that_name_the_pod(serve: Serve, answer: Any, message: str) -> None:
    with pytest.raises(Failure) as failed:
        Proxied(serve(answer), POD).get("/x")
    assert not isinstance(failed.value, Refusal)
    assert str(failed.value) == message


@pytest.mark.parametrize("endless", [True, False])
def test_after_a_pod_that_does_not_answer_the_others_are_asked_only_if_there_is_no_other_way(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, endless: bool
) -> None:
    monkeypatch.setattr(proxied, "FIRST_SECONDS", 0.2)
    requests: list[str] = []

    def answer(path: str) -> Answer:
        requests.append(path.split("/")[6])
        if "/a:" in path:
            time.sleep(1.0)
        return 200, "application/json", "[]"

    api = serve(answer)
    api.get("/api/v1/x/y/z/first")
    patience = Patience(endless=endless)
    with pytest.raises(Failure, match=r"^pod hpad/a: no answer within 0\.2s$"):
        Proxied(api, POD, patience).get("/api/v1/replicas")
    other = Proxied(api, Pod("hpad", "b", "http", 8473), patience)
    if endless:
        assert other.get("/api/v1/replicas") == []
    else:
        with pytest.raises(Failure, match=r"^pod hpad/b is not asked, since the API server gets no answer from hpad$"):
            other.get("/api/v1/replicas")
    assert requests == ["first", "a:8473", *(["b:8473"] if endless else [])]
