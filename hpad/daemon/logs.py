"""How hpad speaks: one line an event, as text for a terminal or JSON for everything else, written as bytes.

Commands write a line as it is said. The daemon has a thread for it (`aside`), so that it never waits for a reader.

What libraries log by the standard library's ways: it becomes lines like all others.

Left alone, the standard library writes it to standard error by itself, and waits for its reader. A library that logs
the same with each attempt of an outage is heard once in a while.

Stacks are told with the source of their lines. Python keeps every file that it has read a line of (`linecache`), for
good: a few stacks take megabytes, and nobody looks at them a second time.
"""

import io
import linecache
import logging
import os
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TextIO

import msgspec
import structlog

from hpad.api.text import harmless, harmless_lines, shown
from hpad.clock import SystemClock
from hpad.daemon.log_writer import Writer
from hpad.telemetry.episode import AGAIN_SECONDS

_MOST_KNOWN: Final = 256
_Sort = tuple[str, int, str, str]
"""Logger, level, the first line of the message before its arguments are filled in, and the kind of exception."""


class Handler(logging.Handler):
    """Passes each record on; structlog's level counts, too. One of a sort that was said less than AGAIN_SECONDS ago is
    counted, and told with the next one that is said (`times`)."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = SystemClock()
        self._said: OrderedDict[_Sort, tuple[float, int]] = OrderedDict()

    def emit(self, record: logging.LogRecord) -> None:
        times = self._times(_sort(record))
        if not times:
            return
        log = structlog.get_logger(record.name)
        say = log.error if record.levelno >= logging.ERROR else log.warning
        if record.levelno < logging.WARNING:
            say = log.info if record.levelno >= logging.INFO else log.debug
        again = {"times": times} if times > 1 else {}
        say(record.getMessage(), logger=record.name, exc_info=record.exc_info, **again)

    def _times(self, sort: _Sort) -> int:
        """How often it was logged since it was said last, if it is to be said now, else 0. Called under a lock."""
        now = self._clock.monotonic()
        said, missed = self._said.pop(sort, (now - AGAIN_SECONDS, 0))
        silent = now - said < AGAIN_SECONDS
        self._said[sort] = (said, missed + 1) if silent else (now, 0)
        if len(self._said) > _MOST_KNOWN:
            self._said.popitem(last=False)
        return 0 if silent else missed + 1


def _sort(record: logging.LogRecord) -> _Sort:
    raised = record.exc_info[0] if record.exc_info else None
    kind = raised.__name__ if raised is not None else ""
    return record.name, record.levelno, str(record.msg).partition("\n")[0], kind


def take() -> None:
    """From now on, unless somebody else takes them already; warnings and what is worse, as the standard library has it
    where nobody says otherwise."""
    logging.basicConfig(handlers=[Handler()])


# One at a time: whoever reads lines while the files are let go of would stumble. Whatever is formatted may be
# interrupted by a finalizer that logs, too: that one leaves them to the other.
_lock = threading.RLock()
_readers = 0


@contextmanager
def lent() -> Iterator[None]:
    """Format stacks and tracebacks in here: what was read for them is let go of."""
    global _readers
    with _lock:
        _readers += 1
        try:
            yield
        finally:
            _readers -= 1
            if not _readers:
                linecache.clearcache()


_STANDARD_ERROR = 2
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_OWN = frozenset({"event", "level", "timestamp", "logger", "exc_info", "exception", "stack", "stack_info"})
_BARE = re.compile(r"[^\s'\"=\x00-\x1f\x7f]+")
_PRIORITIES = {"debug": b"<7>", "info": b"<6>", "warning": b"<4>", "error": b"<3>"}


def aside(descriptor: int = _STANDARD_ERROR) -> Writer:
    """A thread that writes to standard error, to be entered; what it had to drop it says, once it can."""
    return Writer(descriptor, _say_dropped)


def configure(level: str, form: str, environ: Mapping[str, str] = os.environ, *, writer: Writer | None = None) -> None:
    """Set up structlog for the process. `form` is text, json or auto: text on a terminal, json otherwise.

    Lines go by way of `writer`, and without one straight to standard error. Where systemd's journal reads that, each
    line begins with its priority. May be called again, with the same writer.
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
            *([] if text else [_told_exception]),
            _harmless_values,
            *([_in_one_line] if text else []),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([renderer] if renderer is not None else [_as_json]),
            _with_priority if journal else _as_bytes,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer) if writer is None else _Aside(writer),
        cache_logger_on_first_use=False,
    )
    take()


class _Aside:
    """Both structlog's factory of loggers and the one logger that it makes: lines go to the writer."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __call__(self, *_: object) -> "_Aside":
        return self

    def info(self, line: bytes) -> None:
        self._writer.write(line + b"\n")

    def error(self, line: bytes) -> None:
        self._writer.write(line + b"\n", urgent=True)

    debug = info
    warning = critical = error


def _say_dropped(lines: int) -> None:
    structlog.get_logger("hpad.daemon.logs").error(
        "lines of this log were dropped: nobody read it fast enough", lines=lines
    )


def _told_exception(logger: Any, method: str, event: Any) -> Any:
    if "exc_info" not in event:
        return event
    with lent():
        return structlog.processors.format_exc_info(logger, method, event)


def _traceback(out: TextIO, raised: Any) -> None:
    """The plain one: others print the local variables, and so, one day, a secret."""
    held = io.StringIO()
    with lent():
        structlog.dev.plain_traceback(held, raised)
    out.write(harmless_lines(held.getvalue()))


def _harmless_values(_logger: Any, _method: str, event: Any) -> Any:
    """What others have said moves no cursor of the terminal that shows it, be it taken out of JSON before; line breaks
    are for each form to escape."""
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
    """For the text form: the event begins no line of its own; values are shown as people write them, unless unset."""
    told = {name: _worded(value) for name, value in event.items() if name not in _OWN and value is not None}
    own = {name: value for name, value in event.items() if name in _OWN}
    return {**own, "event": harmless(str(event["event"])), **told}


class _Worded(str):
    """A text that structlog's renderer writes as it is: of others with spaces it takes the `repr`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _worded(value: Any) -> str:
    return _Worded(value if isinstance(value, str) and _BARE.fullmatch(value) else shown(value))


def _as_json(_logger: Any, _method: str, event: Any) -> bytes:
    ordered = {"timestamp": event.pop("timestamp"), "level": event.pop("level"), "event": event.pop("event"), **event}
    try:
        return msgspec.json.encode(ordered, enc_hook=str)
    except (ValueError, TypeError, RecursionError):  # a text that is none in UTF-8, above all
        return msgspec.json.encode({_as_utf8(name): _as_utf8(value) for name, value in ordered.items()})


def _as_utf8(value: Any) -> str:
    """A text; what no UTF-8 can say, such as a byte of a file name, is escaped."""
    return str(value).encode("utf-8", "backslashreplace").decode()


def _as_bytes(_logger: Any, _method: str, line: Any) -> bytes:
    return line if isinstance(line, bytes) else _as_utf8(line).encode()


def _with_priority(logger: Any, method: str, line: Any) -> bytes:
    return _PRIORITIES.get(method, b"<6>") + _as_bytes(logger, method, line)
