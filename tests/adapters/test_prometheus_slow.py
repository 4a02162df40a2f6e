"""A query that hangs delays no other HPA, and hundreds of HPAs list their pods a few times; in virtual time."""

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
import structlog
from support import virtual_time
from support.virtual_time import in_virtual_time, now

from hpad import testing
from hpad.adapter import Context, PodSample, Query
from hpad.sources.limits import CallLimits
from hpad.sources.source import QueriedSource
from hpad_adapters.prometheus import Prometheus

PERIOD = 15.0
PERIODS = 6
HPAS = 60
TICK = 0.1
OF_RULES = {
    "rules": {
        "rules": [
            {
                "seriesQuery": 'rps{namespace!="",pod!=""}',
                "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
                "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
            }
        ]
    }
}
OF_ONE_QUERY = {"metrics": {"rps": {"query": 'sum(rps{namespace="<<.Namespace>>"}) by (pod)'}}}
OF_OWN_QUERIES = {"metrics": {f"rps{number}": {"query": f"sum(rps{number}) by (pod)"} for number in range(HPAS)}}


class Pods:
    """Lists a pod per HPA; `lists` has the second of each list."""

    def __init__(self) -> None:
        self.lists: list[float] = []

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> bytes:
        self.lists.append(now())
        pods = [{"metadata": {"name": f"web-{n}-0", "labels": {"app": f"web-{n}"}}} for n in range(HPAS)]
        selected = (params or {}).get("labelSelector", "")
        items = [pod for n, pod in enumerate(pods) if selected in ("", f"app=web-{n}")]
        return json.dumps({"items": items}).encode()


class World:
    """HPAs of one namespace, several per tick, that read a Prometheus; queries with `hanging` in them hang."""

    def __init__(self, settings: Mapping[str, Any], context: Context, hanging: str = "") -> None:
        self.sent: list[float] = []
        self._hanging = hanging
        limits = CallLimits()
        context = msgspec.structs.replace(context, timeout=limits.timeout)
        adapter = Prometheus(msgspec.convert({"url": "http://127.0.0.1:9", **settings}, Prometheus.Settings), context)
        adapter._connection._data = self._data  # type: ignore[method-assign]
        self._source = QueriedSource(
            "prom",
            adapter,
            clock=context.clock,
            log=structlog.get_logger(),
            observer=lambda *_: None,
            limits=limits,
        )

    async def waits(self, queries: Sequence[Query]) -> list[list[float]]:
        """Returns for each HPA the seconds that it waited in each period; infinite without a sample."""
        waits = await asyncio.gather(*(self._hpa(query, n // 5 * TICK) for n, query in enumerate(queries)))
        await self._source.aclose()
        return waits

    async def _hpa(self, query: Query, place: float) -> list[float]:
        await asyncio.sleep(place)
        waits = []
        for _ in range(PERIODS):
            began = now()
            future = self._source.ask(query)
            await asyncio.wait({future}, timeout=9.0)
            good = future.done() and isinstance(future.result(), PodSample)
            waits.append(now() - began if good else math.inf)
            await asyncio.sleep(began + PERIOD - now())
        return waits

    async def _data(self, call: str, form: Mapping[str, str], method: str, max_bytes: int = 0) -> msgspec.Raw:
        self.sent.append(now())
        if self._hanging and self._hanging in form["query"]:
            await asyncio.Event().wait()
        await asyncio.sleep(0.02)
        rows = [{"metric": {"pod": f"web-{n}-0"}, "value": [float(form["time"]), "1"]} for n in range(HPAS)]
        return msgspec.Raw(json.dumps({"resultType": "vector", "result": rows}).encode())


def of(name: str) -> list[Query]:
    return [testing.pods_metric(name.format(n), f"app=web-{n}") for n in range(HPAS)]


@pytest.mark.parametrize(
    ("settings", "name", "hanging"), [(OF_RULES, "rps", "web-7-0"), (OF_OWN_QUERIES, "rps{}", "rps7)")]
)
@in_virtual_time
async def test_a_query_that_hangs_delays_no_other_hpa(settings: Mapping[str, Any], name: str, hanging: str) -> None:
    async with testing.context("prom", api=Pods(), clock=virtual_time.VirtualClock()) as context:
        waits = await World(settings, context, hanging).waits(of(name))
    hung = waits.pop(7)
    assert not any(map(math.isfinite, hung))
    assert max(map(max, [each[1:] for each in waits])) < 1, waits


@pytest.mark.parametrize(("settings", "most"), [(OF_RULES, HPAS), (OF_ONE_QUERY, 1)])
@in_virtual_time
async def test_equal_promql_is_sent_once_in_a_period_and_pods_are_listed_once(
    settings: Mapping[str, Any], most: int
) -> None:
    pods = Pods()
    async with testing.context("prom", api=pods, clock=virtual_time.VirtualClock()) as context:
        world = World(settings, context)
        await world.waits(of("rps"))
    # The first period knows no HPA before its first turn.
    assert [sum(at >= PERIOD for at in times) for times in (world.sent, pods.lists)] == [
        most * (PERIODS - 1),
        PERIODS - 1,
    ]
