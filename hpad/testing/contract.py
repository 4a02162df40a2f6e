"""Checks an adapter instance against the contract, and builds the queries and the Context for that.

Selectors of queries are text, such as "queue=worker_tasks,tier in (a,b)".
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from hpad import clock as clocks
from hpad.adapter import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    SOURCE_TYPES,
    Adapter,
    AdapterError,
    Answer,
    ApiReader,
    Context,
    CrossVersionObjectReference,
    PodSample,
    Query,
)
from hpad.api import selector as selectors
from hpad.sources import answers, plugins
from hpad.testing import blocking

_PATIENCE_SECONDS = 5.0


class ContractBroken(AssertionError):
    """The adapter breaks the contract; the message says how."""


async def check_adapter(adapter: Adapter, queries: Sequence[Query]) -> list[Answer]:
    """Asks `queries` in batches, alone, reversed and twice, cancels calls, then closes the adapter.

    Returns the answers of the first batch. Raises ContractBroken, also for a call that blocks the event loop (see
    `blocking`). Give queries that succeed and queries that fail, of every type that the adapter serves. While the check
    runs, each answer must depend on the query alone.
    """
    _check_class(adapter)
    try:
        with blocking.watched(type(adapter)):
            return await _asked(adapter, queries)
    except blocking.Blocked as error:
        raise ContractBroken(str(error)) from None


async def _asked(adapter: Adapter, queries: Sequence[Query]) -> list[Answer]:
    _check_group(adapter, queries)
    batch = await _ask(adapter, queries)
    _same("in reverse order", batch, (await _ask(adapter, queries[::-1]))[::-1])
    _same("asked one by one", batch, [(await _ask(adapter, (query,)))[0] for query in queries])
    _same("each asked twice in a batch", [*batch, *batch], await _ask(adapter, (*queries, *queries)))
    if await _ask(adapter, ()) != []:
        raise ContractBroken("an empty batch must have an empty answer")
    for turns in range(4):
        await _check_cancellation(adapter, queries, turns)
    _same("after a cancellation", batch, await _ask(adapter, queries))
    await _check_close(adapter)
    return batch


def _check_class(adapter: Adapter) -> None:
    kind = type(adapter)
    if not isinstance(kind.serves, frozenset) or not kind.serves or not kind.serves <= set(SOURCE_TYPES):
        raise ContractBroken(f"{kind.__name__}.serves must be a frozenset of some of {', '.join(SOURCE_TYPES)}")
    if not isinstance(kind.Settings, type) or not issubclass(kind.Settings, msgspec.Struct):
        raise ContractBroken(f"{kind.__name__}.Settings must be a msgspec.Struct")


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


async def _ask(adapter: Adapter, queries: Sequence[Query]) -> list[Answer]:
    try:
        found = await adapter.answer(queries)
    except AdapterError as error:
        found = [error] * len(queries)
    except Exception as error:
        raise ContractBroken(f"answer() raised {error!r}; give an AdapterError as the answer instead") from error
    for answer in answers.checked(type(adapter).__name__, queries, found):
        if isinstance(answer, AdapterError) and answer.blame == "bug":
            raise ContractBroken(f"{answer.message}: answer() returned {found!r}")
    return found


def _same(how: str, expected: Sequence[Answer], found: Sequence[Answer]) -> None:
    """Values may change between two calls; which queries succeed, and which pods have values, may not."""
    for index, (one, other) in enumerate(zip(expected, found, strict=True)):
        if _shape(one) != _shape(other):
            raise ContractBroken(f"query {index} {how} is answered {other!r}, but was answered {one!r}")


def _shape(answer: Answer) -> object:
    if isinstance(answer, AdapterError):
        return answer.blame
    return (type(answer), sorted(answer.values)) if isinstance(answer, PodSample) else type(answer)


async def _check_cancellation(adapter: Adapter, queries: Sequence[Query], turns: int) -> None:
    """Cancels a call after some turns of the event loop: it must end, cancelled or complete."""
    call = asyncio.ensure_future(adapter.answer(queries))
    for _ in range(turns):
        await asyncio.wait({call}, timeout=0)
    was_done = call.done()
    call.cancel()
    done, _ = await asyncio.wait({call}, timeout=_PATIENCE_SECONDS)
    if not done:
        raise ContractBroken(f"answer() was still running {_PATIENCE_SECONDS:g}s after its cancellation")
    if not was_done and not call.cancelled():
        raise ContractBroken("answer() swallowed its cancellation: let CancelledError pass")


async def _check_close(adapter: Adapter) -> None:
    for time in ("", " a second time"):
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await adapter.aclose()
        except Exception as error:
            raise ContractBroken(f"aclose(){time} failed: {error!r}") from error


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
