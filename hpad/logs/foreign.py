"""What libraries log by the standard library's ways: it becomes lines like all others.

Left alone, the standard library writes it to standard error by itself, and waits for whoever reads there.
"""

import logging

import structlog


class Handler(logging.Handler):
    """Passes each record on; structlog's level counts, too."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger(record.name)
        say = log.error if record.levelno >= logging.ERROR else log.warning
        if record.levelno < logging.WARNING:
            say = log.info if record.levelno >= logging.INFO else log.debug
        say(record.getMessage(), logger=record.name, exc_info=record.exc_info)


def take() -> None:
    """From now on, unless somebody else takes them already; warnings and what is worse, as the standard library has it
    where nobody says otherwise."""
    logging.basicConfig(handlers=[Handler()])
