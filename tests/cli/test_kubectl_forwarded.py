"""A Reader through `kubectl port-forward`, with a shell script in place of kubectl."""

import contextlib
import http.server
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpad.cli.client import Direct
from hpad.cli.kubectl.children import Kubectl
from hpad.cli.kubectl.discovery import Pod
from hpad.cli.kubectl.forwarded import Forwarded
from hpad.cli.output import Failure

POD = Pod("hpad", "a", "http", 8473)


@pytest.fixture
def tokens() -> Iterator[tuple[int, list[str | None]]]:
    """A server that answers each GET with its path; yields its port, and the tokens that it received."""
    seen: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'"%s"' % self.path.encode())

        def log_message(self, *args: object) -> None:
            """Nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port, seen
        server.shutdown()


@pytest.fixture
def forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Forwarded]]:
    """Makes a Reader that starts this shell script as kubectl."""
    with contextlib.ExitStack() as stack:

        def make(script: str) -> Forwarded:
            file = tmp_path / "kubectl"
            file.write_text(f"#!/bin/sh\ncd {tmp_path}\n{script}\n")
            file.chmod(0o755)
            monkeypatch.setenv("PATH", f"{tmp_path}:{os.defpath}")

            def connect(address: str, pod: Pod) -> Direct:
                return Direct(f"http://{address}", token="secret", name=f"{pod} by port-forward", advice="")

            return Forwarded(Kubectl(), POD, connect, stack)

        yield make


def test_kubectl_is_started_once_at_the_first_request(forward, tokens: Any, tmp_path: Path) -> None:
    port, seen = tokens
    reader = forward(f'echo "$@" >> started; echo "Forwarding from 127.0.0.1:{port} -> 8473"; sleep 600')
    assert not (tmp_path / "started").exists()
    assert [reader.get("/a"), reader.get("/b?c=d")] == ["/a", "/b?c=d"]
    expected = "port-forward --address=127.0.0.1 --namespace=hpad pod/a :8473\n"
    assert (tmp_path / "started").read_text() == expected
    assert seen == ["Bearer secret", "Bearer secret"]


def test_a_port_whose_kubectl_has_ended_gets_no_token(forward, tokens: Any, tmp_path: Path) -> None:
    port, seen = tokens
    reader = forward(f"echo 'Forwarding from 127.0.0.1:{port} -> 8473'; echo 'error: lost connection to pod' >&2")

    def ask_until_kubectl_has_ended() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            seen.clear()
            reader.get("/a")

    with pytest.raises(Failure, match=r"^pod hpad/a: kubectl port-forward: lost connection to pod$"):
        ask_until_kubectl_has_ended()
    assert seen == []


def test_an_error_of_kubectl_is_added_to_that_of_the_connection(forward) -> None:
    reader = forward(
        "echo 'an error occurred forwarding 8473: refused' >&2; echo 'Forwarding from 127.0.0.1:9 -> 8473'; sleep 600"
    )
    with pytest.raises(Failure) as failed:
        reader.get("/a")
    assert str(failed.value) == (
        "no hpad answers on pod hpad/a by port-forward: Connection refused (an error occurred forwarding 8473: refused)"
    )


def test_a_pod_that_may_not_be_forwarded_is_named(forward) -> None:
    reader = forward("echo 'Error from server (Forbidden): pods \"a\" is forbidden' >&2; exit 1")
    with pytest.raises(Failure, match=r"^pod hpad/a: kubectl port-forward: \(Forbidden\): pods \"a\" is forbidden$"):
        reader.get("/a")
