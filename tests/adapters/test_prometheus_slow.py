"""Queries whose values one request asks for, of which one hangs, or which together take too long; in virtual time."""

import asyncio
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
import structlog
from support import virtual_time
from support.virtual_time import in_virtual_time, now

from hpad import testing
from hpad.adapter import Context, ExternalSample, Query
from hpad.sources.limits import CallLimits
from hpad.sources.source import QueriedSource
from hpad_adapters.prometheus import Prometheus

PERIOD = 15.0
PERIODS = 12
LEARNED = 6
"""Periods until the queries that hang are known."""
HPAS = 120
DEPTH = 'sum(depth{namespace="<<.Namespace>>",<<.LabelMatchers>>}) by (<<.GroupBy>>)'


class World:
    """HPAs of one namespace, three per tick of 100 ms; `seconds` says how long a request for some queues takes."""

    def __init__(self, context: Context, seconds: Callable[[list[str]], float]) -> None:
        self.sent = 0
        self._seconds = seconds
        limits = CallLimits()
        settings = {"url": "http://127.0.0.1:9", "metrics": {"depth": {"query": DEPTH}}}
        context = msgspec.structs.replace(context, timeout=limits.timeout)
        adapter = Prometheus(msgspec.convert(settings, Prometheus.Settings), context)
        adapter._connection._data = self._data  # type: ignore[method-assign]
        quiet: dict[str, Any] = {"log": structlog.get_logger(), "observer": lambda *_: None}
        self._source = QueriedSource("prom", adapter, clock=context.clock, limits=limits, **quiet)

    async def waits(self) -> list[list[float]]:
        """Returns for each HPA the seconds that it waited in each period; infinite without a sample."""
        queries = [testing.external("depth", f"queue=q{number}") for number in range(HPAS)]
        waits = await asyncio.gather(*(self._hpa(query, n // 3 * 0.1) for n, query in enumerate(queries)))
        await self._source.aclose()
        return waits

    async def _hpa(self, query: Query, place: float) -> list[float]:
        await asyncio.sleep(place)
        waits = []
        for _ in range(PERIODS):
            began = now()
            future = self._source.ask(query)
            await asyncio.wait({future}, timeout=9.0)
            waits.append(now() - began if future.done() and isinstance(future.result(), ExternalSample) else math.inf)
            await asyncio.sleep(began + PERIOD - now())
        return waits

    async def _data(self, call: str, form: Mapping[str, str], *_: Any) -> msgspec.Raw:
        self.sent += 1
        queues = re.findall(r"q\d+", form["query"])
        await asyncio.sleep(self._seconds(queues))
        rows = [{"metric": {"queue": queue}, "value": [float(form["time"]), "1"]} for queue in queues]
        return msgspec.Raw(json.dumps({"resultType": "vector", "result": rows}).encode())


@pytest.mark.parametrize("hanging", [{"q7"}, {"q7", "q50", "q51", "q100"}])
@in_virtual_time
async def test_a_query_that_hangs_fails_no_other_hpa(hanging: set[str]) -> None:
    async with testing.context("prom", clock=virtual_time.VirtualClock()) as context:
        waits = await World(context, lambda queues: 1e3 if hanging & {*queues} else 0.02).waits()
    hung = [each for number, each in enumerate(waits) if f"q{number}" in hanging]
    others = [each for number, each in enumerate(waits) if f"q{number}" not in hanging]
    assert {wait for each in hung for wait in each} == {math.inf}
    assert max(max(each[LEARNED:]) for each in others) < 1


@in_virtual_time
async def test_what_is_too_slow_for_one_request_of_all_is_asked_in_several() -> None:
    """Prometheus evaluates a request on one core."""
    async with testing.context("prom", clock=virtual_time.VirtualClock()) as context:
        waits = await World(context, lambda queues: 0.1 * len(queues)).waits()
    assert max(map(max, waits)) < 3


@in_virtual_time
async def test_hpas_that_are_due_together_share_a_request() -> None:
    async with testing.context("prom", clock=virtual_time.VirtualClock()) as context:
        world = World(context, lambda queues: 0.02)
        assert max(map(max, await world.waits())) < 1
    assert world.sent == PERIODS * HPAS / 3
