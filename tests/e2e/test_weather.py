"""Faults of the API server, and steps of the clock. See `e2e.steady`.

Each test starts in a steady state, has its fault for some periods, and then doubles the load: the replicas must double
by one write, and nothing else may have been written meanwhile.
"""

import asyncio
import contextlib
import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from e2e.conftest import PERIOD
from e2e.steady import QUICK, STEADY, Recovered, Steady
from support import free_ports

from hpad.clock import SystemClock
from hpad.lab.cluster import Cluster

SPELL = 4 * PERIOD


async def test_an_api_server_restarted_without_its_data(recovered: Recovered, world: Any) -> None:
    """It has the same port, and objects with other resourceVersions and pods with other names."""
    async with contextlib.AsyncExitStack() as stack:
        port = stack.enter_context(free_ports.port())
        first = Cluster(auto_ready=True, port=port)
        await first.start()
        stack.push_async_callback(first.stop)
        world.cluster = first
        before = Steady(world)
        before.prepare()
        await world.hpad(reflector_options=QUICK)
        await before.begin()
        await first.stop()
        await asyncio.sleep(PERIOD)
        world.cluster = await stack.enter_async_context(Cluster(auto_ready=True, port=port))
        after = Steady(world)
        after.prepare()
        await after.begin()
        await after.end("an API server that came back without its history", recovered)


async def test_an_expired_resource_version(recovered: Recovered, world: Any) -> None:
    """During the interruption so many changes happen that the server no longer has the version of the watches."""
    async with Cluster(auto_ready=True, history_limit=20) as forgetful:
        world.cluster = forgetful
        steady = Steady(world)
        steady.prepare()
        await world.hpad(reflector_options=QUICK)
        await steady.begin()
        forgetful.faults.add(path="watch=true", times=None, status=503)
        forgetful.faults.drop_watches()
        for number in range(60):
            config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}}
            forgetful.apply(config_map)
        await asyncio.sleep(SPELL)
        forgetful.faults.clear()
        await steady.end("a resourceVersion that had expired", recovered)


async def test_a_stale_cache_stops_decisions(steady: Steady, recovered: Recovered) -> None:
    """Watches are silent, lists fail, and only metrics arrive: hpad keeps the replicas and names the reason in the HPA.

    It continues afterwards.
    """
    steady.world.cluster.hub.bookmark_seconds = 0.3
    await steady.world.hpad(reflector_options=QUICK, max_staleness=timedelta(seconds=4))
    await steady.begin()
    steady.world.cluster.faults.stall_watches()
    watched = "^/(api/v1|apis/apps|apis/autoscaling)/"
    steady.world.cluster.faults.add(method="GET", path=watched, times=None, status=503)
    await steady.world.until(lambda: steady.world.condition("web", "AbleToScale")[0] == "False")
    _, reason, message = steady.world.condition("web", "AbleToScale")
    assert reason == "StaleCache"
    assert "has received nothing" in message
    steady.world.load("web", lambda pods: 10)
    await steady.world.periods(3)
    assert steady.world.replicas("deployments", "web") == STEADY
    held_back = 'hpad_hpa_held_back{condition="AbleToScale",hpa_name="web",namespace="default",reason="StaleCache"} 1.0'
    series = await steady.world.exposed(held_back)
    (staleness,) = re.findall(r'hpad_cache_staleness_seconds\{resource="pods"\} (.*)', series)
    assert float(staleness) > 4
    steady.world.load("web", lambda pods: 50 * STEADY // max(pods, 1))

    def stale() -> int:
        return sum(reason == "StaleCache" for reason, _ in steady.world.events("web"))

    await steady.world.until(stale)
    await steady.world.periods(2)
    assert stale() == 1
    steady.world.cluster.faults.clear()
    await steady.end("watches that brought nothing for too long", recovered)


class Jumping(SystemClock):
    """A clock whose time of day can be set; its monotonic time is real."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


@pytest.mark.parametrize("hours", [1, -1])
async def test_a_clock_step(steady: Steady, recovered: Recovered, hours: int) -> None:
    """The stabilization window does not end early, which would scale down at once; a scale-up is done at once."""
    clock = Jumping()
    steady.world.hpa("web", behavior=None)
    await steady.world.hpad(reflector_options=QUICK, clock=clock)
    await steady.begin()
    steady.world.load("web", lambda pods: 10)
    await steady.world.until(lambda: steady.world.condition("web", "AbleToScale")[1] == "ScaleDownStabilized")
    clock.ahead = timedelta(hours=hours)
    await steady.world.periods(4)
    assert steady.world.replicas("deployments", "web") == STEADY
    clock.ahead = timedelta(0)
    await steady.world.periods(2)
    await steady.end(f"a clock that jumped by {hours} h and back", recovered)
