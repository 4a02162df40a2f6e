"""A metric as an HPA would name it, from the arguments of `hpad sources test` and `hpad sources history`.

One source on its own, for commands that want more of it than an HPA's answer.
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

from hpad import settings
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
from hpad.sources import call, manager, plugins, redact, routes
from hpad.sources.redact import Redactor


class Question(NamedTuple):
    """A query, and the HPA that asks it, if it is said which."""

    source: settings.SourceSettings
    query: Query
    asker: Asker | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The metric, and who asks for it."""
    parser.add_argument("--config", dest="file", type=Path, metavar="FILE", help="settings in YAML (also HPAD_CONFIG)")
    parser.add_argument("name", metavar="SOURCE", help="the source's name")
    parser.add_argument("metric", metavar="METRIC", help="the metric's name")
    parser.add_argument("--type", choices=SOURCE_TYPES, help="the metric's type (default: External if it is served)")
    parser.add_argument("-n", "--namespace", default="default", help="of the HPA (default: %(default)s)")
    parser.add_argument("--selector", metavar="LABELS", help="the metric's own selector, such as queue=orders")
    parser.add_argument("--pods", metavar="LABELS", default="", help="its target's pods, e.g. app=web (default: all)")
    parser.add_argument("--container", metavar="NAME", default="", help="for ContainerResource")
    parser.add_argument(
        "--object", metavar="KIND/NAME", help="for Object, such as Ingress/main or apps/v1/Deployment/web"
    )
    parser.add_argument(
        "--hpa", metavar="NAME", default="", help="who asks, for queries made of the HPA's name or labels"
    )
    parser.add_argument("--hpa-labels", metavar="LABELS", default="", help="its labels, such as team=a,tier=front")
    parser.add_argument("--target", metavar="KIND/NAME", default="", help="what it scales, such as Deployment/web")
    parser.add_argument("--kubeconfig", metavar="FILE", help="for sources that ask the API server")
    parser.add_argument("--context", metavar="NAME", help="of the kubeconfig")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="text (default) or json")


async def read(told: settings.Settings, args: argparse.Namespace) -> Question:
    """What is asked; raises Failure for what cannot be a question."""
    source = _source(told, args.name)
    return Question(source, await _query(source, args), _asker(args))


def check_route(gatherer: manager.Gatherer, question: Question) -> None:
    """Raises Failure where an HPA's question for the metric would not come to that source."""
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
        others = chosen is not None and not offers[chosen].implicit
        elsewhere = f'; an HPA that names it gets it from source "{chosen}"' if others else ""
        raise Failure(f"{_unknown(offer, query)}{elsewhere}")
    if chosen is None:
        raise Failure(reason)
    raise Failure(
        f'an HPA that names {query.type} metric "{query.name}" gets it from source "{chosen}", which comes before '
        f'"{source}" in `routes` or `sources`: hpad sources test {chosen} {query.name}'
    )


def _unknown(offer: routes.Offer, query: Query) -> str:
    """That a source has no such metric, what was probably meant, and what there is."""
    names = offer.names(query.type)
    text = f'source "{offer.source}" answers no {query.type} metric "{query.name}"'
    hint = hints.meant(query.name, (name for name in names if not _is_pattern(name)))
    if names:
        return f"{text}{hint}; it answers {', '.join(names)}"
    kinds = [f"{kind}: {', '.join(offer.names(kind))}" for kind in SOURCE_TYPES if offer.names(kind)]
    return f"{text}; it answers {'; '.join(kinds) or 'only metrics that a route or its `match` sends there'}"


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _source(told: settings.Settings, name: str) -> settings.SourceSettings:
    found = next((source for source in told.sources if source.name == name), None)
    if found is not None:
        return found
    if name in settings.BUILT_IN_SOURCES:
        return settings.SourceSettings(name=name, adapter=name)
    known = [*(source.name for source in told.sources), *settings.BUILT_IN_SOURCES]
    raise Failure(f"there is no source {shown(name)}{hints.meant(name, known)}; there are {', '.join(known)}")


async def _query(source: settings.SourceSettings, args: argparse.Namespace) -> Query:
    kind = args.type or await _type(source)
    pods = args.pods if kind not in (OBJECT, EXTERNAL) else None
    if kind == OBJECT and not args.object:
        raise Failure("an Object metric is of an object: name it with --object KIND/NAME")
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


async def _type(source: settings.SourceSettings) -> str:
    """External if the adapter serves that, else the first that it serves."""
    try:
        serves = (await plugins.load(source.adapter)).serves
    except AdapterError:
        return EXTERNAL  # the question will be answered with what is wrong
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
    """The HPA that asks, if it is said which."""
    if not args.hpa:
        if args.hpa_labels or args.target:
            raise Failure("--hpa-labels and --target are of an HPA: name it with --hpa NAME")
        return None
    kind, _, name = args.target.rpartition("/")
    if args.target and not (kind and name):
        raise Failure(f"--target: {shown(args.target)} is not of the form KIND/NAME, such as Deployment/web")
    labels = dict(part.partition("=")[::2] for part in args.hpa_labels.split(",") if part)
    return Asker(name=args.hpa, target_kind=kind, target_name=name, labels=tuple(sorted(labels.items())))


class Cluster:
    """The API server for adapters that need one, and the contexts they get; an async context manager."""

    def __init__(self, told: settings.Settings, args: argparse.Namespace, clock: Clock) -> None:
        self._kubeconfig = args.kubeconfig or told.kubeconfig
        self._context = args.context or told.context
        self._clock = clock
        self._connection: client.Client | None = None

    async def __aenter__(self) -> plugins.Contexts:
        """Raises Failure where a kubeconfig was named and cannot be used; without any, adapters get no API server."""
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
async def opened(source: settings.SourceSettings, make: plugins.Contexts) -> AsyncIterator[Adapter]:
    """Build the source's adapter, and close it at the end.

    Raises AdapterError where it cannot be built or closed. An AdapterError of the block is raised without the
    source's secrets.
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


async def _close(source: settings.SourceSettings, adapter: Adapter, log: Log) -> None:
    try:
        await adapter.aclose()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - code of others; the text of such an error may hold a secret
        log.error("the adapter failed to close", source=source.name, **redact.exception_fields(error))
        redact.log_traceback(log, source.name, error)
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
    redactor, log = Redactor(source.settings), structlog.get_logger("hpad.source")
    try:
        found = list(await look(query, times))
    except AdapterError:
        raise
    except Exception as error:  # noqa: BLE001 - code of others; the text of such an error may hold a secret
        log.error("the adapter raised an exception", source=source.name, **redact.exception_fields(error))
        what = "its adapter raised an exception, a bug of the adapter"
        raise AdapterError(f'source "{source.name}" has no history of "{query.name}": {what}', "bug") from None
    return [call.readable(source.name, answer, redactor) for answer in found]
