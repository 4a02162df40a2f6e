"""Benchmark of the persistent store: `python tools/bench/store.py` prints bytes and milliseconds per tick.

It measures SQLite and ConfigMaps. Each HPA has two rescales and the history of a five-minute window with a turn every
15 seconds; a tick changes all HPAs. CPU is that of this process; `longest` is the longest block of its event loop. The
embedded API server of the ConfigMaps is another process. A rescale waits for one save of its own record. `--short` uses
20 HPAs.
"""

import asyncio
import contextlib
import multiprocessing
import random
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from hpad.api.metadata import Key
from hpad.clock import SystemClock
from hpad.engine.history import History, Memory, PastRecommendation, Rescale
from hpad.kube import client
from hpad.kube.auth import credentials
from hpad.lab.cluster import Cluster
from hpad.store import configmaps, persistent, sqlite
from hpad.store.store import Backend
from hpad.telemetry import Telemetry

SHORT = "--short" in sys.argv[1:]
SIZES = (20,) if SHORT else (1_000, 10_000)
TICKS = 1 if SHORT else 3
TURN = timedelta(seconds=15)
WINDOW = 21
START = datetime(2026, 1, 1, tzinfo=UTC)
NEVER = persistent.SaveIntervals(shortest=0.0, longest=3600.0)


class Cost(NamedTuple):
    """The cost of one save in seconds; `longest` is the longest block of the event loop."""

    wall: float
    cpu: float
    longest: float


def memory(number: int, tick: int) -> Memory:
    """Returns the memory of an HPA with random counts, times and uid."""
    dice = random.Random(f"{number} {tick}")
    now = START + TURN * (WINDOW + tick)
    moments = [now - TURN * (WINDOW - turn) + timedelta(microseconds=dice.randrange(100_000)) for turn in range(WINDOW)]
    past = tuple(PastRecommendation(moment, 10 + dice.randrange(9)) for moment in moments)
    known = History(past, (Rescale(moments[-3], 2),), (Rescale(moments[-9], 1),))
    uid = str(uuid.UUID(int=random.Random(number).getrandbits(128)))
    return Memory(uid=uid, history=known, at=now, last_count=10 + dice.randrange(9))


def serve(pipe: Connection) -> None:
    """Runs an API server in a separate process, until the other end of the pipe is closed."""

    async def main() -> None:
        async with Cluster(kubelet=False, controllers=False) as cluster:
            pipe.send(cluster.url)
            with contextlib.suppress(EOFError):
                await asyncio.to_thread(pipe.recv)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def in_a_file() -> AsyncIterator[Backend]:
    with tempfile.TemporaryDirectory() as folder:
        yield sqlite.Sqlite(Path(folder) / "history.db", SystemClock())


@contextlib.asynccontextmanager
async def in_the_cluster() -> AsyncIterator[Backend]:
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=serve, args=(theirs,))
    process.start()
    theirs.close()
    try:
        url = await asyncio.to_thread(ours.recv)
        async with client.Client(credentials.ClusterConfig(url), SystemClock()) as api:
            yield configmaps.ConfigMaps(api, "default", "hpad-history")
    finally:
        ours.close()
        await asyncio.to_thread(process.join)


async def timed(keys: list[Key], store: persistent.PersistentStore) -> Cost:
    """Measures until the last of the keys is saved."""
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, time.perf_counter() - before - 0.001)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(store.flush_now, keys))
    cost = Cost(time.perf_counter() - wall, time.process_time() - cpu, longest)
    watching.cancel()
    return cost


async def measure(name: str, backend: Backend, count: int) -> None:
    keys = [Key(f"team-{number % 50}", f"web-{number}") for number in range(count)]
    store = persistent.PersistentStore(backend, SystemClock(), Telemetry(), NEVER)
    running = asyncio.create_task(store.run())
    await store.get_loaded(keys[0])
    costs = []
    for tick in range(TICKS + 1):
        for number, key in enumerate(keys):
            store.put(key, memory(number, tick))
        costs.append(await timed(keys, store))
    store.put(keys[0], msgspec.structs.replace(store.get(keys[0]), last_count=1))
    rescale = await timed(keys[:1], store)
    began = time.perf_counter()
    await backend.load()
    load = time.perf_counter() - began
    tick_cost = min(costs[1:])
    size = await backend.size()
    print(
        f"store {name}, {count:,} HPAs: {size / count:,.0f} bytes an HPA ({size / 1e6:.1f} MB); "
        f"a tick {_ms(tick_cost)}; a rescale {_ms(rescale)}; read in {load * 1e3:.0f} ms"
    )
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await backend.close()


def _ms(cost: Cost) -> str:
    return f"{cost.wall * 1e3:.0f} ms (CPU {cost.cpu * 1e3:.0f}, longest {cost.longest * 1e3:.0f})"


async def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    for count in SIZES:
        for name, opened in (("sqlite", in_a_file), ("configmaps", in_the_cluster)):
            async with opened() as backend:
                await measure(name, backend, count)


if __name__ == "__main__":
    asyncio.run(main())
