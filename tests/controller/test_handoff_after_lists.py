"""First turns of gained HPAs that the watch had left out: they come after a list, and count from what it shows."""

import asyncio
import itertools
from datetime import timedelta

import msgspec
import pytest
from support.controller import Bench, Named, hpa
from support.virtual_time import in_virtual_time

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.engine.history import Memory

WEB = Key("default", "web")


@pytest.mark.parametrize(("ago", "expected"), [(3.0, 5.0), (30.0, 0.0)])
@in_virtual_time
async def test_a_first_turn_counts_from_the_last_write_that_a_list_shows(ago: float, expected: float) -> None:
    """The watch has left the HPA out, so that its changes are known only once everything is listed again."""
    owner = Named()
    bench = Bench(hpa("web"), owner=owner, period=5.0, cooldown=2.0, lease=8.0, foreign_turns=False)
    bench.controller.start()
    await asyncio.sleep(20)
    bench.store.put(WEB, Memory(uid="1", at=bench.clock.now() - timedelta(seconds=60)))
    bench.cluster.listing.add("default")
    bench.source.listed.clear()
    owner.names = {"web"}
    bench.handoff.changed()
    await asyncio.sleep(4)
    bench.source.put(msgspec.structs.replace(hpa("web"), status=HorizontalPodAutoscalerStatus(desired_replicas=3)))
    bench.handoff.status_written(WEB, ago)
    bench.cluster.listing.clear()
    bench.source.listed.set()
    began = bench.clock.monotonic()
    await asyncio.sleep(20)
    assert bench.metrics.times("web")[0] - began == pytest.approx(expected, abs=0.01)
    await bench.controller.stop(5)


@in_virtual_time
async def test_a_list_that_takes_long_suspends_no_hpa_that_has_turns_meanwhile() -> None:
    owner = Named()
    bench = Bench(hpa("web"), owner=owner, period=5.0, cooldown=17.0, foreign_turns=False)
    bench.controller.start()
    await asyncio.sleep(20)
    bench.source.listed.clear()
    owner.names = {"web"}
    bench.handoff.changed()
    await asyncio.sleep(45)
    bench.source.listed.set()
    await asyncio.sleep(30)
    times = bench.metrics.times("web")
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) == pytest.approx(5.0)
    await bench.controller.stop(5)


@in_virtual_time
async def test_an_hpa_that_a_list_finds_where_another_replica_has_decided_has_the_cooldown_of_a_gained_one() -> None:
    bench = Bench(owner=Named("web"), period=5.0, cooldown=17.0, foreign_turns=False)
    bench.cluster.scales["web"] = 1
    bench.controller.start()
    await asyncio.sleep(20)
    bench.store.put(WEB, Memory(uid="1", at=bench.clock.now() - timedelta(seconds=4)))
    began = bench.clock.monotonic()
    bench.cluster.listing.add("default")
    bench.source.put(hpa("web"))
    await asyncio.sleep(2)
    bench.cluster.listing.clear()
    bench.handoff.changed()
    await asyncio.sleep(30)
    assert bench.metrics.times("web")[0] - began == pytest.approx(13.0, abs=0.01)
    await bench.controller.stop(5)
