"""Candidates of one Lease on a server in memory, with networks, clocks and bystanders that misbehave by a seed."""

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
    """Ticks at a rate of its own from a beginning of its own; its wall clock is hours off."""

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


class Server:
    """One Lease with a resourceVersion. `committed` is called with the holders before and after each write of it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.writes = 0
        self.committed: Callable[[str, str], None] = lambda before, after: None

    def answer(self, method: str, body: bytes | None) -> bytes:
        if method == "GET":
            if self.lease is None:
                raise errors.ApiError(404, "NotFound", 'leases.coordination.k8s.io "hpad" not found')
            return json.dumps(self.lease).encode()
        assert body is not None
        wanted = json.loads(body)
        if method == "POST" and self.lease is not None:
            raise errors.ApiError(409, "AlreadyExists", 'leases.coordination.k8s.io "hpad" already exists')
        if method == "PUT" and (
            self.lease is None or wanted["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]
        ):
            raise CONFLICT
        self.commit(wanted)
        return json.dumps(self.lease).encode()

    def commit(self, wanted: dict[str, Any]) -> None:
        before = self.lease["spec"]["holderIdentity"] if self.lease is not None else ""
        self.version += 1
        self.writes += 1
        self.lease = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": str(self.version)}}
        self.committed(before, wanted["spec"]["holderIdentity"])


class Network:
    """A client's way to the server. While `cut`, nothing arrives and nothing is answered.

    With dice, requests take their time, fail before or after they were carried out, or arrive long after nobody waits
    for them any more.
    """

    def __init__(self, server: Server, clock: OddClock, dice: random.Random | None = None) -> None:
        self.clock = clock
        self.cut = False
        self.late: set[asyncio.Task[None]] = set()
        self._server = server
        self._dice = dice

    async def request(
        self, method: str, path: str, *, params: Any = None, body: bytes | None = None, timeout: float | None = None
    ) -> bytes:
        if self.cut:
            await asyncio.get_running_loop().create_future()
        if self._dice is None:
            return self._server.answer(method, body)
        await asyncio.sleep(self._dice.random() * 0.3)
        fate = self._dice.random()
        if fate < 0.05:
            raise errors.ApiError(500, "InternalError", "not today")
        if fate < 0.10 and body is not None:
            self._carry_out_later(method, body)
        if fate < 0.15:
            await asyncio.get_running_loop().create_future()
        answer = self._server.answer(method, body)
        await asyncio.sleep(self._dice.random() * (0.3 if fate < 0.95 else 6.0))
        if fate > 0.97:
            raise errors.ApiError(0, "Connection", "the answer broke off")
        return answer

    def _carry_out_later(self, method: str, body: bytes) -> None:
        delay = self._dice.random() * 8 if self._dice is not None else 0.0

        async def later() -> None:
            await asyncio.sleep(delay)
            try:
                self._server.answer(method, body)
            except errors.ApiError:
                return

        task = asyncio.create_task(later())
        self.late.add(task)
        task.add_done_callback(self.late.discard)


class Switched:
    """What runs in the background until its power switch is turned, on a network of its own."""

    network: Any
    _running: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self._running is not None and not self._running.done()

    def end(self) -> None:
        """Begin an orderly end."""
        if self._running is not None:
            self._running.cancel()

    async def stop(self) -> None:
        """An orderly end; requests that nobody waits for are forgotten."""
        self.end()
        if self._running is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._running
        for task in list(self.network.late):
            task.cancel()


class Candidate(Switched):
    """A candidate, what it was told, and its power switch."""

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
        told = election or Election(enabled=True)
        self.elector = lease.Elector(self.network, told, identity=name)  # type: ignore[arg-type]  # it has its face
        roll = dice.random if dice is not None else lambda: 0.5
        self.leader = Leader(self.elector, told, self.telemetry, self.clock, dice=roll)
        self.turns: list[tuple[float, bool]] = []
        self.leader.subscribe(self._note)

    @property
    def leads(self) -> bool:
        return self.leader.owns(ANY)

    def start(self) -> "Candidate":
        self._running = asyncio.create_task(self.leader.run())
        return self

    async def series(self) -> list[str]:
        text = (await self.telemetry.exposition()).decode()
        return [line for line in text.splitlines() if line.startswith("leader_election_master_status")]

    def _note(self) -> None:
        self.turns.append((asyncio.get_running_loop().time(), self.leads))
