"""Lines on their way to whoever reads them, taken there by a thread of their own: who logs never waits.

A pipe that nobody empties, or a journal that hangs, holds up whoever writes to it. Here that is a thread that does
nothing else; what it has not written yet is in memory, and memory has an end.
"""

import os
import queue
import select
import threading
from collections.abc import Callable, Iterator
from typing import Self

ROOM_BYTES = 4 << 20
"""Some ten thousand lines."""
PATIENCE_SECONDS = 2.0
"""With what a daemon takes to stop (`app.STOP_SECONDS`) this is less than the 20 s after which systemd kills."""
_AT_ONCE = select.PIPE_BUF
"""What a pipe takes in one piece, so that no word of another process lands in the midst of a line (pipe(7))."""


class Writer:
    """Owns a file descriptor from `with` on; afterwards all lines are written, or given up after `patience` seconds.

    Lines keep their order. They may wait in `room` bytes, the last quarter of which is for urgent ones; a line that
    finds none is dropped, as is one that cannot be written, and counted in `dropped`. `tell` is called, on the thread,
    with how many it were since it was called last, as soon as lines get through again and half of the room is free.

    What a fatal signal finds in memory is lost: that is no more than the thread has had no time for.
    """

    def __init__(
        self,
        descriptor: int,
        tell: Callable[[int], None],
        *,
        room: int = ROOM_BYTES,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        self.dropped = 0
        self._descriptor = descriptor
        self._tell = tell
        self._room = room
        self._patience = patience
        self._told = 0
        self._waiting = 0
        self._ended = False
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        # Whatever runs here may be interrupted by a finalizer that logs, too: both of these take that.
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
        """Have a line written, with its line break; any thread may, and none waits for it.

        Where the thread is not at work it is written at once: before, after (unless that has had to be given up), and
        should a bug have ended the thread; and so is what `tell` says while it comes to its end.
        """
        if not self._thread.is_alive() or (self._ended and threading.current_thread() is self._thread):
            self._deliver(line)
            return
        with self._lock:
            room = self._room if urgent else self._room * 3 // 4
            if self._ended or self._waiting + len(line) > room:
                self.dropped += 1
            else:
                self._waiting += len(line)
                self._lines.put(line)

    def _run(self) -> None:
        for lines in self._pieces():
            written = self._deliver(b"".join(lines))
            with self._lock:
                self._waiting -= sum(map(len, lines))
                if not written:
                    self.dropped += len(lines)
                lost = self.dropped - self._told
            if lost and written and self._waiting <= self._room // 2:
                self._told += lost
                self._tell(lost)

    def _pieces(self) -> Iterator[list[bytes]]:
        """What waits, in order, as much of it together as goes in one piece; waits for more."""
        held: list[bytes] = []
        while True:
            try:
                line = self._lines.get(block=not held)
            except queue.Empty:
                line = b""
            if held and (not line or sum(map(len, held)) + len(line) > _AT_ONCE):
                yield held
                held = []
            if line is None:
                return
            held += [line] if line else []

    def _deliver(self, lines: bytes) -> bool:
        """Whether it could be written; waits for the reader."""
        left = memoryview(lines)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # somebody who has the same file open wanted it so
                _wait_for(self._descriptor)
            except OSError:
                return False
        return True

    def _give_up(self) -> None:
        """The reader is stuck, and so would be whatever else says a last word: it goes nowhere instead."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._descriptor)
        os.close(nowhere)


def _wait_for(descriptor: int) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    poll.poll()
