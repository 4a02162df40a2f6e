"""Builds queries as metrics of an HPA ask them, and a Context as the daemon makes it.

Selectors are text, such as "queue=worker_tasks,tier in (a,b)".
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hpad import clock as clocks
from hpad.adapter import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    ApiReader,
    Context,
    CrossVersionObjectReference,
    Query,
)
from hpad.api import selector as selectors
from hpad.sources import plugins


def resource(name: str, pods: str, *, namespace: str = "default") -> Query:
    """Asks for a resource ("cpu", "memory") of the pods that the selector `pods` matches."""
    return Query(type=RESOURCE, namespace=namespace, name=name, pods=selectors.parse(pods))


def container_resource(name: str, container: str, pods: str, *, namespace: str = "default") -> Query:
    """Asks for a resource of one container of each pod."""
    return Query(
        type=CONTAINER_RESOURCE, namespace=namespace, name=name, container=container, pods=selectors.parse(pods)
    )


def pods_metric(name: str, pods: str, selector: str | None = None, *, namespace: str = "default") -> Query:
    """Asks for a custom metric of each pod."""
    return Query(type=PODS, namespace=namespace, name=name, pods=selectors.parse(pods), selector=_parsed(selector))


def object_metric(
    name: str,
    kind: str,
    object_name: str,
    selector: str | None = None,
    *,
    api_version: str = "v1",
    namespace: str = "default",
) -> Query:
    """Asks for a metric of one object."""
    reference = CrossVersionObjectReference(kind=kind, name=object_name, api_version=api_version)
    return Query(type=OBJECT, namespace=namespace, name=name, object=reference, selector=_parsed(selector))


def external(name: str, selector: str | None = None, *, namespace: str = "default") -> Query:
    """Asks for an external metric; None is not the same as an empty selector."""
    return Query(type=EXTERNAL, namespace=namespace, name=name, selector=_parsed(selector))


def _parsed(text: str | None) -> selectors.Selector | None:
    return None if text is None else selectors.parse(text)


@asynccontextmanager
async def context(
    name: str, *, api: ApiReader | None = None, clock: clocks.Clock | None = None
) -> AsyncIterator[Context]:
    """Yields the Context of a source of that name; closes its HTTP session at the end."""
    made = plugins.Contexts(clock or clocks.SystemClock(), api=api)(name, name)
    try:
        yield made
    finally:
        await made.http.close()
