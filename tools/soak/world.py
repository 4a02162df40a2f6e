"""The world around hpad in a process of its own: the cluster, the metric source, the weather, and who lives there.

    python -m tools.soak.world HPAS PERIOD SEED WARM_UP

Prints one line of JSON that says where everything is, and goes on until its standard input ends. Beside the loads its
HTTP server answers `GET /state` with what was seen so far, and ends the weather at `POST /calm`.
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
"""In periods: how long a load stays what it is, on average."""
CHURN_PERIODS = 60
"""In so many periods as many HPAs are made, changed or deleted as there are."""
HASTE = 4
"""So many times as fast HPAs come and go, and settings are read anew, while hpad warms up. Python's dictionaries are
made anew, once and for good, with three times the room for what they hold when as many keys have come as there was room
for, however many have gone: those of HPAs, and that of interned strings, are to have been before anybody counts."""


class World:
    """Everything at work; `period` is hpad's, in seconds, and sets the pace of all. `warm_up`: for so many seconds it
    warms up."""

    def __init__(self, hpas: int, period: float, seed: int, warm_up: float) -> None:
        self._rng = random.Random(seed)
        self._hpas = hpas
        self._period = period
        self._warm_up = warm_up
        self.cluster = Cluster(auto_ready=True, resync_seconds=60, history_limit=5000)
        # A reconcile lasts a period at most, with an answer that may be a third of one old already, and the API server
        # takes its time over the write. A watch that broke again and again is tried anew after up to 45 s.
        self.people = Population(self.cluster, hpas, Patience(2 * period + 10, 2 * period + 60), self._rng)
        self.numbers = Numbers(self.people.load, self._rng)
        self._busy: list[asyncio.Task[None]] = []

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator[dict[str, str]]:
        """The addresses of the API server and of the metric source."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.cluster)
            self.relay = Relay(int(self.cluster.url.rpartition(":")[2]))
            await self.relay.start()
            stack.push_async_callback(self.relay.stop)
            self.weather = Weather(self.cluster, self.relay, self.numbers, self._rng, spell=self._period / 2)
            source = await stack.enter_async_context(self._served())
            await self.people.fill()
            tidying = asyncio.create_task(self._every(1.0, lambda: (self.people.burn(), self.people.tidy())))
            self._busy = [
                asyncio.create_task(self.weather.run()),
                asyncio.create_task(self._every(LOAD_SECONDS * self._period / self._hpas, self.people.flap)),
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
                await self._every(seconds / HASTE, self.people.churn)
        await self._every(seconds, self.people.churn)

    async def _every(self, seconds: float, do: Callable[[], object]) -> None:
        """Do it again and again, that far apart, several times in a row where that is shorter than a loop's turn."""
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
        people, ended = self.people, [task for task in self._busy if task.done() and not task.cancelled()]
        return web.json_response(
            {
                "ages": people.ages(),
                "wrong": people.wrong,
                "unsettled": people.unsettled(),
                "faults": self.weather.seen,
                "counts": {
                    "made": people.made,
                    "deleted": people.deleted,
                    "changed": people.changed,
                    "scales": people.scales,
                    "questions": self.numbers.asked,
                    "spoilt": self.numbers.spoilt,
                },
                "failed": [repr(task.exception()) for task in ended],
            }
        )

    async def _calm(self, request: web.Request) -> web.StreamResponse:
        """No more faults, and everything stays as it is."""
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
