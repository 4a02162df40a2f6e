"""Writes log lines from a background thread, so that logging never blocks the event loop.

A full pipe, or a journal that hangs, blocks its writer. Here the writer is a thread that does nothing else; lines it
has not written wait in a bounded buffer.
"""

import os
import queue
import select
import threading
from collections.abc import Callable, Iterator
from typing import Self

BUFFER_BYTES = 4 << 20
"""The size of the buffer in bytes, enough for about 10,000 lines."""
PATIENCE_SECONDS = 2.0
"""Together with `app.STOP_SECONDS` less than the 20 s after which systemd kills the process."""
_MAX_WRITE = select.PIPE_BUF
"""A pipe takes this many bytes atomically, so that output of other processes cannot split a line (pipe(7))."""


class Writer:
    """A context manager that owns a file descriptor. On exit it waits up to `patience` seconds for unwritten lines.

    Lines keep their order. The buffer has `capacity` bytes; the last quarter is reserved for urgent lines. Lines
    that do not fit or cannot be written are dropped and counted in `dropped`. `on_dropped` is called on the writer
    thread with the number of lines dropped since the previous call, once writes succeed and half of the buffer is free.

    A fatal signal loses the lines in the buffer.
    """

    def __init__(
        self,
        descriptor: int,
        on_dropped: Callable[[int], None],
        *,
        capacity: int = BUFFER_BYTES,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.dropped = 0
        self._descriptor = descriptor
        self._on_dropped = on_dropped
        self._capacity = capacity
        self._patience = patience
        self._reported = 0
        self._waiting = 0
        self._ended = False
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # A finalizer that logs may interrupt any line here. Both the queue and the lock are reentrant.
        self._lock = threading.RLock()
        self._thread = threading.Thread(target=self._run, name="log writer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._ended = True
            self._lines.put(None)
        self._thread.join(self._patience)
        if self._thread.is_alive():
            self._give_up()

    def write(self, line: bytes, *, urgent: bool = False) -> None:
        """Queues a line, which ends with a line break. Callable from any thread; does not block.

        If the writer thread is not running, before `with`, after it or after a bug, the line is written directly. So is
        a line that `on_dropped` logs during the exit.
        """
        if not self._thread.is_alive() or (self._ended and threading.current_thread() is self._thread):
            self._deliver(line)
            return
        with self._lock:
            capacity = self._capacity if urgent else self._capacity * 3 // 4
            if self._ended or self._waiting + len(line) > capacity:
                self.dropped += 1
            else:
                self._waiting += len(line)
                self._lines.put(line)

    def _run(self) -> None:
        for lines in self._groups():
            written = self._deliver(b"".join(lines))
            with self._lock:
                self._waiting -= sum(map(len, lines))
                if not written:
                    self.dropped += len(lines)
                lost = self.dropped - self._reported
            if lost and written and self._waiting <= self._capacity // 2:
                self._reported += lost
                self._on_dropped(lost)

    def _groups(self) -> Iterator[list[bytes]]:
        """Yields waiting lines in order, in groups of at most _MAX_WRITE bytes or one line. Blocks for more."""
        group: list[bytes] = []
        while True:
            try:
                line = self._lines.get(block=not group)
            except queue.Empty:
                line = b""
            if group and (not line or sum(map(len, group)) + len(line) > _MAX_WRITE):
                yield group
                group = []
            if line is None:
                return
            group += [line] if line else []

    def _deliver(self, lines: bytes) -> bool:
        """Writes the lines, and returns whether it succeeded. Blocks until the reader takes them."""
        remaining = memoryview(lines)
        while remaining:
            try:
                remaining = remaining[os.write(self._descriptor, remaining) :]
            except BlockingIOError:  # another process made the shared file non-blocking
                _wait_for(self._descriptor)
            except OSError:
                return False
        return True

    def _give_up(self) -> None:
        """Points the descriptor to /dev/null: the reader is stuck, and would block later writes as well."""
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self._descriptor)
        os.close(null)


def _wait_for(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll()
