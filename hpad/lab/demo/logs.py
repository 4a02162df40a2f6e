"""hpad's log lines go to a file during the demo: the terminal belongs to the table."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import structlog


@contextlib.asynccontextmanager
async def into(path: Path) -> AsyncIterator[None]:
    """Log lines of hpad and of the libraries go to the file while the context is open."""
    stream = await asyncio.to_thread(path.open, "a", encoding="utf-8")
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    held, root.handlers = root.handlers, [handler]
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.WriteLoggerFactory(stream),
    )
    try:
        yield
    finally:
        structlog.reset_defaults()
        root.handlers = held
        await asyncio.to_thread(stream.close)
