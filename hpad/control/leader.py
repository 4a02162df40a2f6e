"""Leader election: of several hpads with the same Lease one works, the others stand by with warm caches.

A leader's mandate ends `renew_deadline` after the moment before it sent its last successful renewal: earlier than
anybody else may take the Lease, whatever happened to answers, connections or the loop meanwhile. `owns` compares
clocks at each question, so that a process that was stopped and resumed writes nothing on an old mandate.

Unlike the original, which exits, an hpad that loses its mandate becomes a candidate again: its caches are warm, and
nothing it holds depends on having led without a break.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import structlog

from hpad.clock import Clock
from hpad.kube import errors, lease
from hpad.model.election import JITTER, Election
from hpad.model.key import Key
from hpad.telemetry import Telemetry

LATE = "the Lease was not renewed in time"


class Mandate(NamedTuple):
    """Until when we lead, by both clocks.

    The wall clock only ever shortens it: it goes on while a suspended machine's monotonic clock stands still.
    """

    monotonic: float
    wall: datetime


class Leader:
    """Stands for election for as long as `run` runs; an `ownership.Owner` of all HPAs or of none.

    `changed` is called, on the loop, whenever the answer of `owns` has changed for a reason other than passing time.
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
        self._mandate: Mandate | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._changed: list[Callable[[], None]] = []
        self._said: str | None = None
        self._log = structlog.get_logger("hpad.election").bind(lease=str(elector.key), identity=elector.identity)
        telemetry.leads(election.name, False)

    @property
    def leading(self) -> bool:
        """Whether we lead at this very moment."""
        held = self._mandate
        return held is not None and self._clock.monotonic() < held.monotonic and self._clock.now() < held.wall

    def owns(self, key: Key) -> bool:
        return self.leading

    def subscribe(self, callback: Callable[[], None]) -> None:
        self._changed.append(callback)

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
        if self._mandate is None:
            return retry * (1 + JITTER * self._dice())
        return max(0.0, began + retry - self._clock.monotonic())

    async def _attempt(self) -> None:
        slow = self._elector.slow
        try:
            moment = await self._elector.attempt()
        except errors.ApiError as error:
            self._say(f"cannot reach an agreement: {error.message}", trouble=True)
            return
        finally:
            self._telemetry.renewed_slowly(self._election.name, self._elector.slow - slow)
        if moment is None:
            self._end(f"{self._elector.holder} leads")
            self._say(f"{self._elector.holder} leads")
        else:
            self._lead_from(moment)

    def _lead_from(self, moment: lease.Moment) -> None:
        """A mandate from the moment before the renewal was sent; an answer that took longer than that is worth none."""
        deadline = self._election.renew_deadline
        left = moment.monotonic + deadline.total_seconds() - self._clock.monotonic()
        if left <= 0:
            return
        if self._mandate is not None and self._mandate.monotonic <= self._clock.monotonic():
            self._end(LATE)  # the loop was stalled, and the timer has not had its turn yet
        before, self._mandate = self._mandate, Mandate(self._clock.monotonic() + left, moment.wall + deadline)
        self._wind(left)
        if before is None:
            self._telemetry.leads(self._election.name, True)
            self._elector.announce("became leader")
            self._say("we lead")
            self._tell()

    def _wind(self, seconds: float) -> None:
        """Have the mandate end by itself then; a timer of the loop, since no request may stand in its way."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = asyncio.get_running_loop().call_later(seconds, self._end, LATE)

    def _end(self, why: str) -> None:
        """Stop leading, now; nothing happens if we do not lead."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self._mandate is None:
            return
        self._mandate = None
        self._telemetry.leads(self._election.name, False)
        self._log.warning("stopped leading", why=why)
        self._said = None
        self._tell()
        self._elector.announce("stopped leading")

    def _tell(self) -> None:
        for callback in self._changed:
            callback()

    def _say(self, text: str, *, trouble: bool = False) -> None:
        """Say what is new, once."""
        if text != self._said:
            self._said = text
            (self._log.warning if trouble else self._log.info)(text)

    async def _resign(self) -> None:
        self._end("hpad ends")
        try:
            await self._elector.release()
        except errors.ApiError as error:
            self._log.warning("the Lease was not released; it expires by itself", error=error.message)
