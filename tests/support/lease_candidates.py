"""Candidates of one Lease on a server in memory, with faults of networks and clocks that follow from a seed."""

import asyncio
import contextlib
import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from support import virtual_time

from hpad.api.metadata import Key
from hpad.election import lease
from hpad.election.leader import Leader
from hpad.kube import errors
from hpad.settings.model import Election
from hpad.telemetry import Telemetry

ANY = Key("default", "web")
CONFLICT = errors.ApiError(409, "Conflict", "the object has been modified")


class OddClock:
    """A clock with its own rate and start; its wall clock is off by `skew`."""

    def __init__(self, rate: float = 1.0, offset: float = 0.0, skew: timedelta = timedelta(0)) -> None:
        self.rate = rate
        self.offset = offset
        self.skew = skew

    def now(self) -> datetime:
        return virtual_time.START + timedelta(seconds=self.monotonic() - self.offset) + self.skew

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() * self.rate + self.offset

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds) / self.rate)


def odd(dice: random.Random) -> OddClock:
    """Returns a clock that runs up to 10 % fast or slow, and is hours off."""
    return OddClock(dice.uniform(0.9, 1.1), dice.uniform(0, 1e6), timedelta(hours=dice.uniform(-9, 9)))


class Server:
    """One Lease with a resourceVersion. `committed` is called with the holders before and after each write of it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.writes = 0
        self.committed: Callable[[str, str], None] = lambda before, after: None

    def answer(self, method: str, path: str, params: Any, body: bytes | None) -> bytes:
        if method == "GET":
            if self.lease is None:
                raise errors.ApiError(404, "NotFound", 'leases.coordination.k8s.io "hpad" not found')
            return json.dumps(self.lease).encode()
        assert body is not None
        sent = json.loads(body)
        if method == "POST" and self.lease is not None:
            raise errors.ApiError(409, "AlreadyExists", 'leases.coordination.k8s.io "hpad" already exists')
        if method == "PUT" and (
            self.lease is None or sent["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]
        ):
            raise CONFLICT
        self.commit(sent)
        return json.dumps(self.lease).encode()

    def commit(self, sent: dict[str, Any]) -> None:
        before = self.lease["spec"]["holderIdentity"] if self.lease is not None else ""
        self.version += 1
        self.writes += 1
        self.lease = {**sent, "metadata": {**sent["metadata"], "resourceVersion": str(self.version)}}
        self.committed(before, sent["spec"]["holderIdentity"])


class Network:
    """The connection of a client to a server in memory. While `cut`, no request arrives and no answer comes back.

    With dice, requests are slow, fail before or after they were carried out, or arrive long after the client gave up.
    A roll below `fails`, `late` or `hangs`, or above `slow` or `breaks`, decides the fate of a request.
    """

    fails, late_below, hangs, slow, breaks = 0.05, 0.10, 0.15, 0.95, 0.97
    latency, latest = 0.0, 8.0
    """Seconds that a request takes without dice; the longest delay of a late one."""

    def __init__(self, server: Any, clock: OddClock, dice: random.Random | None = None) -> None:
        self.clock = clock
        self.cut = False
        self.late: set[asyncio.Task[None]] = set()
        self.dice = dice
        self._server = server

    def calm(self) -> None:
        """Ends all faults; requests that are late already still arrive."""
        self.cut, self.dice = False, None

    async def request(
        self, method: str, path: str, *, params: Any = None, body: bytes | None = None, timeout: float | None = None
    ) -> bytes:
        if self.cut:
            await asyncio.get_running_loop().create_future()
        dice = self.dice
        if dice is None:
            await asyncio.sleep(self.latency)
            return self._server.answer(method, path, params, body)
        await asyncio.sleep(dice.random() * 0.3)
        fate = dice.random()
        if fate < self.fails:
            raise errors.ApiError(500, "InternalError", "not today")
        if fate < self.late_below and body is not None:
            self._carry_out_later(dice.random() * self.latest, method, path, params, body)
        if fate < self.hangs:
            await asyncio.get_running_loop().create_future()
        answer = self._server.answer(method, path, params, body)
        await asyncio.sleep(dice.random() * (0.3 if fate < self.slow else 6.0))
        if fate > self.breaks or self.cut:
            raise errors.ApiError(0, "Connection", "the connection was lost")
        return answer

    def _carry_out_later(self, delay: float, *request: Any) -> None:
        async def later() -> None:
            await asyncio.sleep(delay)
            with contextlib.suppress(errors.ApiError):
                self._server.answer(*request)

        task = asyncio.create_task(later())
        self.late.add(task)
        task.add_done_callback(self.late.discard)


class Switched:
    """A process with a network of its own, which a test starts and ends."""

    network: Any
    _running: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._running is not None and not self._running.done()

    def end(self) -> None:
        """Begins an orderly end."""
        if self._running is not None:
            self._running.cancel()

    async def stop(self) -> None:
        """Ends in an orderly way; drops late requests."""
        self.end()
        if self._running is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        for task in list(self.network.late):
            task.cancel()


class Candidate(Switched):
    """A candidate in a process of its own. `turns`: the times of its callbacks, and whether it led then."""

    def __init__(
        self,
        name: str,
        server: Server,
        *,
        election: Election | None = None,
        clock: OddClock | None = None,
        dice: random.Random | None = None,
    ) -> None:
        self.name = name
        self.clock = clock or OddClock()
        self.network = Network(server, self.clock, dice)
        self.telemetry = Telemetry()
        settings = election or Election(enabled=True)
        self.elector = lease.Elector(self.network, settings, identity=name)  # type: ignore[arg-type]  # a client without HTTP
        roll = dice.random if dice is not None else lambda: 0.5
        self.leader = Leader(self.elector, settings, self.telemetry, self.clock, dice=roll)
        self.turns: list[tuple[float, bool]] = []
        self.leader.subscribe(self._note)

    @property
    def leads(self) -> bool:
        return self.leader.leading

    def start(self) -> "Candidate":
        self._running = asyncio.create_task(self.leader.run())
        return self

    async def series(self) -> list[str]:
        text = (await self.telemetry.exposition()).decode()
        return [line for line in text.splitlines() if line.startswith("leader_election_master_status")]

    def _note(self) -> None:
        self.turns.append((virtual_time.now(), self.leads))
