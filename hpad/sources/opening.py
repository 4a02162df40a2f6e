"""Opens one metric source: imports and builds its adapter, with a context, limits and settings."""

import asyncio
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from hpad import settings
from hpad.adapter import Adapter, AdapterError, Context
from hpad.files import Stamps, stamps
from hpad.sources import limits, plugins
from hpad.sources.call import BLOCKING_SECONDS
from hpad.sources.limits import BROKEN, SourceReport
from hpad.sources.offers import Offer
from hpad.sources.redact import Redactor
from hpad.sources.source import Observer, QueriedSource

_NOT_BUILT: Final[dict[str, Any]] = {
    "match": (),
    "namespaces": (),
    "queries": settings.OpenedQueries(),
    "fallback": None,
    "origin": "",
}
"""Fields of a source's settings that its adapter is not built of: they take effect in the one that is open."""


class OpenedSource(msgspec.Struct, frozen=True):
    """A source after start(): it works (`source` and `context`), or it could not be set up (`error`).

    `files` are those whose content its adapter keeps, as they were before they were read.
    """

    offer: Offer
    source: QueriedSource | None = None
    context: Context | None = None
    error: AdapterError | None = None
    files: Stamps = {}

    @property
    def settings(self) -> settings.SourceSettings:
        return self.offer.settings

    def report(self) -> SourceReport:
        name, adapter = self.settings.name, self.settings.adapter
        if self.source is not None:
            return self.source.report(adapter)
        why = None if self.error is None else self.error.message
        return SourceReport(name=name, adapter=adapter, state=BROKEN, last_error=why)


async def serves(opened: OpenedSource, source: settings.SourceSettings) -> bool:
    """Returns whether a source works, and would be built of these settings and of the present files in the same way."""
    if opened.source is None or replace(opened.settings, **_NOT_BUILT) != replace(source, **_NOT_BUILT):
        return False
    return not opened.files or await asyncio.to_thread(stamps, opened.files) == opened.files


async def open_source(
    source: settings.SourceSettings, contexts: plugins.Contexts, observer: Observer, *, period: float, implicit: bool
) -> OpenedSource:
    """Imports and builds the adapter of a source. Never fails: a source that cannot be built has the reason."""
    offer = Offer(settings=source, implicit=implicit)
    redactor = Redactor(source.settings)
    try:
        adapter = await plugins.load(source.adapter)
    except AdapterError as error:
        return _broken(offer, redactor, f'source "{source.name}": {error.message}', error.blame)
    redactor.mark(source.settings, adapter.Settings)
    calls = limits.of(source, period)
    context = replace(redactor.guarded(contexts(source.name, source.adapter)), timeout=calls.timeout)
    try:
        offer = replace(offer, serves=adapter.serves, metrics=plugins.offered(source.name, adapter))
        with redactor.active():
            built = _built(source, adapter, context)
        offered, parameters = plugins.offered(source.name, built), plugins.parameters(source.name, built)
        schema = plugins.query_schema(source, adapter)
        offer = replace(offer, metrics=offered, parameters=parameters, query_schema=schema)
        kept = await asyncio.to_thread(stamps, plugins.kept_files(source.name, built))
    except BaseException as error:  # also a cancellation: nobody else knows the session yet
        await context.http.close()
        if not isinstance(error, AdapterError):
            raise
        return _broken(offer, redactor, error.message, error.blame)
    working = QueriedSource(
        source.name,
        built,
        clock=context.clock,
        log=context.log,
        observer=observer,
        limits=calls,
        redact=redactor,
        plain=offer.implicit,
    )
    try:
        with redactor.active():
            await plugins.prepare(source, built, context)
    except BaseException as error:
        await working.aclose()
        await context.http.close()
        if not isinstance(error, AdapterError):
            raise
        return replace(_broken(offer, redactor, error.message, error.blame), files=kept)
    return OpenedSource(offer, working, context, files=kept)


def _built(source: settings.SourceSettings, adapter: type[Adapter], context: Context) -> Adapter:
    """Builds the adapter; logs an error if that blocks the event loop."""
    began = context.clock.monotonic()
    built = plugins.instance(source, adapter, context)
    seconds = context.clock.monotonic() - began
    if seconds >= BLOCKING_SECONDS:
        context.log.error("setting up the source blocked the event loop", source=source.name, seconds=round(seconds, 1))
    return built


def _broken(offer: Offer, redactor: Redactor, text: str, blame: str) -> OpenedSource:
    message = redactor(text)
    return OpenedSource(replace(offer, problem=message), error=AdapterError(message, blame))
