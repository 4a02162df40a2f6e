"""A Context as the daemon makes one."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hpad import clock as clocks
from hpad.adapter import ApiReader, Context
from hpad.sources import plugins


@asynccontextmanager
async def context(
    name: str, *, api: ApiReader | None = None, clock: clocks.Clock | None = None
) -> AsyncIterator[Context]:
    """The capabilities of a source of that name; its HTTP session is closed at the end."""
    made = plugins.Contexts(clock or clocks.SystemClock(), api=api)(name, name)
    try:
        yield made
    finally:
        await made.http.close()
