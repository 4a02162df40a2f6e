"""How hpad speaks: one line an event, as text for a terminal or JSON for everything else, written as bytes.

Commands write a line as it is said. The daemon has a thread for it (`aside`), so that it never waits for a reader.
"""

import io
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import msgspec
import structlog

from hpad.api.text import harmless, harmless_lines, shown
from hpad.logs import foreign, sources
from hpad.logs.writer import Writer

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
    foreign.take()


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
    structlog.get_logger("hpad.logs").error("lines of this log were dropped: nobody read it fast enough", lines=lines)


def _told_exception(logger: Any, method: str, event: Any) -> Any:
    if "exc_info" not in event:
        return event
    with sources.lent():
        return structlog.processors.format_exc_info(logger, method, event)


def _traceback(out: TextIO, raised: Any) -> None:
    """The plain one: others print the local variables, and so, one day, a secret."""
    held = io.StringIO()
    with sources.lent():
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
