"""An HPA that is deleted, or deleted and created again, during its turn."""

import asyncio

from support.controller import Bench, hpa
from support.references import containers
from support.virtual_time import in_virtual_time


async def never() -> None:
    """A metric without an answer."""
    await asyncio.sleep(3600)


@in_virtual_time
async def test_an_hpa_deleted_during_its_turn_leaves_no_record() -> None:
    bench = Bench(hpa("other"))
    bench.controller.start()
    await asyncio.sleep(1)
    before = containers(bench.controller)
    bench.metrics.values["web"], bench.cluster.scales["web"] = never, 1
    bench.source.put(hpa("web"))
    await asyncio.sleep(1)
    during = containers(bench.controller)
    assert len(bench.controller.running()) == 1
    assert any(size > before[path] for path, size in during.items() if path in before)
    bench.source.drop("web")
    await asyncio.sleep(1)
    assert bench.controller.running() == []
    after = containers(bench.controller)
    assert {path: size for path, size in after.items() if size > before.get(path, 0)} == {}
    await bench.controller.stop(5)


@in_virtual_time
async def test_a_recreated_hpa_has_its_first_turn_after_the_cancelled_one() -> None:
    bench = Bench(hpa("web"))
    bench.metrics.values["web"] = never
    bench.controller.start()
    await asyncio.sleep(1)
    bench.source.drop("web")
    bench.source.put(hpa("web"))
    await asyncio.sleep(1)
    assert len(bench.controller.running()) == 1
    assert len(bench.metrics.times("web")) == 2
    await bench.controller.stop(0)
