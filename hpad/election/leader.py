"""Leader election: of several hpad processes with the same Lease, one acts and the others stand by with warm caches.

A leader's leadership lease ends `renew_deadline` after the moment before it sent its last successful renewal. That is
earlier than another process may take the Lease, whatever delays answers, connections or the event loop. `owns` compares
clocks at each call, so a process that was suspended and resumed writes nothing on an old leadership lease.

client-go's leaderelection exits when the lease is lost. Here the process becomes a candidate again: its caches are
warm, and none of its state depends on uninterrupted leadership.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import structlog

from hpad.api.metadata import Key
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
    def given(self) -> bool:
        """Whether it was granted and has neither been ended nor been found expired."""
        return self._until is not None

    def extend(self, begin: Moment, length: timedelta) -> bool:
        """Grants it for `length` from `begin` on. Returns False, without a change, if that has passed already.

        If it expired while the event loop was stalled, before the timer could run, `expired` is called first.
        """
        now = self._clock.monotonic()
        remaining = begin.monotonic + length.total_seconds() - now
        if remaining <= 0:
            return False
        if self._until is not None and self._until.monotonic <= now:
            self._run_out()
        self._until = Moment(begin.wall + length, now + remaining)
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


class ElectionStatus:
    """What a candidate or a member reports: to subscribers in this process, and to the log.

    `trouble` is the present problem, None without one. `holder_known`: since the start, it was known at some time which
    process acts.
    """

    def __init__(self, log: Any) -> None:
        self.trouble: str | None = None
        self.holder_known = False
        self._log = log
        self._readers: list[Callable[[], None]] = []
        self._reported: str | None = None

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Calls `callback` at each `notify`."""
        self._readers.append(callback)

    def notify(self) -> None:
        """Tells the subscribers that this process owns other HPAs than before."""
        for callback in self._readers:
            callback()

    def report(self, text: str, *, trouble: bool = False) -> None:
        """Logs the present state, unless it is the one logged last."""
        self.trouble = text if trouble else None
        if text != self._reported:
            self._reported = text
            (self._log.warning if trouble else self._log.info)(text)

    def lost(self, text: str, why: str, *, as_wanted: bool) -> None:
        """Logs the loss, as a warning unless it was intended, and tells the subscribers."""
        self._reported = None
        (self._log.info if as_wanted else self._log.warning)(text, why=why)
        self.notify()

    async def release(self, give_up: Callable[[], Awaitable[object]]) -> None:
        """Releases a Lease; logs an error of the API server."""
        try:
            await give_up()
        except errors.ApiError as error:
            self._log.warning("the own Lease was not released; it will expire", error=error.message)


EXPIRED = "the Lease was not renewed in time"


class Leader:
    """A candidate while `run` runs; an `owner.Owner` of all HPAs while it leads, and of none otherwise.

    Callbacks of `subscribe` are called on the event loop whenever the answer of `owns` has changed, except for a
    leadership lease that passes its end unnoticed while the process is suspended.
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
        self._elector = elector
        self._election = election
        self._telemetry = telemetry
        self._clock = clock
        self._dice = dice
        self._leadership = LeadershipLease(clock, lambda: self._end(EXPIRED))
        self._leads = False
        self._log = structlog.get_logger("hpad.election", lease=str(elector.key), identity=elector.identity)
        self.status = ElectionStatus(self._log)
        telemetry.election.leads(election.name, False)

    @property
    def leading(self) -> bool:
        """Whether this process leads at this moment."""
        return self._leadership.valid

    def owns(self, key: Key) -> bool:
        return self.leading

    def subscribe(self, callback: Callable[[], None]) -> None:
        self.status.subscribe(callback)

    async def run(self) -> None:
        """Acquires and renews the Lease until cancelled; then releases it, so that another process takes over at once.

        All work on HPAs must have ended before the cancellation.
        """
        self._log.info("standing for election")
        try:
            while True:
                began = self._clock.monotonic()
                await self._attempt()
                await self._clock.sleep(self._pause(began))
        finally:
            await self._resign()

    def _pause(self, began: float) -> float:
        """Returns the seconds to the next attempt: fixed for a leader, random for candidates against collisions."""
        retry = self._election.retry_period.total_seconds()
        if not self._leadership.given:
            return retry * (1 + JITTER * self._dice())
        return max(0.0, began + retry - self._clock.monotonic())

    async def _attempt(self) -> None:
        slow_renewals = self._elector.slow_renewals
        try:
            moment = await self._elector.attempt()
        except errors.ApiError as error:
            self.status.report(f"cannot reach an agreement: {error.message}", trouble=True)
            return
        finally:
            self._telemetry.election.renewed_slowly(self._election.name, self._elector.slow_renewals - slow_renewals)
        self.status.holder_known = True
        if moment is None:
            self._end(f"{self._elector.holder} leads")
            self.status.report(f"{self._elector.holder} leads")
        else:
            self._lead_from(moment)

    def _lead_from(self, moment: Moment) -> None:
        """Leads from `moment`, before the renewal was sent; an answer after the renew deadline grants nothing."""
        if not self._leadership.extend(moment, self._election.renew_deadline):
            return
        self.status.report("this process leads")
        if not self._leads:
            self._leads = True
            self._telemetry.election.leads(self._election.name, True)
            self._elector.announce("became leader")
            self.status.notify()

    def _end(self, why: str, *, as_wanted: bool = False) -> None:
        """Stops leading; does nothing for a process that does not lead."""
        if not self._leadership.end():
            return
        self._leads = False
        self._telemetry.election.leads(self._election.name, False)
        self.status.lost("stopped leading", why, as_wanted=as_wanted)
        self._elector.announce("stopped leading")

    async def _resign(self) -> None:
        self._end("hpad ends", as_wanted=True)
        await self.status.release(self._elector.release)
