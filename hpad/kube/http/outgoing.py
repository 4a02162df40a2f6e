"""What an HTTP/2 connection sends, as far as the server has given credit for it (RFC 9113, section 5.2)."""

import asyncio
from collections import deque
from collections.abc import Iterable

from hpad.kube.http import frames
from hpad.kube.http.inflight import Exchange


class Outgoing:
    """Sends the frames of one pass of the event loop in one write; bodies wait for credit, headers do not.

    `transport` is set before anything is sent. `largest` is the size of the largest frame that the server takes.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.transport: asyncio.Transport
        self.largest = frames.DEFAULT_FRAME
        self._loop = loop
        self._window = self._initial = frames.DEFAULT_WINDOW
        self._blocked: deque[Exchange] = deque()
        """Those with a body that waits for credit."""
        self._frames: list[bytes] = []

    def request(self, exchange: Exchange, head: bytes, body: bytes | None) -> None:
        """Sends a request, or what the server takes of it now."""
        exchange.window = self._initial
        stream, size = exchange.stream, self.largest
        ending = 0 if body else frames.END_STREAM
        if len(head) <= size:
            self.write(frames.frame(frames.HEADERS, frames.END_HEADERS | ending, stream, head))
        else:
            self.write(frames.frame(frames.HEADERS, ending, stream, head[:size]))
            for at in range(size, len(head), size):
                last = frames.END_HEADERS if at + size >= len(head) else 0
                self.write(frames.frame(frames.CONTINUATION, last, stream, head[at : at + size]))
        if not body:
            return
        length = len(body)
        if length <= size and length <= self._window and length <= exchange.window and not self._blocked:
            self._window -= length
            exchange.window -= length
            self.write(frames.frame(frames.DATA, frames.END_STREAM, stream, body))
        else:
            exchange.unsent = body
            self._blocked.append(exchange)
            self.unblock()

    def write(self, data: bytes) -> None:
        """Sends frames at the end of this pass of the event loop."""
        if not self._frames:
            self._loop.call_soon(self.flush)
        self._frames.append(data)

    def flush(self) -> None:
        """Sends the frames now; none on a connection that is being closed."""
        if self._frames and not self.transport.is_closing():
            self.transport.write(b"".join(self._frames))
        self._frames.clear()

    def credit(self, exchange: Exchange | None, more: int, *, whole: bool) -> None:
        """Adds to the window of the whole connection, or of an exchange unless it has ended. Raises MalformedError."""
        window = 0
        if whole:
            window = self._window = self._window + more
        elif exchange is not None:
            window = exchange.window = exchange.window + more
        if not more or window > frames.LARGEST_WINDOW:
            raise frames.MalformedError("a WINDOW_UPDATE frame with an impossible window")
        self.unblock()

    def resize(self, initial: int, exchanges: Iterable[Exchange]) -> None:
        """Changes the window of all exchanges, which may become negative (RFC 9113, section 6.9.2).

        Raises MalformedError.
        """
        for exchange in exchanges:
            exchange.window += initial - self._initial
            if exchange.window > frames.LARGEST_WINDOW:
                raise frames.MalformedError("a SETTINGS frame with an impossible window")
        self._initial = initial

    def unblock(self) -> None:
        """Sends what there is credit for, of each body that waits."""
        for _ in range(len(self._blocked)):
            exchange = self._blocked.popleft()
            if exchange.waiter.done():  # the server has answered, or it was given up
                continue
            while exchange.unsent:
                size = min(len(exchange.unsent), self.largest, self._window, exchange.window)
                if size <= 0:
                    self._blocked.append(exchange)
                    break
                part, exchange.unsent = exchange.unsent[:size], exchange.unsent[size:]
                self._window -= size
                exchange.window -= size
                flags = 0 if exchange.unsent else frames.END_STREAM
                self.write(frames.frame(frames.DATA, flags, exchange.stream, part))
