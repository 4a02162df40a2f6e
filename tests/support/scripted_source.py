"""A source with an adapter whose behavior a test scripts, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import structlog
from support import virtual_time
from support.virtual_time import now

from hpad import testing
from hpad.adapter import EXTERNAL, AdapterError, Answer, ExternalSample, Query
from hpad.clock import Clock
from hpad.sources.limits import CallLimits
from hpad.sources.redact import Redactor
from hpad.sources.source import QueriedSource

A, B, C = (testing.external(name) for name in "abc")
DOWN = AdapterError("the broker is down")


class Scripted:
    """Answers each query with the number of the call, unless `behave` raises an error or returns other answers.

    `batches` has, for each call, the second at which it began and the sorted names of its metrics.
    """

    serves = frozenset({EXTERNAL})
    Settings = msgspec.Struct

    def __init__(self, behave: Callable[[Sequence[Query]], Awaitable[Any]] | None = None) -> None:
        self.batches: list[tuple[float, str]] = []
        self.behave = behave
        self.closed = False

    @property
    def names(self) -> list[str]:
        return [names for _, names in self.batches]

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        self.batches.append((now(), "".join(sorted(query.name for query in queries))))
        call, began = len(self.batches), virtual_time.VirtualClock().now()
        answers = await self.behave(queries) if self.behave is not None else None
        return answers or [ExternalSample((call,), began) for _ in queries]

    async def aclose(self) -> None:
        self.closed = True


class Grouped(Scripted):
    """An adapter that reads all metrics of a namespace with one call."""

    def group(self, query: Query) -> str:
        return query.namespace


def opened(
    adapter: Scripted,
    *,
    plain: bool = False,
    clock: Clock | None = None,
    observer: Callable[..., Any] = lambda *_: None,
    **limits: Any,
) -> QueriedSource:
    """Returns the source "mine" with these limits; without further ones it neither caches nor retries."""
    return QueriedSource(
        "mine",
        adapter,
        clock=clock or virtual_time.VirtualClock(),
        log=structlog.get_logger(),
        observer=observer,
        limits=CallLimits(**{"fresh": 0.0, "retries": 0, **limits}),
        redact=Redactor({"password": "hunter22"}),
        plain=plain,
    )


def sleeping(seconds: float) -> Callable[[Sequence[Query]], Awaitable[None]]:
    """Returns a behavior: each call takes this long."""
    return lambda _: asyncio.sleep(seconds)


async def failing(queries: Sequence[Query]) -> None:
    """Is a behavior: each call fails."""
    raise DOWN
