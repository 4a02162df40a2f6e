"""Five times as many HPAs as can be reconciled in a period, the API server being slow: those that grow go first."""

import asyncio
import itertools
import statistics
from pathlib import Path
from typing import Any

from aiohttp import web
from support import daemons

PERIOD, WORKERS, SLOW = 2.0, 2, 0.2
IDLE, RISING = 90, 10
"""Each reconcile writes a status, since its reading is never the same: twenty a period are what two workers manage."""
TURNS = 8
"""For each of those that grow, on average; they get three turns out of four."""
HEAD = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}


class Readings:
    """Metrics that never stand still: those of `rising-N` grow by a replica each time they are asked for, the others
    stay within the tolerance."""

    def __init__(self) -> None:
        self.asked: dict[str, list[float]] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        name = request.query["app"]
        times = self.asked.setdefault(name, [])
        times.append(asyncio.get_running_loop().time())
        load = 10 * (len(times) + 1) if name.startswith("rising") else 10 + len(times) % 2 / 2
        return web.json_response({"load": load})

    def since(self, kind: str, moment: float) -> int:
        """How often those of that kind were asked for from then on."""
        return sum(at >= moment for name, times in self.asked.items() if name.startswith(kind) for at in times)

    def gaps(self, kind: str, since: float) -> list[float]:
        """Seconds from one question to the next, of all HPAs of that kind."""
        found = []
        for name, times in self.asked.items():
            late = [each for each in times if each >= since]
            if name.startswith(kind):
                found += [after - before for before, after in itertools.pairwise(late)]
        return found


def fill(cluster: Any, name: str) -> None:
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "app"}]}},
    }
    cluster.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec})
    metric = {"name": "load", "selector": {"matchLabels": {"app": name}}}
    target = {"type": "AverageValue", "averageValue": "10"}
    scaling = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "maxReplicas": 200,
        "behavior": {"scaleUp": {"policies": [{"type": "Percent", "value": 900, "periodSeconds": 15}]}},
        "metrics": [{"type": "External", "external": {"metric": metric, "target": target}}],
    }
    cluster.apply({**HEAD, "metadata": {"name": name}, "spec": scaling})


async def test_under_overload_those_that_grow_go_first_and_nobody_is_left(world: Any, tmp_path: Path) -> None:
    readings = Readings()
    for number in range(RISING):
        fill(world.cluster, f"rising-{number}")
    for number in range(IDLE):
        fill(world.cluster, f"idle-{number}")
    world.cluster.faults.add(method="PATCH|PUT", times=None, delay=SLOW)
    app = web.Application()
    app.add_routes([web.get("/load", readings.answer)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/load"
    numbers = {
        "adapter": "http-json",
        "metrics": {"load": {"url": url, "path": "load", "params": ["app"]}},
        "limits": {"rate": 1000, "fresh": "0s"},
    }
    try:
        async with daemons.running(
            world.cluster, tmp_path, sync_period=f"{PERIOD}s", workers=WORKERS, sources={"numbers": numbers}
        ) as hpad:
            address = await hpad.at_work()
            await world.until(lambda: len(readings.asked) == RISING + IDLE)  # the first time nobody is in a hurry
            since = asyncio.get_running_loop().time()
            await world.until(lambda: readings.since("rising", since) >= TURNS * RISING)
            series = await daemons.series(address)
    finally:
        await runner.cleanup()
    rising, idle = readings.gaps("rising", since), readings.gaps("idle", since)
    print(f"rising: {len(rising)}, {statistics.median(rising):.2f}s apart; idle: {len(idle)},", end=" ")
    print(f"{statistics.median(idle or [0]):.2f}s; depth {series['workqueue_depth']}")
    assert not idle or statistics.median(idle) > 1.5 * statistics.median(rising)
    turns = [readings.since(kind, since) for kind in ("idle", "rising")]
    assert turns[0] >= turns[1] / 5  # one turn in four is not for those in a hurry
