"""Leader election: of several hpads with the same Lease one works, the others stand by with warm caches.

A leader's mandate ends `renew_deadline` after the moment before it sent its last successful renewal: earlier than
anybody else may take the Lease, whatever happened to answers, connections or the loop meanwhile. `owns` compares
clocks at each question, so that a process that was stopped and resumed writes nothing on an old mandate.

Unlike the original, which exits, an hpad that loses its mandate becomes a candidate again: its caches are warm, and
nothing it holds depends on having led without a break.

A right to act that ends by itself.

What a candidate or a member makes known: to those in this process who act on it, and to whoever reads the log.
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
    """From a moment on (the one before a renewal was sent), and for so long; by both clocks. The wall clock only ever
    shortens it: it goes on while a suspended machine's monotonic clock stands still.

    `expired` is called, on the loop, when time has run out: by a timer, since no request may stand in its way. `valid`
    compares clocks at each question, so that a process that was stopped and resumed has none even before that.
    """

    def __init__(self, clock: Clock, expired: Callable[[], None]) -> None:
        self._clock = clock
        self._expired = expired
        self._until: Moment | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def valid(self) -> bool:
        """Whether we may act at this very moment."""
        until = self._until
        return until is not None and self._clock.monotonic() < until.monotonic and self._clock.now() < until.wall

    @property
    def given(self) -> bool:
        """Whether it has neither been ended nor been noticed to have run out."""
        return self._until is not None

    def extend(self, begin: Moment, length: timedelta) -> bool:
        """Let it last for `length` from `begin` on; False, and nothing is changed, where that is over already.

        One that ran out while the loop was stalled, so that the timer has not had its turn yet, ends first.
        """
        now = self._clock.monotonic()
        left = begin.monotonic + length.total_seconds() - now
        if left <= 0:
            return False
        if self._until is not None and self._until.monotonic <= now:
            self._run_out()
        self._until = Moment(begin.wall + length, now + left)
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(left, self._run_out)
        return True

    def end(self) -> bool:
        """No more of it; whether there was one."""
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
    """Fed by whoever stands for election or has a share; `log` is their logger.

    `trouble` is what is wrong now, None where nothing is; `agreed`: it has been known at some time who acts.
    """

    def __init__(self, log: Any) -> None:
        self.trouble: str | None = None
        self.agreed = False
        self._log = log
        self._readers: list[Callable[[], None]] = []
        self._said: str | None = None

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have it called whenever there is a `change`."""
        self._readers.append(callback)

    def change(self) -> None:
        """What is ours has changed."""
        for callback in self._readers:
            callback()

    def say(self, text: str, *, trouble: bool = False) -> None:
        """Say how things stand: once, until it is something else."""
        self.trouble = text if trouble else None
        if text != self._said:
            self._said = text
            (self._log.warning if trouble else self._log.info)(text)

    def ended(self, text: str, why: str, *, as_wanted: bool) -> None:
        """Nothing is ours any more: a warning, unless that is as it should be; how things stand is news again."""
        self._said = None
        (self._log.info if as_wanted else self._log.warning)(text, why=why)
        self.change()

    async def release(self, give_up: Callable[[], Awaitable[object]]) -> None:
        """Give a Lease up, as far as the API server lets us."""
        try:
            await give_up()
        except errors.ApiError as error:
            self._log.warning("our Lease was not released; it expires by itself", error=error.message)


LATE = "the Lease was not renewed in time"


class Leader:
    """Stands for election for as long as `run` runs; an `ownership.Owner` of all HPAs or of none.

    `changed` is called, on the loop, whenever the answer of `owns` has changed for a reason other than passing time.
    `status` is what there is to know of that.
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
        self._leadership = LeadershipLease(clock, lambda: self._end(LATE))
        self._leads = False
        self._log = structlog.get_logger("hpad.election", lease=str(elector.key), identity=elector.identity)
        self.status = ElectionStatus(self._log)
        telemetry.election.leads(election.name, False)

    @property
    def leading(self) -> bool:
        """Whether we lead at this very moment."""
        return self._leadership.valid

    def owns(self, key: Key) -> bool:
        return self.leading

    def subscribe(self, callback: Callable[[], None]) -> None:
        self.status.subscribe(callback)

    async def run(self) -> None:
        """Acquire and renew for ever. Cancelled, it gives the Lease up, so that another takes over at once.

        Work must have ended by then.
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
        """A leader renews at a fixed rate; candidates scatter, so that they do not meet again and again."""
        retry = self._election.retry_period.total_seconds()
        if not self._leadership.given:
            return retry * (1 + JITTER * self._dice())
        return max(0.0, began + retry - self._clock.monotonic())

    async def _attempt(self) -> None:
        slow = self._elector.slow
        try:
            moment = await self._elector.attempt()
        except errors.ApiError as error:
            self.status.say(f"cannot reach an agreement: {error.message}", trouble=True)
            return
        finally:
            self._telemetry.election.renewed_slowly(self._election.name, self._elector.slow - slow)
        self.status.agreed = True
        if moment is None:
            self._end(f"{self._elector.holder} leads")
            self.status.say(f"{self._elector.holder} leads")
        else:
            self._lead_from(moment)

    def _lead_from(self, moment: Moment) -> None:
        """A mandate from the moment before the renewal was sent; an answer that took longer than that is worth none."""
        if not self._leadership.extend(moment, self._election.renew_deadline):
            return
        self.status.say("we lead")
        if not self._leads:
            self._leads = True
            self._telemetry.election.leads(self._election.name, True)
            self._elector.announce("became leader")
            self.status.change()

    def _end(self, why: str, *, as_wanted: bool = False) -> None:
        """Stop leading, now; nothing happens if we do not lead."""
        if not self._leadership.end():
            return
        self._leads = False
        self._telemetry.election.leads(self._election.name, False)
        self.status.ended("stopped leading", why, as_wanted=as_wanted)
        self._elector.announce("stopped leading")

    async def _resign(self) -> None:
        self._end("hpad ends", as_wanted=True)
        await self.status.release(self._elector.release)
