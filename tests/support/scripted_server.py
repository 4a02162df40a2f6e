"""An HTTP server of scripted answers on loopback, and a clock that does not wait."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from hpad.kube.errors import ApiError
from hpad.kube.reflector import ReflectorOptions
from hpad.lab.cluster.listener import Listener

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
QUICK = ReflectorOptions(shortest_watch=5, longest_watch=5, grace=1, initial_backoff=0.5, max_backoff=8)


class SkippingClock:
    """A clock whose `sleep` returns at once, advances the time, and is recorded in `slept`."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.skipped = 0.0

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() + self.skipped

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self.slept.append(seconds)
            self.skipped += seconds
        await asyncio.sleep(0.001)


class Script:
    """Answers requests by method and path, in order; the last answer repeats. Records the requests."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self._answers: dict[tuple[str, str], list[Answer]] = {}

    def on(self, method: str, path: str, *answers: Answer) -> None:
        """Adds answers. A `path` with `?watch` means watches, with `?stream` streaming lists (by default a 422)."""
        self._answers.setdefault((method, path), []).extend(answers)

    def replace(self, method: str, path: str, *answers: Answer) -> None:
        """Replaces all answers of a method and path."""
        self._answers[method, path] = list(answers)

    def count(self, path: str) -> int:
        return sum(1 for _, asked, _ in self.asked if asked == path)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        streaming = "sendInitialEvents" in request.query
        path = request.path + ("?stream" if streaming else "?watch" if "watch" in request.query else "")
        if streaming and (request.method, path) not in self._answers:
            return await says(failure(422, "Invalid", "sendInitialEvents: Forbidden"), 422)(request)
        self.asked.append((request.method, path, dict(request.query)))
        self.headers.append(dict(request.headers))
        self.bodies.append(await request.read())
        answers = self._answers.get((request.method, path))
        if not answers:
            return web.Response(status=404, text="404 page not found\n")
        return await (answers.pop(0) if len(answers) > 1 else answers[0])(request)


@contextlib.asynccontextmanager
async def serving(handle: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Starts a server for one handler; yields its port."""
    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", handle)
    listener = await Listener.open(app, tls=tls, patience=0.1)
    try:
        yield listener.port
    finally:
        await listener.close()


def says(body: Any, status: int = 200, **headers: str) -> Answer:
    """Returns an answer with JSON, or with unchanged bytes."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    async def answer(request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=content, status=status, content_type="application/json", headers=named)

    return answer


def streams(*chunks: bytes | float, then: str = "end") -> Answer:
    """Returns an answer that sends chunks (a number is a pause in seconds), then `end`, `reset` or `hang`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        for chunk in chunks:
            if isinstance(chunk, bytes):
                await response.write(chunk)
            else:
                await asyncio.sleep(chunk)
        if then == "hang":
            await asyncio.sleep(60)
        if then == "reset":
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


async def resets(request: web.Request) -> web.StreamResponse:
    """Resets the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def hangs(request: web.Request) -> web.StreamResponse:
    """Does not answer for a minute."""
    await asyncio.sleep(60)
    return web.Response()


def failure(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    }  # fmt: skip


def line(kind: str, value: Any) -> bytes:
    return json.dumps({"type": kind, "object": value}).encode() + b"\n"


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Waits until a condition is true."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  the condition may be about the server
            await asyncio.sleep(0.002)


async def refused(request: Awaitable[Any]) -> ApiError:
    """Awaits a request that fails; returns its ApiError."""
    with pytest.raises(ApiError) as caught:
        await request
    return caught.value
