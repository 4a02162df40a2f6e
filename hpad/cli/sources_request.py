"""What `hpad sources test` reads: a metric of a source, as one HPA would read it."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from hpad.adapter import (
    EXTERNAL,
    OBJECT,
    SOURCE_TYPES,
    Adapter,
    AdapterError,
    Answer,
    CrossVersionObjectReference,
    HPAIdentity,
    ObjectSample,
    PodSample,
    Quantity,
    Query,
    QueryDefinition,
)
from hpad.api import selector
from hpad.api import text as hints
from hpad.api.autoscaler import query_definition
from hpad.api.hpa import OwnQuery
from hpad.api.text import shown
from hpad.cli import output
from hpad.cli.output import Failure, WrongUse
from hpad.settings import BUILT_IN_SOURCES, Settings, SourceSettings
from hpad.sources import manager, offers, plugins


class MetricRequest(NamedTuple):
    """A query to a source, and the HPA that sends it (None if --hpa is not given).

    `handed`: the query as the source's adapter gets it.
    """

    source: SourceSettings
    query: Query
    hpa: HPAIdentity | None
    handed: Query


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments for source, metric and HPA."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in YAML (also HPAD_CONFIG)")
    parser.add_argument("name", metavar="SOURCE", help="name of the source")
    parser.add_argument("metric", metavar="METRIC", help="name of the metric")
    parser.add_argument(
        "--type", choices=SOURCE_TYPES, help="type of the metric (default: External if the adapter serves it)"
    )
    parser.add_argument("-n", "--namespace", default="default", help="namespace of the HPA (default: %(default)s)")
    parser.add_argument("--selector", metavar="LABELS", help="selector of the metric, such as queue=orders")
    parser.add_argument(
        "--parameters",
        metavar="YAML",
        help="parameters of a query that an Autoscaler brings along, such as '{query: sum(x)}'",
    )
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
    parser.add_argument("--kubeconfig", metavar="FILE", help="kubeconfig for sources that read from the API server")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    # Without a default, which would replace the value before the action: `hpad sources -o json test`.
    output.add_format(parser, default=argparse.SUPPRESS)


async def read(settings: Settings, args: argparse.Namespace) -> MetricRequest:
    """Reads the request from the arguments; raises Failure if they are invalid."""
    source = _source(settings, args.name)
    query = await _query(source, args)
    return MetricRequest(source, query, _hpa(args), query)


def routed(gatherer: manager.Gatherer, request: MetricRequest) -> MetricRequest:
    """Returns the request with the query that the adapter gets.

    Raises Failure if an HPA's query for the metric would go to another source, or to none.
    """
    _check_route(gatherer, request)
    return request._replace(handed=gatherer.handed(request.query))


def _check_route(gatherer: manager.Gatherer, request: MetricRequest) -> None:
    source, query = request.source.name, request.query
    if query.definition is not None:
        try:
            gatherer.handed(query)
        except AdapterError as error:
            raise Failure(error.message) from None
        return
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


def _unknown(offer: offers.Offer, query: Query) -> str:
    """Returns the message that a source lacks the metric, with the nearest name and the metrics it has."""
    names = offer.names(query.type)
    text = f'source "{offer.source}" answers no {query.type} metric "{query.name}"'
    hint = hints.meant(query.name, (name for name in names if not set(name) & set("*?[")))  # no patterns
    if names:
        return f"{text}{hint}; it answers {', '.join(names)}"
    kinds = [f"{kind}: {', '.join(offer.names(kind))}" for kind in SOURCE_TYPES if offer.names(kind)]
    return f"{text}; it answers {'; '.join(kinds) or 'only metrics that a route or its `match` sends there'}"


def _source(settings: Settings, name: str) -> SourceSettings:
    known = {source.name: source for source in settings.sources}
    for built_in in BUILT_IN_SOURCES:
        known.setdefault(built_in, SourceSettings(name=built_in, adapter=built_in))
    if name in known:
        return known[name]
    missing = f"there is no source {shown(name)}{hints.meant(name, known)}"
    if settings.sources:
        raise Failure(f"{missing}; there are {', '.join(known)}")
    raise Failure(f"{missing}; no sources are configured: name a file with --config, or set HPAD_RABBITMQ_URL")


async def _query(source: SourceSettings, args: argparse.Namespace) -> Query:
    kind = args.type or await _type(source)
    if kind != EXTERNAL and args.parameters is not None:
        raise WrongUse(f"--parameters: are of a metric of type {EXTERNAL}, not {kind}")
    pods = args.pods if kind not in (OBJECT, EXTERNAL) else None
    if kind == OBJECT and not args.object:
        raise WrongUse("an Object metric needs its object: name it with --object KIND/NAME")
    return Query(
        type=kind,
        namespace=args.namespace,
        name=args.metric,
        container=args.container,
        pods=_selector("--pods", pods),
        selector=_selector("--selector", args.selector),
        object=_reference("--object", args.object) if kind == OBJECT else None,
        definition=None if args.parameters is None else _definition(source.name, args.metric, args.parameters),
    )


def _selector(flag: str, text: str | None) -> selector.Selector | None:
    try:
        return None if text is None else selector.parse(text)
    except selector.SelectorError as error:
        raise WrongUse(f"{flag}: {error}") from None


def _definition(source: str, name: str, parameters: str) -> QueryDefinition:
    """Returns the query that an Autoscaler with these parameters brings along; raises WrongUse or Failure."""
    try:
        value = yaml.safe_load(parameters)
    except yaml.YAMLError as error:
        raise WrongUse(f"--parameters: {shown(parameters)} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise WrongUse(f"--parameters: {shown(parameters)} is not a mapping, such as '{{query: sum(x)}}'")
    found, error_text = query_definition(name, (OwnQuery(name, source, value),))
    if found is None:
        raise Failure(error_text or "")
    return found


async def _type(source: SourceSettings) -> str:
    """Returns External if the adapter serves it, else the first type that it serves."""
    try:
        serves = (await plugins.load(source.adapter)).serves
    except AdapterError:
        return EXTERNAL  # the query then fails with this error
    return EXTERNAL if EXTERNAL in serves else next(kind for kind in SOURCE_TYPES if kind in serves)


def _reference(flag: str, text: str) -> CrossVersionObjectReference:
    version_and_kind, slash, name = text.rpartition("/")
    version, _, kind = version_and_kind.rpartition("/")
    if not slash or not kind or not name:
        raise WrongUse(f"{flag}: {shown(text)} is not of the form KIND/NAME or VERSION/KIND/NAME, such as Ingress/main")
    return CrossVersionObjectReference(kind=kind, name=name, api_version=version)


def _hpa(args: argparse.Namespace) -> HPAIdentity | None:
    """Returns the HPA that sends the query; None without --hpa."""
    if not args.hpa:
        if args.hpa_labels or args.target:
            raise WrongUse("--hpa-labels and --target describe an HPA: name it with --hpa NAME")
        return None
    target = _reference("--target", args.target) if args.target else CrossVersionObjectReference()
    labels = dict(part.partition("=")[::2] for part in args.hpa_labels.split(",") if part)
    return HPAIdentity(
        name=args.hpa, target_kind=target.kind, target_name=target.name, labels=tuple(sorted(labels.items()))
    )


def for_hpa(adapter: Adapter, request: MetricRequest) -> Query:
    """Returns the query, and adds the HPA to it if the adapter reports that the answer depends on the HPA."""
    personal: Any = getattr(adapter, "personal", None)
    if request.hpa is None or personal is None or not personal(request.handed):
        return request.handed
    return msgspec.structs.replace(request.handed, hpa=request.hpa)


async def explained(adapter: Adapter, query: Query) -> str | None:
    """Returns the query in the source's language, such as PromQL; None if the adapter has none. Raises AdapterError."""
    explain: Any = getattr(adapter, "explain", None)
    return None if explain is None else str(await explain(query))


def heading(request: MetricRequest, explanation: str | None) -> Iterator[str]:
    """Yields the lines that describe source, metric and query. `explanation`: the result of `explained`."""
    source, query = request.source, request.query
    yield f"source:     {source.name} (adapter {source.adapter})"
    narrowed = f" with {query.selector}" if query.selector and query.selector.requirements else ""
    yield f'metric:     {query.type} "{query.name}"{narrowed} in namespace "{query.namespace}"'
    if explanation is not None:
        yield f"query:      {explanation}"


def request_fields(request: MetricRequest, explanation: str | None) -> dict[str, Any]:
    """Returns the JSON fields of a request. `explanation`: the result of `explained`."""
    source, query = request.source, request.query
    return {
        "source": source.name,
        "adapter": source.adapter,
        "type": query.type,
        "metric": query.name,
        "namespace": query.namespace,
        "selector": None if query.selector is None else str(query.selector),
        "query": explanation,
    }


def answer_fields(answer: Answer) -> dict[str, Any]:
    """Returns the JSON fields of an answer."""
    if isinstance(answer, AdapterError):
        return {"error": answer.message, "blame": answer.blame}
    found: dict[str, Any] = {"timestamp": answer.timestamp.isoformat()}
    if isinstance(answer, PodSample):
        return {**found, "pods": {pod: quantity(value.value) for pod, value in sorted(answer.values.items())}}
    values = (answer.value,) if isinstance(answer, ObjectSample) else answer.values
    return {**found, "value": quantity(sum(values)), "values": [quantity(value) for value in values]}


def quantity(milli: int) -> str:
    """Returns thousandths as a quantity of Kubernetes."""
    return str(Quantity.from_milli(milli))
