"""The question of `hpad sources test` and `hpad sources history`: a source, a query and the HPA that asks.

Also builds a single source outside the daemon, with an API server if a kubeconfig is found.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import structlog

from hpad.adapter import (
    EXTERNAL,
    OBJECT,
    SOURCE_TYPES,
    Adapter,
    AdapterError,
    Answer,
    Asker,
    CrossVersionObjectReference,
    Log,
    Query,
)
from hpad.api import selector
from hpad.api import text as hints
from hpad.api.text import shown
from hpad.cli.output import Failure
from hpad.clock import Clock
from hpad.kube import client, cluster
from hpad.kube.auth import kubeconfig
from hpad.kube.auth.credentials import ConfigError
from hpad.settings import BUILT_IN_SOURCES, Settings, SourceSettings
from hpad.sources import call, manager, plugins, redact, routes
from hpad.sources.redact import Redactor


class Question(NamedTuple):
    """A query to a source, and the HPA that asks (None if --hpa is not given)."""

    source: SourceSettings
    query: Query
    asker: Asker | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for source, metric and HPA."""
    parser.add_argument("--config", dest="file", type=Path, metavar="FILE", help="settings in YAML (also HPAD_CONFIG)")
    parser.add_argument("name", metavar="SOURCE", help="name of the source")
    parser.add_argument("metric", metavar="METRIC", help="name of the metric")
    parser.add_argument(
        "--type", choices=SOURCE_TYPES, help="type of the metric (default: External if the adapter serves it)"
    )
    parser.add_argument("-n", "--namespace", default="default", help="namespace of the HPA (default: %(default)s)")
    parser.add_argument("--selector", metavar="LABELS", help="selector of the metric, such as queue=orders")
    parser.add_argument(
        "--pods", metavar="LABELS", default="", help="selector of the target's pods, such as app=web (default: all)"
    )
    parser.add_argument("--container", metavar="NAME", default="", help="container of a ContainerResource metric")
    parser.add_argument(
        "--object", metavar="KIND/NAME", help="object of an Object metric: Ingress/main or apps/v1/Deployment/web"
    )
    parser.add_argument(
        "--hpa", metavar="NAME", default="", help="name of the HPA, for queries that use its name or labels"
    )
    parser.add_argument(
        "--hpa-labels", metavar="LABELS", default="", help="labels of the HPA, such as team=a,tier=front"
    )
    parser.add_argument("--target", metavar="KIND/NAME", default="", help="target of the HPA, such as Deployment/web")
    parser.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig for sources that ask the API server")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")


async def read(settings: Settings, args: argparse.Namespace) -> Question:
    """Reads the question from the arguments; raises Failure if they are invalid."""
    source = _source(settings, args.name)
    return Question(source, await _query(source, args), _asker(args))


def check_route(gatherer: manager.Gatherer, question: Question) -> None:
    """Raises Failure if an HPA's query for the metric would go to another source, or to none."""
    source, query = question.source.name, question.query
    chosen: str | None = None
    reason = ""
    try:
        chosen = gatherer.source_of(query)
    except AdapterError as error:
        reason = error.message
    if chosen == source:
        return
    offers = {offer.source: offer for offer in gatherer.offers()}
    offer = offers[source]
    if offer.problem is not None:
        raise Failure(gatherer.problems()[source].message)
    if not offer.takes(query):
        has_other = chosen is not None and not offers[chosen].implicit
        elsewhere = f'; an HPA that names it gets it from source "{chosen}"' if has_other else ""
        raise Failure(f"{_unknown(offer, query)}{elsewhere}")
    if chosen is None:
        raise Failure(reason)
    raise Failure(
        f'an HPA that names {query.type} metric "{query.name}" gets it from source "{chosen}", which comes before '
        f'"{source}" in `routes` or `sources`: hpad sources test {chosen} {query.name}'
    )


def _unknown(offer: routes.Offer, query: Query) -> str:
    """The message that a source lacks the metric, with the nearest name and the metrics it has."""
    names = offer.names(query.type)
    text = f'source "{offer.source}" answers no {query.type} metric "{query.name}"'
    hint = hints.meant(query.name, (name for name in names if not _is_pattern(name)))
    if names:
        return f"{text}{hint}; it answers {', '.join(names)}"
    kinds = [f"{kind}: {', '.join(offer.names(kind))}" for kind in SOURCE_TYPES if offer.names(kind)]
    return f"{text}; it answers {'; '.join(kinds) or 'only metrics that a route or its `match` sends there'}"


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _source(settings: Settings, name: str) -> SourceSettings:
    found = next((source for source in settings.sources if source.name == name), None)
    if found is not None:
        return found
    if name in BUILT_IN_SOURCES:
        return SourceSettings(name=name, adapter=name)
    known = [*(source.name for source in settings.sources), *BUILT_IN_SOURCES]
    raise Failure(f"there is no source {shown(name)}{hints.meant(name, known)}; there are {', '.join(known)}")


async def _query(source: SourceSettings, args: argparse.Namespace) -> Query:
    kind = args.type or await _type(source)
    pods = args.pods if kind not in (OBJECT, EXTERNAL) else None
    if kind == OBJECT and not args.object:
        raise Failure("an Object metric needs its object: name it with --object KIND/NAME")
    try:
        return Query(
            type=kind,
            namespace=args.namespace,
            name=args.metric,
            container=args.container,
            pods=None if pods is None else selector.parse(pods),
            selector=None if args.selector is None else selector.parse(args.selector),
            object=_object(args.object) if kind == OBJECT else None,
        )
    except selector.SelectorError as error:
        raise Failure(f"--selector or --pods: {error}") from None


async def _type(source: SourceSettings) -> str:
    """External if the adapter serves it, else the first type that it serves."""
    try:
        serves = (await plugins.load(source.adapter)).serves
    except AdapterError:
        return EXTERNAL  # asking reports the error
    return EXTERNAL if EXTERNAL in serves else next(kind for kind in SOURCE_TYPES if kind in serves)


def _object(text: str) -> CrossVersionObjectReference:
    version_and_kind, slash, name = text.rpartition("/")
    version, _, kind = version_and_kind.rpartition("/")
    if not slash or not kind or not name:
        raise Failure(
            f"--object: {shown(text)} is not of the form KIND/NAME or VERSION/KIND/NAME, such as Ingress/main"
        )
    return CrossVersionObjectReference(kind=kind, name=name, api_version=version)


def _asker(args: argparse.Namespace) -> Asker | None:
    """The HPA that asks; None without --hpa."""
    if not args.hpa:
        if args.hpa_labels or args.target:
            raise Failure("--hpa-labels and --target describe an HPA: name it with --hpa NAME")
        return None
    kind, _, name = args.target.rpartition("/")
    if args.target and not (kind and name):
        raise Failure(f"--target: {shown(args.target)} is not of the form KIND/NAME, such as Deployment/web")
    labels = dict(part.partition("=")[::2] for part in args.hpa_labels.split(",") if part)
    return Asker(name=args.hpa, target_kind=kind, target_name=name, labels=tuple(sorted(labels.items())))


class Cluster:
    """Async context manager that connects to the API server, and yields the contexts for adapters."""

    def __init__(self, settings: Settings, args: argparse.Namespace, clock: Clock) -> None:
        self._kubeconfig = args.kubeconfig or settings.kubeconfig
        self._context = args.context or settings.context
        self._clock = clock
        self._connection: client.Client | None = None

    async def __aenter__(self) -> plugins.Contexts:
        """Raises Failure if a named kubeconfig is unusable; without any kubeconfig, adapters get no API server."""
        try:
            found = await asyncio.to_thread(kubeconfig.load_cluster_config, self._kubeconfig, self._context)
            self._connection = client.Client(found, self._clock)
        except ConfigError as error:
            if self._kubeconfig is not None or self._context is not None:
                raise Failure(str(error)) from None
        api = None if self._connection is None else cluster.Api(self._connection)
        return plugins.Contexts(self._clock, api=api)

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            await self._connection.aclose()


@asynccontextmanager
async def opened(source: SourceSettings, make: plugins.Contexts) -> AsyncIterator[Adapter]:
    """Builds the source's adapter, and closes it at the end.

    Raises AdapterError if it cannot be built or closed. Removes the source's secrets from an AdapterError that the
    block raises.
    """
    redactor = Redactor(source.settings)
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
        raise AdapterError(redactor(error.message), error.blame) from None


async def _close(source: SourceSettings, adapter: Adapter, log: Log) -> None:
    try:
        await adapter.aclose()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code; the error's text may hold a secret
        log.error("the adapter failed to close", source=source.name, **redact.exception_fields(error))
        redact.log_traceback(log, source.name, error)
        text = f'source "{source.name}" could not be closed: its adapter raised an exception, a bug of its adapter'
        raise AdapterError(text, "bug") from None


def asked_by(adapter: Adapter, query: Query, asker: Asker | None) -> Query:
    """The query; with the HPA that asks, if the adapter says that the answer depends on it."""
    personal: Any = getattr(adapter, "personal", None)
    if asker is None or personal is None or not personal(query):
        return query
    return msgspec.structs.replace(query, asker=asker)


async def explained(adapter: Adapter, query: Query) -> str | None:
    """What the adapter asks its source for the query; None if the adapter does not tell. Raises AdapterError."""
    explain: Any = getattr(adapter, "explain", None)
    return None if explain is None else str(await explain(query))


async def history(
    source: SourceSettings, adapter: Adapter, query: Query, times: Sequence[datetime]
) -> list[Answer] | None:
    """The answers at those times, without the source's secrets; None if the source has no history.

    Raises AdapterError if the query as a whole fails.
    """
    look: Any = getattr(adapter, "history", None)
    if look is None:
        return None
    redactor, log = Redactor(source.settings), structlog.get_logger("hpad.source")
    try:
        found = list(await look(query, times))
    except AdapterError:
        raise
    except Exception as error:  # noqa: BLE001 - foreign code; the error's text may hold a secret
        log.error("the adapter raised an exception", source=source.name, **redact.exception_fields(error))
        what = "its adapter raised an exception, a bug of the adapter"
        raise AdapterError(f'source "{source.name}" has no history of "{query.name}": {what}', "bug") from None
    return [call.readable(source.name, answer, redactor) for answer in found]
