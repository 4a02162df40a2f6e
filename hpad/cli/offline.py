"""Builds metric sources outside the daemon, for `hpad sources` and `hpad doctor`."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hpad.adapter import Adapter, AdapterError, Log
from hpad.cli.output import Failure
from hpad.clock import SystemClock
from hpad.kube import client, cluster
from hpad.kube.auth import kubeconfig
from hpad.kube.auth.credentials import ConfigError
from hpad.settings import Settings, SourceSettings
from hpad.sources import manager, plugins, redact
from hpad.sources.redact import Redactor


@asynccontextmanager
async def contexts(settings: Settings, args: argparse.Namespace) -> AsyncIterator[plugins.Contexts]:
    """Connects to the API server of the kubeconfig, and yields the contexts for adapters.

    Without any kubeconfig, adapters get no API server. Raises Failure if one that is named is unusable.
    """
    clock, api = SystemClock(), None
    path, context = args.kubeconfig or settings.kubeconfig, args.context or settings.context
    try:
        api = client.Client(await asyncio.to_thread(kubeconfig.load_cluster_config, path, context), clock)
    except ConfigError as error:
        if path is not None or context is not None:
            raise Failure(str(error)) from None
    if api is None:
        yield plugins.Contexts(clock)
        return
    async with api:
        yield plugins.Contexts(clock, api=cluster.ApiReads(api))


@asynccontextmanager
async def gatherer(settings: Settings, make: plugins.Contexts) -> AsyncIterator[manager.Gatherer]:
    """Builds all sources, with their routes, limits and caches, as the daemon does."""
    period = settings.sync_period.total_seconds()
    built = manager.Gatherer(settings.sources, settings.routes, contexts=make, period=period)
    await built.start()
    try:
        yield built
    finally:
        await built.aclose()


@asynccontextmanager
async def adapter(source: SourceSettings, make: plugins.Contexts) -> AsyncIterator[tuple[Adapter, Redactor]]:
    """Builds the adapter of one source, closes it at the end, and yields it with what removes the source's secrets.

    Raises AdapterError if it cannot be built or closed. Removes the source's secrets from an AdapterError that the
    block raises.
    """
    redactor = Redactor(source.settings)
    try:
        loaded = await plugins.load(source.adapter)
        redactor.mark(source.settings, loaded.Settings)
        context = redactor.guarded(make(source.name, source.adapter))
        try:
            with redactor.active():
                built = plugins.instance(source, loaded, context)
                await plugins.prepare(source, built, context)
                yield built, redactor
                await _close(source, built, context.log)
        finally:
            await context.http.close()
    except AdapterError as error:
        raise AdapterError(redactor(error.message), error.blame) from None


async def _close(source: SourceSettings, adapter: Adapter, log: Log) -> None:
    try:
        await adapter.aclose()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code; the error's text may hold a secret
        log.error("the adapter failed to close", source=source.name, **redact.exception_fields(error))
        redact.log_traceback(log, source.name, error)
        text = f'source "{source.name}" could not be closed: its adapter raised an exception, a bug of its adapter'
        raise AdapterError(text, "bug") from None
