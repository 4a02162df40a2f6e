"""How hpad speaks: one line an event, as text for a terminal or JSON for everything else, written as bytes."""

import io
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import msgspec
import structlog

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_PRIORITIES = {"debug": b"<7>", "info": b"<6>", "warning": b"<4>", "error": b"<3>"}


def configure(level: str, form: str, environ: Mapping[str, str] = os.environ) -> None:
    """Set up structlog for the process. `form` is text, json or auto: text on a terminal, json otherwise.

    Where systemd's journal reads standard error, each line begins with its priority.
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
            *([_harmless_event] if text else []),
            *([] if text else [structlog.processors.format_exc_info]),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([renderer] if renderer is not None else [_as_json]),
            _with_priority if journal else _as_bytes,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=False,
    )


def _traceback(out: TextIO, raised: Any) -> None:
    """The plain one: others print the local variables, and so, one day, a secret."""
    held = io.StringIO()
    structlog.dev.plain_traceback(held, raised)
    out.write(_harmless(held.getvalue()))


def _harmless_event(_logger: Any, _method: str, event: Any) -> Any:
    """What goes to a terminal moves no cursor and begins no line of its own; other values are quoted anyway."""
    return {**event, "event": _harmless(str(event["event"])).replace("\n", "\\n")}


def _harmless(text: str) -> str:
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _as_json(_logger: Any, _method: str, event: Any) -> bytes:
    ordered = {"timestamp": event.pop("timestamp"), "level": event.pop("level"), "event": event.pop("event"), **event}
    return msgspec.json.encode(ordered, enc_hook=str)


def _as_bytes(_logger: Any, _method: str, line: Any) -> bytes:
    return line if isinstance(line, bytes) else str(line).encode()


def _with_priority(logger: Any, method: str, line: Any) -> bytes:
    return _PRIORITIES.get(method, b"<6>") + _as_bytes(logger, method, line)
