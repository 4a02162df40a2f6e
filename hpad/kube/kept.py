"""Writes to an API server, over connections of HTTP/1.1 that are kept.

Nearly every reconcile writes a status. Here that takes half of the CPU that a request by aiohttp takes.
httptools parses the answers; reads, streams and proxies are aiohttp's (`hpad/kube/session.py`).
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from hpad.kube import errors
from hpad.kube.connection import KeptConnection, Unanswered
from hpad.kube.connector import Connector
from hpad.kube.exchange import KEEP_ALIVE_S, Failed, HttpAnswer, HttpRequest

_ENDS_LINE: Final = re.compile(r"[\r\n\0]").search


class KeptConnections:
    """Sends requests with a body to one server. A connection carries one at a time, and is used again.

    `base` is the URL of the server, escaped; `headers` are those of all requests; an answer may have `largest` bytes.
    """

    def __init__(self, connector: Connector, base: str, headers: Mapping[str, str], largest: int) -> None:
        parts = urlsplit(base)
        self._connector = connector
        self._server = connector.server
        self._path = parts.path
        self._headers = _lines({"Host": parts.netloc, **headers})
        self._last: tuple[Mapping[str, str], str] = {}, ""
        """The headers of the last request, and as they are sent."""
        self._largest = largest
        self._idle: list[KeptConnection] = []
        """In the order of their last use."""
        self._busy: set[KeptConnection] = set()
        self._closed = False

    async def send(self, request: HttpRequest, ends: float) -> HttpAnswer:
        """Returns the answer, with any status. Raises Failed, at the latest at `ends`, a time of the event loop.

        Nothing of the request is sent after that. A PUT, which does the same twice as once, is sent again over a new
        connection if the first one ends before the answer begins.
        """
        message = self._message(request, request.body or b"")
        try:
            return await self._exchanged(self._kept() or await self._connected(ends), message, ends)
        except Unanswered:
            if self._closed or request.method != "PUT":
                raise
        return await self._exchanged(await self._connected(ends), message, ends)

    def _message(self, request: HttpRequest, body: bytes) -> bytes:
        if request.headers is not self._last[0]:  # seldom: they change with the credentials
            self._last = request.headers, _lines(request.headers)
        head = f"{request.method} {self._path}{request.target} HTTP/1.1\r\n{self._headers}{self._last[1]}"
        return b"%bContent-Length: %d\r\n\r\n%b" % (head.encode(), len(body), body)

    def close(self) -> None:
        """Closes all connections; what is in progress fails."""
        self._closed = True
        for connection in (*self._idle, *self._busy):
            connection.abort()
        self._idle.clear()

    def _kept(self) -> KeptConnection | None:
        """Returns the connection that was used last, if one can be used again."""
        oldest = asyncio.get_running_loop().time() - KEEP_ALIVE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.used_at > oldest:
                return connection
            connection.abort()
        return None

    async def _connected(self, ends: float) -> KeptConnection:
        """Opens a connection. Raises Failed."""
        return await self._connector.connect(lambda: KeptConnection(self._server, self._largest), ends)

    async def _exchanged(self, connection: KeptConnection, message: bytes, ends: float) -> HttpAnswer:
        if self._closed:
            connection.abort()
            raise Failed(*errors.explained(self._server, aiohttp.ServerDisconnectedError()))
        self._busy.add(connection)
        try:
            answer = await connection.exchange(message, ends)
        finally:
            self._busy.remove(connection)
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.abort()
        return answer


def _lines(headers: Mapping[str, str]) -> str:
    """Returns the headers as they are sent. Raises ValueError for a value that would begin another one."""
    for name, value in headers.items():
        if _ENDS_LINE(value):
            raise ValueError(f"the value of the header {name} contains a line break or a zero byte")
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
