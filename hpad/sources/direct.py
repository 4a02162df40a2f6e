"""One source on its own, for commands that want more of it than an HPA's answer."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec
import structlog

from hpad import settings
from hpad.adapter import Adapter, AdapterError, Answer, Asker, Log, Query
from hpad.sources import call, plugins, raised
from hpad.sources.redact import Redactor


@asynccontextmanager
async def opened(source: settings.SourceSettings, make: plugins.Contexts) -> AsyncIterator[Adapter]:
    """Build the source's adapter, and close it at the end.

    Raises AdapterError where it cannot be built or closed. An AdapterError of the block is raised without the
    source's secrets.
    """
    redact = Redactor(source.settings)
    try:
        adapter = await plugins.load(source.adapter)
        context = make(source.name, source.adapter)
        try:
            built = plugins.instance(source, adapter, context)
            yield built
            await _close(source, built, context.log)
        finally:
            await context.http.close()
    except AdapterError as error:
        raise AdapterError(redact(error.message), error.blame) from None


async def _close(source: settings.SourceSettings, adapter: Adapter, log: Log) -> None:
    try:
        await adapter.aclose()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others; the text of such an error may hold a secret
        log.error("the adapter failed to close", source=source.name, **raised.fields(error))
        raised.trace(log, source.name, error)
        said = f'source "{source.name}" could not be closed: its adapter raised an exception, a bug of its adapter'
        raise AdapterError(said, "bug") from None


def asked_by(adapter: Adapter, query: Query, asker: Asker | None) -> Query:
    """The query with the HPA that asks, where the adapter says that the answer depends on it."""
    personal: Any = getattr(adapter, "personal", None)
    if asker is None or personal is None or not personal(query):
        return query
    return msgspec.structs.replace(query, asker=asker)


async def explained(adapter: Adapter, query: Query) -> str | None:
    """What the adapter asks its source for the query; None where it does not tell. Raises AdapterError."""
    explain: Any = getattr(adapter, "explain", None)
    return None if explain is None else str(await explain(query))


async def history(
    source: settings.SourceSettings, adapter: Adapter, query: Query, times: Sequence[datetime]
) -> list[Answer] | None:
    """What the source would have answered at those times, errors without its secrets; None where it has no history.

    Raises AdapterError where it fails as a whole.
    """
    look: Any = getattr(adapter, "history", None)
    if look is None:
        return None
    redact, log = Redactor(source.settings), structlog.get_logger("hpad.source")
    try:
        found = list(await look(query, times))
    except AdapterError:
        raise
    except Exception as error:  # noqa: BLE001 - code of others; the text of such an error may hold a secret
        log.error("the adapter raised an exception", source=source.name, **raised.fields(error))
        what = "its adapter raised an exception, a bug of the adapter"
        raise AdapterError(f'source "{source.name}" has no history of "{query.name}": {what}', "bug") from None
    return [call.readable(source.name, answer, redact) for answer in found]
