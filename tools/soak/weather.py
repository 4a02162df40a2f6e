"""Causes faults of the API server, the connection and the metric source in turn, in the order of a seeded generator."""

import asyncio
import functools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from support.relay import Relay

from hpad.lab.cluster import Cluster
from tools.soak.numbers import TROUBLES, Numbers

WATCH = "watch=true"
_SHORTEST, _LONGEST = 0.5, 1.5
ANSWERS: dict[str, dict[str, Any]] = {
    "410 to watches": {"path": WATCH, "status": 410},
    "409 to writes of scales": {"method": "PUT", "path": "/scale", "status": 409},
    "409 to writes of statuses": {"method": "PATCH|PUT", "path": "/status", "status": 409},
    "429": {"status": 429, "retry_after": 1},
    "500": {"status": 500},
    "504": {"status": 504},
    "slow answers": {"delay": 0.7},
    "half answers": {"truncate": True},
    "garbage": {"body": "<html>maintenance</html>"},
    "garbage to watches": {"path": WATCH, "body": '{"type":"MODIFIED","object":{"meta\n\x00{}\n'},
    "resets": {"reset": True},
    "no metrics API": {"path": "metrics.k8s.io", "status": 503},
}


class Weather:
    """Faults of `spell` seconds on average, with pauses of the same length; `seen` counts them.

    Each kind happens once in its worst form, with the longest duration, before random ones. So the peaks of memory
    under each fault, and the fragmentation that they cause, come before the measurement.
    """

    def __init__(self, cluster: Cluster, relay: Relay, numbers: Numbers, rng: random.Random, *, spell: float) -> None:
        self.seen: Counter[str] = Counter()
        self._cluster = cluster
        self._relay = relay
        self._numbers = numbers
        self._rng = rng
        self._spell = spell

    async def run(self) -> None:
        """Runs until cancelled, and then ends all faults."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            *[self._answers] * 5, *[self._source] * 4, self._drops, self._restart, self._forgets,
        ]  # fmt: skip
        try:
            for spell in self._worst():
                await self._wait_spell()
                await spell()
            while True:
                await self._wait_spell()
                await self._rng.choice(kinds)()
        finally:
            self._clear()

    def _worst(self) -> list[Callable[[], Awaitable[None]]]:
        """Returns all kinds of faults in their worst form, in random order."""
        found: list[Callable[[], Awaitable[None]]] = [self._drops, self._forgets]
        found += [functools.partial(self._restart, worst=True)]
        found += [functools.partial(self._answers, what, worst=True) for what in ANSWERS]
        found += [functools.partial(self._source, what, worst=True) for what in TROUBLES]
        self._rng.shuffle(found)
        return found

    async def _wait_spell(self, worst: bool = False) -> None:
        await asyncio.sleep(self._spell * (_LONGEST if worst else self._rng.uniform(_SHORTEST, _LONGEST)))

    def _clear(self) -> None:
        self._cluster.faults.clear()
        self._numbers.trouble = None

    async def _answers(self, what: str | None = None, *, worst: bool = False) -> None:
        """Breaks all requests of a kind, by default a random one, sometimes after dropping the watches."""
        what = what or self._rng.choice(list(ANSWERS))
        self.seen[what] += 1
        if worst or self._rng.random() < 0.5:
            self._cluster.faults.drop_watches()
        self._cluster.faults.add(times=None, **ANSWERS[what])
        await self._wait_spell(worst)
        self._clear()

    async def _source(self, what: str | None = None, *, worst: bool = False) -> None:
        """Breaks a share of the source's answers, by default in a random way."""
        what = what or self._rng.choice(TROUBLES)
        self.seen[f"source: {what}"] += 1
        self._numbers.trouble, self._numbers.share = what, 1.0 if worst else self._rng.choice([0.1, 0.5, 1.0])
        await self._wait_spell(worst)
        self._clear()

    async def _drops(self) -> None:
        self.seen["dropped watches"] += 1
        for _ in range(4):
            self._cluster.faults.drop_watches()
            await asyncio.sleep(self._spell / 8)

    async def _restart(self, *, worst: bool = False) -> None:
        """Refuses connections for a while, after resetting all open ones."""
        self.seen["restart"] += 1
        await self._relay.pause()
        try:
            await self._wait_spell(worst)
        finally:
            await self._relay.start()

    async def _forgets(self) -> None:
        """Compacts the history while the watches are interrupted."""
        self.seen["compaction"] += 1
        self._cluster.faults.add(path=WATCH, times=None, status=503)
        self._cluster.faults.drop_watches()
        await asyncio.sleep(self._spell / 2)
        self._cluster.store.compact()
        self._clear()
