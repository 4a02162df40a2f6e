"""A candidate with the rules of client-go's elector, as an opponent of hpad's.

The differences from hpad's: its observation of the Lease restarts with each change of the record, a renewal may take
the whole renew deadline from its start (not from the last success), and a process that lost is started again.
Source: Kubernetes 1.36, client-go/tools/leaderelection/leaderelection.go.
"""

import asyncio
import contextlib
import json
import random
from typing import Any

from support.lease_candidates import Network, OddClock, Server, Switched

from hpad.election import lease
from hpad.kube import errors
from hpad.settings.model import JITTER, Election

FIELDS = ("holderIdentity", "leaseDurationSeconds", "acquireTime", "renewTime", "leaseTransitions")


class Original(Switched):
    """The elector of client-go, with the interface of `Candidate`."""

    def __init__(self, name: str, server: Server, *, clock: OddClock, dice: random.Random) -> None:
        self.name = name
        self.clock = clock
        self.network = Network(server, clock, dice)
        self.leads = False
        self._dice = dice
        self._election = Election()
        self._stored: dict[str, Any] | None = None
        self._record: dict[str, Any] = {}
        self._observed = 0.0

    def start(self) -> "Original":
        self._stored, self._record, self._observed = None, {}, 0.0
        self._running = asyncio.create_task(self._live())
        return self

    async def _live(self) -> None:
        retry = self._election.retry_period.total_seconds()
        try:
            while True:
                while not await self._try():
                    await self.clock.sleep(retry * (1 + JITTER * self._dice.random()))
                self.leads = True
                while await self._renewed():
                    await self.clock.sleep(retry)
                self.leads = False
        finally:
            self.leads = False
            if self._record.get("holderIdentity") == self.name:
                with contextlib.suppress(errors.ApiError, TimeoutError):
                    await self._write(lease.release_spec(self._record, self.clock.now()))

    async def _renewed(self) -> bool:
        retry, deadline = self._election.retry_period.total_seconds(), self._election.renew_deadline.total_seconds()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline / self.clock.rate):
                while not await self._try():
                    await self.clock.sleep(retry)
                return True
        return False

    async def _try(self) -> bool:
        try:
            return await self._acquire_or_renew()
        except (errors.ApiError, TimeoutError):
            return False

    async def _acquire_or_renew(self) -> bool:
        began, now = self.clock.monotonic(), lease.micro_time(self.clock.now())
        mine = {"holderIdentity": self.name, "leaseDurationSeconds": 15, "acquireTime": now, "renewTime": now}
        kept = {name: self._record.get(name) for name in ("acquireTime", "leaseTransitions")}
        if self._record.get("holderIdentity") == self.name and self._valid(began):
            with contextlib.suppress(errors.ApiError, TimeoutError):
                return await self._write({**mine, **kept})
        try:
            await self._read()
        except errors.ApiError as error:
            if not error.not_found:
                raise
            self._stored = None
            return await self._write({**mine, "leaseTransitions": 0})
        holder, transitions = self._record["holderIdentity"], self._record["leaseTransitions"]
        if holder not in ("", self.name) and self._valid(began):
            return False
        if holder == self.name:
            kept = {"acquireTime": self._record["acquireTime"], "leaseTransitions": transitions}
            return await self._write({**mine, **kept})
        return await self._write({**mine, "leaseTransitions": transitions + 1})

    def _valid(self, now: float) -> bool:
        return self._observed + self._record["leaseDurationSeconds"] > now

    async def _read(self) -> None:
        self._stored = await self._ask("GET")
        record = {name: self._stored["spec"][name] for name in FIELDS}
        if record != self._record:
            self._record, self._observed = record, self.clock.monotonic()

    async def _write(self, record: dict[str, Any]) -> bool:
        head = {"name": "hpad"} if self._stored is None else self._stored["metadata"]
        body = json.dumps({"metadata": head, "spec": record}).encode()
        self._stored = await self._ask("POST" if self._stored is None else "PUT", body)
        self._record, self._observed = record, self.clock.monotonic()
        return True

    async def _ask(self, method: str, body: bytes | None = None) -> dict[str, Any]:
        async with asyncio.timeout(5 / self.clock.rate):
            found: dict[str, Any] = json.loads(await self.network.request(method, "", body=body))
            return found
