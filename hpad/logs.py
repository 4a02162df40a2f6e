"""How hpad speaks: one line an event, as text for a terminal or JSON for everything else, written as bytes."""

import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_PRIORITIES = {"debug": b"<7>", "info": b"<6>", "warning": b"<4>", "error": b"<3>"}


def configure(level: str, form: str, environ: Mapping[str, str] = os.environ) -> None:
    """Set up structlog for the process. `form` is text, json or auto: text on a terminal, json otherwise.

    Where systemd's journal reads standard error, each line begins with its priority.
    """
    text = form == "text" or (form == "auto" and sys.stderr.isatty())
    journal = bool(environ.get("JOURNAL_STREAM")) and not sys.stderr.isatty()
    plain = structlog.dev.plain_traceback  # others print the local variables, and so, one day, a secret
    renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain) if text else None
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            *([] if text else [structlog.processors.format_exc_info]),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([renderer] if renderer is not None else [_as_json]),
            _with_priority if journal else _as_bytes,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=False,
    )


def _as_json(_logger: Any, _method: str, event: Any) -> bytes:
    ordered = {"timestamp": event.pop("timestamp"), "level": event.pop("level"), "event": event.pop("event"), **event}
    return msgspec.json.encode(ordered, enc_hook=str)


def _as_bytes(_logger: Any, _method: str, line: Any) -> bytes:
    return line if isinstance(line, bytes) else str(line).encode()


def _with_priority(logger: Any, method: str, line: Any) -> bytes:
    return _PRIORITIES.get(method, b"<6>") + _as_bytes(logger, method, line)
