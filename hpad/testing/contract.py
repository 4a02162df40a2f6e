"""Checks an adapter instance against the contract, and builds the queries and the Context for that.

Selectors of queries are text, such as "queue=worker_tasks,tier in (a,b)".
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from hpad import clock as clocks
from hpad.adapter import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    Adapter,
    AdapterError,
    Answer,
    ApiReader,
    Context,
    CrossVersionObjectReference,
    Member,
    PodSample,
    Query,
    QueryDefinition,
)
from hpad.api import selector as selectors
from hpad.api.sample import DEFINED
from hpad.sources import plugins
from hpad.sources.call import checked, valid_error
from hpad.testing import blocking

_TIMEOUT_SECONDS = 5.0
_NO_CONTAINER = "no-such-container"


class ContractBroken(AssertionError):
    """The adapter breaks the contract; the message says how."""


async def check_adapter(adapter: Adapter, queries: Sequence[Query]) -> list[Answer]:
    """Sends `queries` in batches, one by one, reversed and twice, cancels calls, then closes the adapter.

    An optional `prepare` comes first. Returns the answers of the first batch. Raises ContractBroken, also for a call
    that blocks the event loop (see `blocking`). `queries` should succeed and fail, for every type that the adapter
    serves. While the check runs, each answer must depend on the query alone.
    """
    _check_class(adapter)
    try:
        with blocking.watched(type(adapter)):
            await _prepare(adapter)
            return await _check_answers(adapter, queries)
    except blocking.Blocked as error:
        raise ContractBroken(str(error)) from None


async def _prepare(adapter: Adapter) -> None:
    own: Any = getattr(adapter, "prepare", None)
    try:
        if own is not None:
            await own()
    except Exception as error:
        raise ContractBroken(f"prepare() failed: {error!r}") from error


async def _check_answers(adapter: Adapter, queries: Sequence[Query]) -> list[Answer]:
    _check_group(adapter, queries)
    if any(query.members is not None for query in queries) and getattr(adapter, "knows_members", False) is not True:
        raise ContractBroken("hpad sends members only to adapters with knows_members = True")
    batch = await _answered(adapter, queries)
    _same("in reverse order", batch, (await _answered(adapter, queries[::-1]))[::-1])
    _same("sent one by one", batch, [(await _answered(adapter, (query,)))[0] for query in queries])
    _same("sent twice in a batch", [*batch, *batch], await _answered(adapter, (*queries, *queries)))
    await _check_ignored(adapter, queries, batch)
    if await _answered(adapter, ()) != []:
        raise ContractBroken("an empty batch must have an empty answer")
    # Each turn gives the call one more await at which the cancellation can arrive.
    for turns in range(4):
        await _check_cancellation(adapter, queries, turns)
    _same("after a cancellation", batch, await _answered(adapter, queries))
    await _check_close(adapter)
    return batch


async def _check_ignored(adapter: Adapter, queries: Sequence[Query], batch: Sequence[Answer]) -> None:
    """With `ignores_containers`: to ignore a container that no pod has changes nothing.

    A query that the adapter cannot answer without some containers may be refused, with an error that blames the spec.
    """
    if getattr(adapter, "ignores_containers", False) is not True:
        if any(query.ignored_containers for query in queries):
            raise ContractBroken("hpad sends ignored_containers only to adapters with ignores_containers = True")
        return
    if RESOURCE not in adapter.serves:
        raise ContractBroken("ignores_containers is for Resource metrics, which the adapter does not serve")
    ignoring = [
        msgspec.structs.replace(query, ignored_containers=(*query.ignored_containers, _NO_CONTAINER))
        if query.type == RESOURCE
        else query
        for query in queries
    ]
    found = await _answered(adapter, ignoring)
    kept = [
        one if isinstance(other, AdapterError) and other.blame == "spec" else other
        for one, other in zip(batch, found, strict=True)
    ]
    _same("with an ignored container that no pod has", batch, kept)


def _check_class(adapter: Adapter) -> None:
    kind = type(adapter)
    try:
        plugins.check_class(kind.__name__, kind)
        plugins.offered(kind.__name__, adapter)
        plugins.kept_files(kind.__name__, adapter)
    except AdapterError as error:
        raise ContractBroken(error.message) from None


def _check_group(adapter: Adapter, queries: Sequence[Query]) -> None:
    group = getattr(adapter, "group", None)
    if group is None:
        return
    try:
        same = all(hash(group(query)) == hash(group(query)) and group(query) == group(query) for query in queries)
    except Exception as error:
        raise ContractBroken(f"group() failed: {error!r}; it must return something hashable") from error
    if not same:
        raise ContractBroken("group() must return the same for the same query")


async def _answered(adapter: Adapter, queries: Sequence[Query]) -> list[Answer]:
    call: Any = None
    try:
        call = adapter.answer(queries)
        found: list[Answer] = await call if inspect.isawaitable(call) else call
    except AdapterError as error:
        found = [error] * len(queries)
    except Exception as error:
        raise ContractBroken(f"answer() raised {error!r}; return an AdapterError as the answer instead") from error
    if not inspect.isawaitable(call):
        raise ContractBroken("answer() is not a coroutine function: write async def answer")
    _check_each(type(adapter).__name__, queries, found)
    return found


def _check_each(name: str, queries: Sequence[Query], found: Any) -> None:
    for answer in checked(name, queries, found):
        if isinstance(answer, AdapterError) and valid_error(name, answer).blame == "bug":
            raise ContractBroken(f"{valid_error(name, answer).message}: answer() returned {found!r}")


def _same(how: str, expected: Sequence[Answer], found: Sequence[Answer]) -> None:
    """Raises ContractBroken if other queries succeed, or other pods have values; the values may differ."""
    for index, (one, other) in enumerate(zip(expected, found, strict=True)):
        if _shape(one) != _shape(other):
            raise ContractBroken(f"query {index} {how} is answered {other!r}, but was answered {one!r}")


def _shape(answer: Answer) -> object:
    if isinstance(answer, AdapterError):
        return answer.blame
    return (type(answer), sorted(answer.values)) if isinstance(answer, PodSample) else type(answer)


async def _check_cancellation(adapter: Adapter, queries: Sequence[Query], turns: int) -> None:
    """Cancels a call after `turns` turns of the event loop: it must end, cancelled or complete."""
    call = asyncio.ensure_future(adapter.answer(queries))
    for _ in range(turns):
        await asyncio.wait({call}, timeout=0)
    was_done = call.done()
    call.cancel()
    done, _ = await asyncio.wait({call}, timeout=_TIMEOUT_SECONDS)
    if not done:
        raise ContractBroken(f"answer() was still running {_TIMEOUT_SECONDS:g}s after its cancellation")
    if not was_done and not call.cancelled():
        raise ContractBroken("answer() swallowed its cancellation: let CancelledError pass")


async def _check_close(adapter: Adapter) -> None:
    for time in ("", " a second time"):
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await adapter.aclose()
        except Exception as error:
            raise ContractBroken(f"aclose(){time} failed: {error!r}") from error


def resource(name: str, pods: str, *, namespace: str = "default", ignored_containers: Sequence[str] = ()) -> Query:
    """Returns a query for a resource ("cpu", "memory") of the pods that the selector `pods` matches.

    It leaves out the usage of the ignored containers.
    """
    return Query(
        type=RESOURCE,
        namespace=namespace,
        name=name,
        pods=selectors.parse(pods),
        ignored_containers=tuple(sorted(ignored_containers)),
    )


def container_resource(name: str, container: str, pods: str, *, namespace: str = "default") -> Query:
    """Returns a query for a resource of one container of each pod."""
    return Query(
        type=CONTAINER_RESOURCE, namespace=namespace, name=name, container=container, pods=selectors.parse(pods)
    )


def pods_metric(name: str, pods: str, selector: str | None = None, *, namespace: str = "default") -> Query:
    """Returns a query for a custom metric of each pod."""
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
    """Returns a query for a metric of one object."""
    reference = CrossVersionObjectReference(kind=kind, name=object_name, api_version=api_version)
    return Query(type=OBJECT, namespace=namespace, name=name, object=reference, selector=_parsed(selector))


def external(name: str, selector: str | None = None, *, namespace: str = "default") -> Query:
    """Returns a query for an external metric; a selector of None is not the same as an empty selector."""
    return Query(type=EXTERNAL, namespace=namespace, name=name, selector=_parsed(selector))


def own_query(metric: msgspec.Struct, selector: str | None = None, *, namespace: str = "default") -> Query:
    """Returns a query that an Autoscaler brings along; `metric` is an instance of the adapter's `QuerySchema`."""
    definition = QueryDefinition("source", msgspec.json.encode(metric, order="deterministic").decode(), metric)
    query = external(DEFINED, selector, namespace=namespace)
    return msgspec.structs.replace(query, definition=definition)


def by_pod(query: Query, members: Sequence[Member]) -> Query:
    """Returns the query for the unfinished work of each of these pods, which are sorted by name."""
    return msgspec.structs.replace(query, members=tuple(sorted(members, key=lambda member: member.name)))


def _parsed(text: str | None) -> selectors.Selector | None:
    return None if text is None else selectors.parse(text)


@asynccontextmanager
async def context(
    name: str, *, api: ApiReader | None = None, clock: clocks.Clock | None = None
) -> AsyncIterator[Context]:
    """Yields the Context of a source with that name; closes its HTTP session at the end."""
    context = plugins.Contexts(clock or clocks.SystemClock(), api=api)(name, name)
    async with context.http:
        yield context
