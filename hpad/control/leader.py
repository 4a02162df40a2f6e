"""Leader election: of several hpads with the same Lease one works, the others stand by with warm caches.

A leader's mandate ends `renew_deadline` after the moment before it sent its last successful renewal: earlier than
anybody else may take the Lease, whatever happened to answers, connections or the loop meanwhile. `owns` compares
clocks at each question, so that a process that was stopped and resumed writes nothing on an old mandate.

Unlike the original, which exits, an hpad that loses its mandate becomes a candidate again: its caches are warm, and
nothing it holds depends on having led without a break.
"""

import random
from collections.abc import Callable

import structlog

from hpad.api.metadata import Key
from hpad.clock import Clock, Moment
from hpad.control.bulletin import Bulletin
from hpad.control.mandate import Mandate
from hpad.election import lease
from hpad.kube import errors
from hpad.model.election import JITTER, Election
from hpad.telemetry import Telemetry

LATE = "the Lease was not renewed in time"


class Leader:
    """Stands for election for as long as `run` runs; an `ownership.Owner` of all HPAs or of none.

    `changed` is called, on the loop, whenever the answer of `owns` has changed for a reason other than passing time.
    `bulletin` is what there is to know of that.
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
        self._mandate = Mandate(clock, lambda: self._end(LATE))
        self._leads = False
        self._log = structlog.get_logger("hpad.election", lease=str(elector.key), identity=elector.identity)
        self.bulletin = Bulletin(self._log)
        telemetry.leads(election.name, False)

    @property
    def leading(self) -> bool:
        """Whether we lead at this very moment."""
        return self._mandate.valid

    def owns(self, key: Key) -> bool:
        return self.leading

    def subscribe(self, callback: Callable[[], None]) -> None:
        self.bulletin.subscribe(callback)

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
        if not self._mandate.given:
            return retry * (1 + JITTER * self._dice())
        return max(0.0, began + retry - self._clock.monotonic())

    async def _attempt(self) -> None:
        slow = self._elector.slow
        try:
            moment = await self._elector.attempt()
        except errors.ApiError as error:
            self.bulletin.say(f"cannot reach an agreement: {error.message}", trouble=True)
            return
        finally:
            self._telemetry.renewed_slowly(self._election.name, self._elector.slow - slow)
        self.bulletin.agreed = True
        if moment is None:
            self._end(f"{self._elector.holder} leads")
            self.bulletin.say(f"{self._elector.holder} leads")
        else:
            self._lead_from(moment)

    def _lead_from(self, moment: Moment) -> None:
        """A mandate from the moment before the renewal was sent; an answer that took longer than that is worth none."""
        if not self._mandate.extend(moment, self._election.renew_deadline):
            return
        self.bulletin.say("we lead")
        if not self._leads:
            self._leads = True
            self._telemetry.leads(self._election.name, True)
            self._elector.announce("became leader")
            self.bulletin.change()

    def _end(self, why: str, *, as_wanted: bool = False) -> None:
        """Stop leading, now; nothing happens if we do not lead."""
        if not self._mandate.end():
            return
        self._leads = False
        self._telemetry.leads(self._election.name, False)
        self.bulletin.ended("stopped leading", why, as_wanted=as_wanted)
        self._elector.announce("stopped leading")

    async def _resign(self) -> None:
        self._end("hpad ends", as_wanted=True)
        await self.bulletin.release(self._elector.release)
