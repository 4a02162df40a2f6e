"""Leader election: of several hpad processes with the same Lease, one acts and the others stand by with warm caches.

A leader's leadership lease ends `renew_deadline` after the moment before it sent its last successful renewal. That is
earlier than another process may take the Lease, whatever delays answers, connections or the event loop. `leading`
compares clocks at each call, so a process that was suspended and resumed writes nothing on an old leadership lease.

client-go's leaderelection exits when the lease is lost. Here the process becomes a candidate again: its caches are
warm, and none of its state depends on uninterrupted leadership.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import structlog
from msgspec.structs import replace

from hpad.clock import Clock, Moment
from hpad.election import lease
from hpad.kube import errors
from hpad.settings.model import JITTER, Election
from hpad.telemetry import Telemetry


class LeadershipLease:
    """The right to act, from the moment before a renewal was sent, for a limited time.

    Both clocks limit it. The wall clock only ever shortens it: it goes on while the monotonic clock of a suspended
    machine stands still. A timer calls `expired` on the event loop at the end.
    """

    def __init__(self, clock: Clock, expired: Callable[[], None]) -> None:
        self._clock = clock
        self._expired = expired
        self._until: Moment | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def valid(self) -> bool:
        """Whether this process may act at this moment, by both clocks."""
        until = self._until
        return until is not None and self._clock.monotonic() < until.monotonic and self._clock.now() < until.wall

    @property
    def remaining(self) -> float:
        """The seconds for which this process may still act, by both clocks; 0 if it may not."""
        until = self._until
        if until is None:
            return 0.0
        left = min(until.monotonic - self._clock.monotonic(), (until.wall - self._clock.now()).total_seconds())
        return max(0.0, left)

    @property
    def granted(self) -> bool:
        """Whether it was granted and has neither been ended nor been found expired."""
        return self._until is not None

    def extend(self, begin: Moment, length: timedelta) -> bool:
        """Grants the lease for `length` from `begin` on. Returns False, without a change, if that time has passed.

        If it expired while the event loop was stalled, before the timer could run, `expired` is called first.
        """
        now = self._clock.monotonic()
        remaining = begin.monotonic + length.total_seconds() - now
        if remaining <= 0:
            return False
        if self._until is not None and self._until.monotonic <= now:
            self._run_out()
        self._until = replace(begin, wall=begin.wall + length, monotonic=now + remaining)
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(remaining, self._run_out)
        return True

    def end(self) -> bool:
        """Ends it; returns whether it was granted."""
        self._stop_timer()
        had, self._until = self._until is not None, None
        return had

    def _run_out(self) -> None:
        if self._until is not None:
            self._expired()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class KnownReplica(NamedTuple):
    """One process, as this one knows it; `role` is single (without election), leader or standby."""

    identity: str
    role: str

    @property
    def decides(self) -> bool:
        """Whether it acts on HPAs."""
        return self.role != "standby"


EXPIRED = "the Lease was not renewed in time"


class Leader:
    """A candidate while `run` runs; the `owner.Authority` of a process that takes part in an election.

    `trouble` is the present problem with the Lease, None without one; a Lease that another process holds is none.
    `holder_known`: since the start, it was known at some time which process acts, so that this one can take over.

    Callbacks of `subscribe` are called on the event loop whenever `leading` has changed, except for a leadership lease
    that passes its end unnoticed while the process is suspended.
    """

    def __init__(
        self,
        elector: lease.Elector,
        election: Election,
        telemetry: Telemetry,
        clock: Clock,
        *,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.trouble: str | None = None
        self.holder_known = False
        self._elector = elector
        self._election = election
        self._retry = election.retry_period.total_seconds()
        self._telemetry = telemetry.election
        self._clock = clock
        self._dice = dice
        self._log: Any = structlog.get_logger("hpad.election", lease=str(elector.key), identity=elector.identity)
        self._leadership = LeadershipLease(clock, lambda: self._end(EXPIRED))
        self._leads = False
        self._subscribers: list[Callable[[], None]] = []
        self._reported: str | None = None
        self._telemetry.leads(election.name, False)

    @property
    def leading(self) -> bool:
        """Whether this process may act at this moment."""
        return self._leadership.valid

    @property
    def remaining(self) -> float:
        """The seconds for which this process may still act without another renewal."""
        return self._leadership.remaining

    def subscribe(self, callback: Callable[[], None]) -> None:
        self._subscribers.append(callback)

    def replicas(self) -> tuple[KnownReplica, ...]:
        """Returns the known processes, this one first. A leader knows no standby, and a standby only the leader."""
        own = self._elector.identity
        if self.leading:
            return (KnownReplica(own, "leader"),)
        if not self._elector.held_by_other():
            return (KnownReplica(own, "standby"),)
        return KnownReplica(own, "standby"), KnownReplica(self._elector.holder, "leader")

    async def run(self) -> None:
        """Takes part until cancelled; then releases the Lease, so that another process takes over at once.

        All work on HPAs must have ended before the cancellation.
        """
        self._log.info("standing for election")
        try:
            while True:
                began = self._clock.monotonic()
                await self._attempt()
                await self._clock.sleep(self._pause(began))
        finally:
            self._end("hpad ends", intended=True)
            try:
                await self._elector.release()
            except errors.ApiError as error:
                self._log.warning("the own Lease was not released; it will expire", error=error.message)

    def _pause(self, began: float) -> float:
        """Returns the seconds until the round after the one that began at `began`."""
        if not self._leadership.granted:
            # Random, so that candidates do not write at the same moment when a Lease expires.
            return self._retry * (1 + JITTER * self._dice())
        return max(0.0, began + self._retry - self._clock.monotonic())

    async def _attempt(self) -> None:
        """Makes one round. After a failed one the leadership lease runs on to its end."""
        slow_renewals = self._elector.slow_renewals
        try:
            await self._round()
        except errors.ApiError as error:
            what = f"cannot be acquired or renewed: {error.message}"
            self.trouble = f"the Lease {self._elector.key} {what}"
            self._report(f"the Lease {what}", self._log.warning)
        else:
            self.trouble = None
        finally:
            self._telemetry.renewed_slowly(self._election.name, self._elector.slow_renewals - slow_renewals)

    async def _round(self) -> None:
        """Acquires or renews once. Raises errors.ApiError."""
        moment = await self._elector.attempt()
        self.holder_known = True
        if moment is None:
            self._end(f"{self._elector.holder} leads")
            self._report(f"{self._elector.holder} leads", self._log.info)
            return
        if not self._leadership.extend(moment, self._election.renew_deadline):
            return  # the answer came after the renew deadline
        self._report("this process leads", self._log.info)
        if not self._leads:
            self._leads = True
            self._telemetry.leads(self._election.name, True)
            self._elector.announce("became leader")
            self._notify()

    def _end(self, why: str, *, intended: bool = False) -> None:
        """Gives up the leadership lease; if it was granted, logs that, as a warning unless intended, and notifies."""
        if not self._leadership.end():
            return
        self._telemetry.leads(self._election.name, False)
        self._reported = None
        (self._log.info if intended else self._log.warning)("stopped leading", why=why)
        self._notify()
        self._leads = False
        self._elector.announce("stopped leading")

    def _notify(self) -> None:
        for callback in self._subscribers:
            callback()

    def _report(self, text: str, write: Callable[[str], None]) -> None:
        """Logs the present state, unless it is the one logged last."""
        if text != self._reported:
            self._reported = text
            write(text)
