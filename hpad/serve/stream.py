"""The decisions as server-sent events (WHATWG HTML, "Server-sent events").

The decision history is followed once for all clients, so an event is made once. A client that does not read is
disconnected. Events are not stored: after a reconnect a client reads the list of HPAs again, and a `Last-Event-ID` has
no effect.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import structlog
from aiohttp import web

from hpad.api.hpa import key_of
from hpad.api.metadata import Key
from hpad.records.history import DecisionHistory
from hpad.serve import limits
from hpad.serve.api_types import Summary
from hpad.serve.summary import matches

PATH: Final = "/api/v1/decisions"
MOST_CLIENTS: Final = 32
MOST_WAITING: Final = 1024
"""Events that a client may leave unread."""
KEEP_ALIVE_SECONDS: Final = 15.0
LONGEST_SECONDS: Final = 900.0
"""After this time a stream ends, and its client authenticates again. Browsers reconnect by themselves."""
RETRY_SECONDS: Final = 15
_CHUNK: Final = 64
"""Events of one write."""
_STREAM_HEADERS: Final = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
"""The second one keeps nginx from holding events back (ngx_http_proxy_module: proxy_buffering)."""
_KEEP_ALIVE: Final = b": keep-alive\n\n"


class _Client:
    """A client with the events that it has not been sent yet. `drop` disconnects it."""

    def __init__(self, wants: Callable[[Summary], bool], drop: Callable[[], None]) -> None:
        self.wants = wants
        self._drop = drop
        self._waiting: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._is_open = True

    def put(self, event: bytes) -> None:
        """Adds an event; disconnects the client if it has left too many unread."""
        if len(self._waiting) >= MOST_WAITING:
            self.end()
            self._drop()
            return
        self._waiting.append(event)
        self._changed.set()

    def end(self) -> None:
        """Ends the stream. Events that were not sent are dropped."""
        self._is_open = False
        self._waiting.clear()
        self._changed.set()

    async def next(self, keep_alive: float) -> bytes:
        """Waits for events, `keep_alive` seconds at most, and returns them; else a comment, b"" at the end."""
        if self._is_open and not self._waiting:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(keep_alive):
                    await self._changed.wait()
        if not self._is_open:
            return b""
        events = [self._waiting.popleft() for _ in range(min(_CHUNK, len(self._waiting)))]
        return b"".join(events) or _KEEP_ALIVE


class Streams:
    """All clients that follow the decisions. `summarize` returns the summary of an HPA, None if it is gone."""

    keep_alive = KEEP_ALIVE_SECONDS
    patience = limits.REQUEST_SECONDS
    longest = LONGEST_SECONDS

    def __init__(
        self, decisions: DecisionHistory, summarize: Callable[[Key], Summary | None], encode: Callable[[Summary], bytes]
    ) -> None:
        self._decisions = decisions
        self._summarize = summarize
        self._encode = encode
        self._clients: set[_Client] = set()
        self._is_closed = False
        self._log = structlog.get_logger("hpad.serve")

    def __len__(self) -> int:
        return len(self._clients)

    def close(self) -> None:
        """Ends all streams, and refuses new ones."""
        self._is_closed = True
        self._end_all()

    async def answer(self, request: web.Request, asked: Mapping[str, Any]) -> web.StreamResponse:
        """Sends events until the client leaves. `asked` are the filters. Raises HTTPServiceUnavailable."""
        if self._is_closed or len(self._clients) >= MOST_CLIENTS:
            text = f"{MOST_CLIENTS} clients follow the decisions already, which is the most"
            raise web.HTTPServiceUnavailable(
                text="hpad is stopping" if self._is_closed else text, headers={"Retry-After": str(RETRY_SECONDS)}
            )
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        if request.method == "HEAD":
            return response
        connection = cast(limits.Connection, request.protocol)
        client = _Client(lambda summary: _is_wanted(summary, asked), connection.abort)
        timer = asyncio.get_running_loop().call_later(self.longest, client.end)
        self._add(client)
        try:
            await self._send(request, response, client)
        except (ConnectionError, TimeoutError):
            connection.abort()
        finally:
            timer.cancel()
            self._remove(client)
        return response

    async def _send(self, request: web.Request, response: web.StreamResponse, client: _Client) -> None:
        """Raises TimeoutError if the client does not read, and ConnectionError if it has left."""
        async with asyncio.timeout(self.patience):
            await response.prepare(request)
            await response.write(b"retry: %d\n\n" % (RETRY_SECONDS * 1000))
        while events := await client.next(self.keep_alive):
            async with asyncio.timeout(self.patience):
                await response.write(events)
        async with asyncio.timeout(self.patience):
            await response.write_eof()

    def _add(self, client: _Client) -> None:
        self._clients.add(client)
        # Before the client gets the first byte, so that it misses no later decision.
        self._decisions.subscribe(self._decided)

    def _remove(self, client: _Client) -> None:
        self._clients.discard(client)
        if not self._clients:
            self._decisions.unsubscribe(self._decided)

    def _decided(self, key: Key) -> None:
        asyncio.get_running_loop().call_soon(self._publish, key)  # the reconcile goes on meanwhile

    def _publish(self, key: Key) -> None:
        """Sends a decision to the clients. After a bug their streams end, and they reconnect."""
        try:
            summary = self._summarize(key)
            clients = [] if summary is None else [client for client in self._clients if client.wants(summary)]
            if summary is not None and clients:
                event = b"event: decision\ndata: %b\n\n" % self._encode(summary)
                for client in clients:
                    client.put(event)
        except Exception:  # noqa: BLE001  # a callback of the event loop
            self._log.exception("bug: unexpected exception while decisions are sent")
            self._end_all()

    def _end_all(self) -> None:
        for client in self._clients:
            client.end()


def _is_wanted(summary: Summary, asked: Mapping[str, Any]) -> bool:
    if asked["name"] and summary.name != asked["name"]:
        return False
    return matches(key_of(summary.namespace, summary.name, summary.kind), summary.target.name, asked)
