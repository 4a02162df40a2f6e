"""An HPA that is gone leaves nothing behind, in no container of the heartbeat or of a source."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog
from support import virtual_time
from support.controller import Bench, hpa
from support.references import containers

from hpad.adapter import EXTERNAL, Answer, ExternalSample, Query
from hpad.sources.limits import Limits
from hpad.sources.source import Source

MANY = 500


class Counting:
    """Answers everything, and says that all queries share a call."""

    serves = frozenset({EXTERNAL})
    Settings = msgspec.Struct

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        return [ExternalSample((10_000,), virtual_time.START) for _ in queries]

    def group(self, query: Query) -> str:
        return query.namespace

    async def aclose(self) -> None:
        pass


def test_hpas_that_are_gone_leave_nothing() -> None:
    async def main() -> None:
        bench = Bench(hpa("stays"))
        source = Source(
            "mine", Counting(), clock=bench.clock, log=structlog.get_logger(), observer=lambda *told: None,
            limits=Limits(rate=1e6),
        )  # fmt: skip

        async def gather(key: Any, queries: Sequence[Query], *, deadline: float, asker: Any) -> list[Answer]:
            return list(await asyncio.gather(*(source.ask(query) for query in queries)))

        bench.metrics.gather = gather  # type: ignore[method-assign]  # the source's answers
        held = (bench.controller, source)
        bench.controller.start()
        await asyncio.sleep(100)
        before = [containers(each) for each in held]
        for n in range(MANY):
            bench.cluster.scales[f"app-{n}"] = 1
            bench.source.put(hpa(f"app-{n}", uid=str(n)))
        await asyncio.sleep(100)
        full = [containers(each) for each in held]
        assert sum(size >= MANY for sizes in full for size in sizes.values()) >= 8
        for n in range(MANY):
            bench.source.drop(f"app-{n}")
        await asyncio.sleep(100)
        after = [containers(each) for each in held]
        grown = {
            path: (old.get(path, 0), size)
            for old, new in zip(before, after, strict=True)
            for path, size in new.items()
            if size > old.get(path, 0) + 1
        }
        assert grown == {}
        assert b'hpa_name="app-' not in await bench.telemetry.exposition()
        await bench.controller.stop(5)

    virtual_time.run(main())
