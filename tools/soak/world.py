"""The process with the surroundings of hpad: the cluster, the metric source, the faults, and the HPAs.

    python -m tools.soak.world HPAS PERIOD SEED WARM_UP

Prints one line of JSON with its URLs, and runs until its standard input ends. Its HTTP server has the loads,
`GET /state` for the observations so far, and `POST /calm`, which ends faults and changes.
"""

import asyncio
import contextlib
import json
import random
import sys
from collections.abc import AsyncIterator, Callable

from aiohttp import web
from support.relay import Relay

from hpad.daemon.process import loop_factory
from hpad.lab.cluster import Cluster
from tools.soak.numbers import Numbers
from tools.soak.population import Patience, Population
from tools.soak.weather import Weather

LOAD_SECONDS = 8
"""Average duration of a load, in periods."""
CHURN_PERIODS = 60
"""Number of periods in which as many HPAs are created, changed or deleted as there are."""
HASTE = 4
"""Factor of the churn of HPAs, and of the rate of reloads, during the warm-up.

A Python dictionary is resized for good, to three times its used size, after as many insertions as it had slots, also if
keys were deleted. The dictionaries of HPAs, and that of interned strings, must be resized before the measurement.
"""


class World:
    """Cluster, source, faults and HPAs; `period` is hpad's sync period and `warm_up` the warm-up, in seconds."""

    def __init__(self, hpas: int, period: float, seed: int, warm_up: float) -> None:
        self._rng = random.Random(seed)
        self._hpas = hpas
        self._period = period
        self._warm_up = warm_up
        self.cluster = Cluster(auto_ready=True, resync_seconds=60, history_limit=5000)
        # A reconcile takes at most a period, its metrics may be a third of a period old, and the write may be slow. A
        # watch that failed several times is retried after up to 45 s.
        self.population = Population(self.cluster, hpas, Patience(2 * period + 10, 2 * period + 60), self._rng)
        self.numbers = Numbers(self.population.load, self._rng)
        self._busy: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[dict[str, str]]:
        """Starts everything; yields the URLs of the API server and of the metric source."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.cluster)
            self.relay = Relay(int(self.cluster.url.rpartition(":")[2]))
            await self.relay.start()
            stack.push_async_callback(self.relay.stop)
            self.weather = Weather(self.cluster, self.relay, self.numbers, self._rng, spell=self._period / 2)
            source = await stack.enter_async_context(self._served())
            await self.population.fill()
            tidying = asyncio.create_task(self._every(1.0, lambda: (self.population.burn(), self.population.tidy())))
            self._busy = [
                asyncio.create_task(self.weather.run()),
                asyncio.create_task(self._every(LOAD_SECONDS * self._period / self._hpas, self.population.flap)),
                asyncio.create_task(self._churn(CHURN_PERIODS * self._period / self._hpas)),
            ]
            try:
                yield {"server": f"http://127.0.0.1:{self.relay.port}", "source": source}
            finally:
                for task in (*self._busy, tidying):
                    task.cancel()
                await asyncio.gather(*self._busy, tidying, return_exceptions=True)

    async def _churn(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._warm_up):
                await self._every(seconds / HASTE, self.population.churn)
        await self._every(seconds, self.population.churn)

    async def _every(self, seconds: float, do: Callable[[], object]) -> None:
        """Calls `do` at this interval; several times in a row if the interval is shorter than a loop iteration."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due += seconds
            await asyncio.sleep(max(0.0, due - loop.time()))
            do()

    @contextlib.asynccontextmanager
    async def _served(self) -> AsyncIterator[str]:
        app = web.Application()
        routes = [web.get("/load", self.numbers.answer), web.get("/state", self._state), web.post("/calm", self._calm)]
        app.add_routes(routes)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        try:
            yield f"http://{host}:{port}"
        finally:
            await runner.cleanup()

    async def _state(self, request: web.Request) -> web.StreamResponse:
        population, ended = self.population, [task for task in self._busy if task.done() and not task.cancelled()]
        return web.json_response(
            {
                "ages": population.ages(),
                "wrong": population.wrong,
                "unsettled": population.unsettled(),
                "faults": self.weather.seen,
                "counts": {
                    "made": population.made,
                    "deleted": population.deleted,
                    "changed": population.changed,
                    "scales": population.scales,
                    "requests": self.numbers.asked,
                    "spoilt": self.numbers.spoilt,
                },
                "failed": [repr(task.exception()) for task in ended],
            }
        )

    async def _calm(self, request: web.Request) -> web.StreamResponse:
        """Ends all faults and changes."""
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)
        return web.json_response({})


async def main(hpas: int, period: float, seed: int, warm_up: float) -> None:
    async with World(hpas, period, seed, warm_up).at_work() as where:
        print(json.dumps(where), flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(main(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
