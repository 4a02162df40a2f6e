"""Logging: one line per event, as text for a terminal and as JSON otherwise, written as bytes.

Commands write each line at once. The daemon writes from a background thread (`background_writer`), so that logging
never blocks the event loop: a full pipe, or a journal that hangs, blocks its writer. Lines that the thread has not
written wait in a bounded buffer. Records of the standard library's logging, which libraries use, become lines like all
others; a record that repeats is logged once per AGAIN_SECONDS.
"""

import io
import logging
import os
import queue
import re
import select
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Self, TextIO

import msgspec
import structlog

from hpad.api.text import harmless, harmless_lines, shown
from hpad.clock import SystemClock
from hpad.telemetry.episode import AGAIN_SECONDS

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


_MAX_KINDS: Final = 256
_Kind = tuple[str, int, str, str]
"""Logger, level, the first line of the message template, and the exception type."""


class Handler(logging.Handler):
    """Passes records of the standard library's logging to structlog, whose level applies too.

    A record of a kind that was logged less than AGAIN_SECONDS ago is only counted; the next one logged has the count as
    `times`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._clock = SystemClock()
        self._logged: OrderedDict[_Kind, tuple[float, int]] = OrderedDict()

    def emit(self, record: logging.LogRecord) -> None:
        times = self._times(_kind(record))
        if not times:
            return
        log = structlog.get_logger(record.name)
        level = next((name for name, number in reversed(_LEVELS.items()) if record.levelno >= number), "debug")
        count = {"times": times} if times > 1 else {}
        getattr(log, level)(record.getMessage(), logger=record.name, exc_info=record.exc_info, **count)

    def _times(self, kind: _Kind) -> int:
        """Returns the number of records since the last one logged, or 0 to skip this one. Called under a lock."""
        now = self._clock.monotonic()
        logged, skipped = self._logged.pop(kind, (now - AGAIN_SECONDS, 0))
        skip = now - logged < AGAIN_SECONDS
        self._logged[kind] = (logged, skipped + 1) if skip else (now, 0)
        if len(self._logged) > _MAX_KINDS:
            self._logged.popitem(last=False)
        return 0 if skip else skipped + 1


def _kind(record: logging.LogRecord) -> _Kind:
    raised = record.exc_info[0] if record.exc_info else None
    exception = raised.__name__ if raised is not None else ""
    return record.name, record.levelno, str(record.msg).partition("\n")[0], exception


_STANDARD_ERROR = 2
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_OWN = frozenset({"event", "level", "timestamp", "logger", "exc_info", "exception", "stack", "stack_info"})
_UNQUOTED = re.compile(r"[^\s'\"=\x00-\x1f\x7f]+")
_PRIORITIES = {"debug": b"<7>", "info": b"<6>", "warning": b"<4>", "error": b"<3>"}


def background_writer(descriptor: int = _STANDARD_ERROR) -> Writer:
    """Returns a context manager that writes lines from a thread, and logs how many it had to drop."""
    return Writer(descriptor, _log_dropped)


def configure(level: str, form: str, environ: Mapping[str, str] = os.environ, *, writer: Writer | None = None) -> None:
    """Configures structlog for the process. `form` is text, json or auto: text on a terminal, json otherwise.

    Lines go through `writer`, else directly to standard error. If systemd's journal reads it, each line begins with its
    priority (sd-daemon(3)). Further calls change the level and the form; they need the same writer.
    """
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    journal = bool(environ.get("JOURNAL_STREAM")) and not sys.stderr.isatty()
    renderer = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=_traceback) if text else None
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *([] if text else [structlog.processors.format_exc_info]),
            _harmless_values,
            *([_in_one_line] if text else []),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([renderer] if renderer is not None else [_as_json]),
            _with_priority if journal else _as_bytes,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer) if writer is None else _WriterLogger(writer),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(handlers=[Handler()])


class _WriterLogger:
    """A structlog logger that passes lines to the writer, and the factory that returns it."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __call__(self, *_: object) -> "_WriterLogger":
        return self

    def info(self, line: bytes) -> None:
        self._writer.write(line + b"\n")

    def error(self, line: bytes) -> None:
        self._writer.write(line + b"\n", urgent=True)

    debug = info
    warning = critical = error


def _log_dropped(lines: int) -> None:
    structlog.get_logger("hpad.daemon.logs").error("log lines dropped: the reader was too slow", lines=lines)


def _traceback(out: TextIO, raised: Any) -> None:
    """Writes a traceback without local variables, which may be secrets."""
    text = io.StringIO()
    structlog.dev.plain_traceback(text, raised)
    out.write(harmless_lines(text.getvalue()))


def _harmless_values(_logger: Any, _method: str, event: Any) -> Any:
    """Escapes control characters in values, which may come from others, except line breaks, which each form escapes."""
    return {harmless(str(name)): value if name == "exc_info" else _harmless(value) for name, value in event.items()}


def _harmless(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {_harmless(str(name)): _harmless(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_harmless(each) for each in value]
    return harmless_lines(str(value))


def _in_one_line(_logger: Any, _method: str, event: Any) -> Any:
    """Escapes line breaks in the text form, and leaves out fields that are None."""
    fields = {
        name: _Readable(value if isinstance(value, str) and _UNQUOTED.fullmatch(value) else shown(value))
        for name, value in event.items()
        if name not in _OWN and value is not None
    }
    own = {name: value for name, value in event.items() if name in _OWN}
    return {**own, "event": harmless(str(event["event"])), **fields}


class _Readable(str):
    """A text that structlog's renderer writes unchanged, although it uses the `repr` of texts with spaces."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _as_json(_logger: Any, _method: str, event: Any) -> bytes:
    ordered = {"timestamp": event.pop("timestamp"), "level": event.pop("level"), "event": event.pop("event"), **event}
    try:
        return msgspec.json.encode(ordered, enc_hook=str)
    except (ValueError, TypeError, RecursionError):  # for example a text that is not valid UTF-8
        return msgspec.json.encode({_as_utf8(name): _as_utf8(value) for name, value in ordered.items()})


def _as_utf8(value: Any) -> str:
    """Returns the value as text; characters outside UTF-8, such as bytes of a file name, are escaped."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def _as_bytes(_logger: Any, _method: str, line: Any) -> bytes:
    return line if isinstance(line, bytes) else _as_utf8(line).encode()


def _with_priority(logger: Any, method: str, line: Any) -> bytes:
    return _PRIORITIES.get(method, b"<6>") + _as_bytes(logger, method, line)
