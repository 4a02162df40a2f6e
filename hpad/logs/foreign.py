"""What libraries log by the standard library's ways: it becomes lines like all others.

Left alone, the standard library writes it to standard error by itself, and waits for its reader. A library that logs
the same with each attempt of an outage is heard once in a while.
"""

import logging
from collections import OrderedDict
from typing import Final

import structlog

from hpad.clock import SystemClock
from hpad.logs.episode import AGAIN_SECONDS

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
