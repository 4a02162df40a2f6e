"""A deleted HPA leaves no entry in any container of the controller or of a source."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog
from support import virtual_time
from support.controller import Bench, hpa
from support.references import containers
from support.virtual_time import in_virtual_time

from hpad.adapter import EXTERNAL, Answer, ExternalSample, Query
from hpad.records.history import DecisionHistory
from hpad.sources.limits import CallLimits
from hpad.sources.source import QueriedSource

MANY = 200


class Constant:
    """Answers every query with 10. The queries of one namespace share a call."""

    serves = frozenset({EXTERNAL})
    Settings = msgspec.Struct

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        return [ExternalSample((10_000,), virtual_time.START) for _ in queries]

    def group(self, query: Query) -> str:
        return query.namespace

    async def aclose(self) -> None:
        pass


@in_virtual_time
async def test_deleted_hpas_leave_no_entries() -> None:
    log = DecisionHistory()
    bench = Bench(hpa("stays"), decisions=log)
    source = QueriedSource(
        "mine", Constant(), clock=bench.clock, log=structlog.get_logger(), observer=lambda *call: None,
        limits=CallLimits(rate=1e6),
    )  # fmt: skip

    async def gather(queries: Sequence[Query], *, deadline: float, identity: Any) -> list[Answer]:
        return list(await asyncio.gather(*(source.ask(query) for query in queries)))

    bench.metrics.gather = gather  # type: ignore[method-assign]  # the source's answers
    roots = (bench.controller, source, log)
    running = asyncio.create_task(log.run())
    bench.controller.start()
    await asyncio.sleep(100)
    before = [containers(each) for each in roots]
    for n in range(MANY):
        bench.cluster.scales[f"app-{n}"] = 1
        bench.source.put(hpa(f"app-{n}", uid=str(n)))
    await asyncio.sleep(100)
    full = [containers(each) for each in roots]
    assert sum(size >= MANY for sizes in full for size in sizes.values()) >= 8
    for n in range(MANY):
        bench.source.drop(f"app-{n}")
    await asyncio.sleep(100)
    after = [containers(each) for each in roots]
    grown = {
        path: (old.get(path, 0), size)
        for old, new in zip(before, after, strict=True)
        for path, size in new.items()
        if size > old.get(path, 0) + 1
    }
    assert grown == {}
    running.cancel()
    assert b'hpa_name="app-' not in await bench.telemetry.exposition()
    await bench.controller.stop(5)
