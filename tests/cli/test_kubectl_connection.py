"""Readers through `kubectl port-forward`, with a shell script in place of kubectl, and which of them is asked."""

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
from hpad.cli.fetch import Refusal
from hpad.cli.kubectl.command import Kubectl
from hpad.cli.kubectl.connection import Deciding, Forwarded
from hpad.cli.kubectl.discovery import HpadPod
from hpad.cli.output import Failure

VERSION = "/api/v1/version"
POD = HpadPod("hpad", "a", "http", 8473)


@pytest.fixture
def tokens() -> Iterator[tuple[int, list[str | None]]]:
    """A server that answers each GET with its path; yields its port, and the tokens that it received."""
    seen: list[str | None] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers.get("Authorization"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"version": "%s"}' % self.path.encode())

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

            return Forwarded(Kubectl(), POD, Direct("", token="secret"), stack)

        yield make


def test_kubectl_is_started_once_at_the_first_request(forward, tokens: Any, tmp_path: Path) -> None:
    port, seen = tokens
    reader = forward(f'echo "$@" >> started; echo "Forwarding from 127.0.0.1:{port} -> 8473"; exec sleep 600')
    assert not (tmp_path / "started").exists()
    assert [reader.get(VERSION), reader.get(f"{VERSION}?c=d")] == [{"version": VERSION}, {"version": f"{VERSION}?c=d"}]
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
            reader.get(VERSION)

    with pytest.raises(Failure, match=r"^pod hpad/a: kubectl port-forward: lost connection to pod$"):
        ask_until_kubectl_has_ended()
    assert seen == []


def test_an_error_of_kubectl_is_added_to_that_of_the_connection(forward) -> None:
    reader = forward(
        "echo 'an error occurred forwarding 8473: refused' >&2; echo 'Forwarding from 127.0.0.1:9 -> '; exec sleep 600"
    )
    with pytest.raises(Failure) as failed:
        reader.get(VERSION)
    assert str(failed.value) == (
        "no hpad answers on pod hpad/a: Connection refused (an error occurred forwarding 8473: refused)"
    )


def test_a_pod_that_may_not_be_forwarded_is_named(forward) -> None:
    reader = forward("echo 'Error from server (Forbidden): pods \"a\" is forbidden' >&2; exit 1")
    with pytest.raises(Failure, match=r"^pod hpad/a: pods \"a\" is forbidden$"):
        reader.get(VERSION)


class Replica:
    """A Reader that knows itself under `role`; None: it does not answer."""

    def __init__(self, name: str, role: str | None) -> None:
        self.name, self.role, self.asked = name, role, 0

    def __str__(self) -> str:
        return f"pod hpad/{self.name}"

    def get(self, path: str) -> Any:
        if self.role is None:
            raise Failure(f"{self}: no answer")
        if path != "/api/v1/replicas":
            return f"{path} of {self.name}"
        self.asked += 1
        return {"self": self.name, "items": [{"identity": self.name, "role": self.role}]}


def deciding(*replicas: Replica) -> Deciding:
    return Deciding(replicas)  # type: ignore[arg-type]


@pytest.mark.parametrize("role", ["leader", "single"])
def test_the_replica_that_decides_is_asked(role: str) -> None:
    reader = deciding(Replica("a", None), Replica("b", "standby"), Replica("c", role))
    assert reader.get("/x") == "/x of c"


def test_another_replica_is_asked_once_it_leads() -> None:
    first, second = Replica("a", "standby"), Replica("b", "leader")
    reader = deciding(first, second)
    assert [reader.get("/x"), reader.get("/x")] == ["/x of b", "/x of b"]
    assert (first.asked, second.asked) == (1, 2)
    first.role, second.role = "leader", "standby"
    assert reader.get("/x") == "/x of a"


def test_if_no_replica_decides_it_is_said_of_each_why() -> None:
    with pytest.raises(Failure) as failed:
        deciding(Replica("a", "standby"), Replica("b", None)).get("/x")
    lines = str(failed.value).splitlines()
    assert lines == [
        "no hpad that decides can be reached:",
        "  - pod hpad/a is a standby",
        "  - pod hpad/b: no answer",
    ]


def test_a_refusal_of_the_replica_that_decides_is_its_answer() -> None:
    class Refusing(Replica):
        def get(self, path: str) -> Any:
            if path == "/x":
                raise Refusal("no such HPA", 404)
            return super().get(path)

    with pytest.raises(Refusal, match=r"^no such HPA$"):
        deciding(Refusing("a", "leader")).get("/x")
