"""One question to one source, through everything that stands between an HPA and its adapter."""

import argparse
import asyncio
from collections.abc import Iterator

from hpad import clock as clocks
from hpad import settings
from hpad.adapter import (
    EXTERNAL,
    OBJECT,
    SOURCE_TYPES,
    AdapterError,
    Answer,
    ApiReader,
    Asker,
    CrossVersionObjectReference,
    ObjectSample,
    PodSample,
    Quantity,
    Query,
)
from hpad.cli.failure import Failure
from hpad.gather import contexts, fanout, limits, registry
from hpad.kube import client, cluster, config
from hpad.model import selector
from hpad.model.key import Key


async def probe(told: settings.Settings, args: argparse.Namespace) -> int:
    """Ask and print; 0 if there was a sample, 1 if there was an error. Raises Failure for a question that is none."""
    source = _source(told, args.name)
    query, asker, key = await _query(source, args), _asker(args), Key(args.namespace, args.hpa or "test")
    period = told.sync_period.total_seconds()
    clock = clocks.SystemClock()
    connection = await _connection(args.kubeconfig or told.kubeconfig, args.context or told.context, clock)
    api: ApiReader | None = None if connection is None else cluster.Api(connection)
    everything = (settings.Route(match=settings.Match(), source=source.name),)
    gatherer = fanout.Gatherer((source,), everything, contexts=contexts.Contexts(clock, api=api), period=period)
    await gatherer.start()
    try:
        began = clock.monotonic()
        [answer] = await gatherer.gather(key, [query], deadline=period * limits.PATIENCE, asker=asker)
        print("\n".join(_told(source, query, answer, clock, clock.monotonic() - began)))
    finally:
        await gatherer.aclose()
        if connection is not None:
            await connection.aclose()
    return 1 if isinstance(answer, AdapterError) else 0


def _source(told: settings.Settings, name: str) -> settings.SourceSettings:
    found = next((source for source in told.sources if source.name == name), None)
    if found is not None:
        return found
    if name in settings.BUILT_IN_SOURCES:
        return settings.SourceSettings(name=name, adapter=name)
    known = ", ".join([*(source.name for source in told.sources), *settings.BUILT_IN_SOURCES])
    raise Failure(f"there is no source {name!r}; there are {known}")


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
        serves = (await registry.load(source.adapter)).serves
    except AdapterError:
        return EXTERNAL  # the question will be answered with what is wrong
    return EXTERNAL if EXTERNAL in serves else next(kind for kind in SOURCE_TYPES if kind in serves)


def _object(text: str) -> CrossVersionObjectReference:
    version_and_kind, slash, name = text.rpartition("/")
    version, _, kind = version_and_kind.rpartition("/")
    if not slash or not kind or not name:
        raise Failure(f"--object: {text!r} is not of the form KIND/NAME or VERSION/KIND/NAME, such as Ingress/main")
    return CrossVersionObjectReference(kind=kind, name=name, api_version=version)


def _asker(args: argparse.Namespace) -> Asker | None:
    """The HPA that asks, if it is said which."""
    if not args.hpa:
        if args.hpa_labels or args.target:
            raise Failure("--hpa-labels and --target are of an HPA: name it with --hpa NAME")
        return None
    kind, _, name = args.target.rpartition("/")
    if args.target and not (kind and name):
        raise Failure(f"--target: {args.target!r} is not of the form KIND/NAME, such as Deployment/web")
    labels = dict(part.partition("=")[::2] for part in args.hpa_labels.split(",") if part)
    return Asker(name=args.hpa, target_kind=kind, target_name=name, labels=tuple(sorted(labels.items())))


async def _connection(kubeconfig: str | None, context: str | None, clock: clocks.Clock) -> client.Client | None:
    """To the API server, for adapters that need it; None where there is none to be found."""
    try:
        return client.Client(await asyncio.to_thread(config.load, kubeconfig, context), clock)
    except config.ConfigError as error:
        if kubeconfig is not None or context is not None:
            raise Failure(str(error)) from None
        return None


def _told(
    source: settings.SourceSettings, query: Query, answer: Answer, clock: clocks.Clock, seconds: float
) -> Iterator[str]:
    yield f"source:     {source.name} (adapter {source.adapter})"
    narrowed = "" if query.selector is None else f" with {query.selector}"
    yield f'metric:     {query.type} "{query.name}"{narrowed} in namespace "{query.namespace}"'
    yield f"took:       {seconds:.3f}s"
    if isinstance(answer, AdapterError):
        yield f"error:      {answer.message}"
        yield f"blame:      {answer.blame}"
        yield "an HPA:     keeps its replicas, unless another metric asks for more or a fallback is agreed"
        return
    age = (clock.now() - answer.timestamp).total_seconds()
    yield f"timestamp:  {answer.timestamp.isoformat()} ({age:.1f}s ago)"
    yield from _values(answer)


def _values(answer: Answer) -> Iterator[str]:
    if isinstance(answer, PodSample):
        yield f"an HPA:     sees the values of {len(answer.values)} pods"
        for pod, value in sorted(answer.values.items()):
            yield f"  {pod}: {_written(value.value)} over {value.window.total_seconds():g}s to {value.timestamp}"
    elif isinstance(answer, ObjectSample):
        yield f"an HPA:     sees {_written(answer.value)}"
    elif not isinstance(answer, AdapterError):
        of = f", the sum of {len(answer.values)} values" if len(answer.values) > 1 else ""
        yield f"an HPA:     sees {_written(sum(answer.values))}{of}"


def _written(milli: int) -> str:
    return str(Quantity.from_milli(milli))
