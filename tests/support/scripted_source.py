"""A source whose adapter does as it is told, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
import structlog
from support import virtual_time

from hpad import testing
from hpad.adapter import EXTERNAL, AdapterError, Answer, ExternalSample, Query
from hpad.sources.limits import Limits
from hpad.sources.redact import Redactor
from hpad.sources.source import Source

A, B, C = (testing.external(name) for name in "abc")
DOWN = AdapterError("the broker is down")


def now() -> float:
    return asyncio.get_running_loop().time()


class Scripted:
    """Answers with the second at which it was asked, unless `behave` has something else to say."""

    serves = frozenset({EXTERNAL})
    Settings = msgspec.Struct

    def __init__(self, behave: Callable[[Sequence[Query]], Awaitable[Any]] | None = None) -> None:
        self.batches: list[tuple[float, str]] = []
        self._behave = behave

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        self.batches.append((now(), "".join(sorted(query.name for query in queries))))
        moment = virtual_time.VirtualClock().now()
        said = await self._behave(queries) if self._behave is not None else None
        return said or [ExternalSample((int(now()),), moment) for _ in queries]

    async def aclose(self) -> None:
        """Nothing."""


class Grouped(Scripted):
    """One list serves a namespace."""

    def group(self, query: Query) -> str:
        return query.namespace


def opened(adapter: Scripted, *, plain: bool = False, **limits: Any) -> Source:
    told = Limits(**{"retries": 0, **limits})
    return Source(
        "mine", adapter, clock=virtual_time.VirtualClock(), log=structlog.get_logger(), observer=lambda *_: None,
        limits=told, redact=Redactor({"password": "hunter22"}), plain=plain,
    )  # fmt: skip


async def failing(queries: Sequence[Query]) -> None:
    raise DOWN
