"""A member of a shard group: several hpad processes divide the HPAs among themselves.

Each member holds a Lease of its own, which carries its member set (`members`). A round is: publish (write the own
Lease), list (read the Leases of all), assign (`assignment`, which also shows that no HPA has two owners).

- A member that crashes is replaced after its lease duration. A member that is cut off or suspended owns nothing from
  the end of its leadership lease on.
- A member that gives HPAs away stops acting on them, has their state saved, and only then publishes the member set that
  lets the new owner act.
- A new member reads before it publishes, until it knows of each Lease whether it is renewed or has expired. The others
  give HPAs away as soon as they see a new member, and no member would act on them while it still counts a dead one. If
  it finds no other member, it reads for a lease duration, in which members rewrite Leases that were deleted by hand.
- All members together hold the Lease that a leader would hold, under one identity. A leadership lease also requires a
  recent renewal of it. So members exclude a process with leader election, and members with another protocol. The
  first member renews it; the others step in if it does not.
- A request that was sent in time may arrive late. Therefore HPAs that are taken over wait until the writes of two
  members lie a lease duration apart (`controller.handoff`).
"""

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from typing import Final

import structlog

from hpad.api.metadata import Key
from hpad.clock import Clock, Moment
from hpad.election import lease
from hpad.election.assignment import Assignment
from hpad.election.leader import ElectionStatus, LeadershipLease
from hpad.election.members import Member, Members
from hpad.kube import errors
from hpad.settings.model import Election
from hpad.telemetry import Telemetry

IDENTITY: Final = "hpad-shards-1"
"""The holder of the common Lease: members with the same protocol and the same hash."""
EXPIRED: Final = "the Leases were not renewed in time"
_HANDOFF_DIVISOR = 20
"""A changed member set is published after this part of the retry period: a new owner waits for it."""
_WAITING_DIVISOR = 4
"""While this member waits for others, rounds follow after this part of the retry period."""


class State(Enum):
    """What a member does. It owns HPAs in MEMBER and HANDING_OFF, for as long as its leadership lease is valid."""

    OUTSIDE = "publishes nothing: not started, expired, left, or another identity holds the common Lease"
    LOOKING = "reads Leases until it knows which members are alive"
    JOINING = "publishes its Lease and waits for the first assignment"
    MEMBER = "owns its assignment"
    HANDING_OFF = "has lost HPAs whose state must be saved before the next publish"


class Event(Enum):
    """What changes the state of a member."""

    ARRIVED = "the first list of Leases was read"
    ALL_KNOWN = "it is known of each Lease whether its member is alive"
    ASSIGNED = "a round was completed; the assignment is new after a gap, or unchanged"
    REASSIGNED = "a round was completed with another assignment"
    HANDED_OFF = "the state of the HPAs that were lost is saved"
    LOST = "the leadership lease expired or was given up, or another identity holds the common Lease"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.OUTSIDE, Event.ARRIVED): State.LOOKING,
    (State.LOOKING, Event.ALL_KNOWN): State.JOINING,
    (State.JOINING, Event.ASSIGNED): State.MEMBER,
    (State.MEMBER, Event.ASSIGNED): State.MEMBER,
    (State.MEMBER, Event.REASSIGNED): State.HANDING_OFF,
    (State.HANDING_OFF, Event.HANDED_OFF): State.MEMBER,
    (State.OUTSIDE, Event.HANDED_OFF): State.OUTSIDE,  # the leadership lease expired during the handoff
    **{(state, Event.LOST): State.OUTSIDE for state in State},
}


class Shards:
    """Takes part in the group while `run` runs; an `owner.Owner` of this member's HPAs.

    Callbacks of `subscribe` are called on the event loop whenever the answers of `owns` have changed, except for a
    leadership lease that passes its end unnoticed while the process is suspended.
    """

    def __init__(
        self,
        members: Members,
        common: lease.Elector,
        election: Election,
        telemetry: Telemetry,
        clock: Clock,
        *,
        dice: Callable[[], float] = random.random,
    ) -> None:
        self._members = members
        self._common = common
        self._election = election
        self._retry = election.retry_period.total_seconds()
        self._telemetry = telemetry
        self._clock = clock
        self._dice = dice
        self._leadership = LeadershipLease(clock, lambda: self._end(EXPIRED))
        self.state = State.OUTSIDE
        self._assignment: Assignment | None = None
        self._previous: Assignment | None = None
        """In HANDING_OFF: the assignment before the current one."""
        self._others: list[Member] = []
        self._published: frozenset[str] = frozenset()
        self._looking_since = 0.0
        self._may_be_first = True
        """Whether no trace of other members has been found yet, and the search for them has not lasted long enough."""
        self._before_handing_off: list[Callable[[], Awaitable[None]]] = []
        self._log = structlog.get_logger("hpad.shards", member=members.name, identity=members.identity)
        self.status = ElectionStatus(self._log)
        telemetry.election.leads(election.name, False)

    @property
    def leading(self) -> bool:
        """Whether this member may act at this moment."""
        return self._leadership.valid

    @property
    def size(self) -> int:
        """The number of members that divide the HPAs, as far as this one knows; 0 while it owns nothing."""
        return len(self._assignment.members) if self._assignment is not None and self.leading else 0

    def owns(self, key: Key) -> bool:
        return self._assignment is not None and self._leadership.valid and self._assignment.owns(key)

    def may_save(self, key: Key) -> bool:
        """Whether this member may save the state of the HPA: also while it hands the HPA off."""
        if self._previous is not None and self._leadership.valid and self._previous.owns(key):
            return True
        return self.owns(key)

    def subscribe(self, callback: Callable[[], None]) -> None:
        self.status.subscribe(callback)

    def before_handing_off(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Awaits `callback` after this member lost HPAs and before another member may own them."""
        self._before_handing_off.append(callback)

    async def run(self) -> None:
        """Takes part until cancelled; then gives the Lease up, so that others take over at once.

        All work on HPAs must have ended before the cancellation.
        """
        self._log.info("joining the shard group")
        try:
            while True:
                began = self._clock.monotonic()
                await self._try()
                await self._clock.sleep(began + self._pause() - self._clock.monotonic())
        finally:
            await self._leave()

    def _on(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state, event]

    def _pause(self) -> float:
        """Returns the seconds from the start of one round to the next."""
        if self.state is State.LOOKING:
            return self._retry / _WAITING_DIVISOR
        if self._assignment is None:
            return self._retry * (0.75 + self._dice() / 2)
        if self._member_set() != self._published:
            return self._retry / _HANDOFF_DIVISOR
        usual = self._retry if self._assignment.acknowledged_by_all else self._retry / _WAITING_DIVISOR
        expiry = self._members.expiry()
        return usual if expiry is None else min(usual, max(expiry, self._retry / _HANDOFF_DIVISOR))

    async def _try(self) -> None:
        before = self._common.slow_renewals
        try:
            await self._round()
        except errors.ApiError as error:
            self.status.report(f"cannot reach an agreement: {error.message}", trouble=True)
        finally:
            self._telemetry.election.renewed_slowly(self._election.name, self._common.slow_renewals - before)

    async def _round(self) -> None:
        """Raises errors.ApiError; the leadership lease then runs on to its end with the assignment as it is."""
        if self.state in (State.OUTSIDE, State.LOOKING) and not await self._look_around():
            return
        renewed = await self._renewed_common_lease()
        if renewed is None:
            self._stand_by()
            return
        if self.state is State.HANDING_OFF:
            for callback in self._before_handing_off:
                await callback()
            self._previous = None
            self._on(Event.HANDED_OFF)
        published = self._member_set()
        began = await self._members.publish(published)
        self._published = published
        others = await self._members.look()
        await self._assign(others, published, min(began, renewed, key=lambda moment: moment.monotonic))

    def _member_set(self) -> frozenset[str]:
        """Returns the members seen, and this one. A member known only from other sets is left out, since members would
        go on listing it to each other for ever."""
        return frozenset({self._members.name, *(other.name for other in self._others if not other.listed_only)})

    async def _renewed_common_lease(self) -> Moment | None:
        """Returns a moment after which the common Lease was renewed, None while another identity holds it.

        The first member renews it in each round. Another member steps in after two rounds without a renewal, later the
        higher its rank, so that not all of them write at once.
        """
        rank = sorted(self._member_set()).index(self._members.name)
        if rank and await self._common.look():
            renewed = self._common.written_after
            patience = self._retry * (2 + rank / 4)
            if renewed is not None and self._clock.monotonic() - renewed.monotonic <= patience:
                return renewed
        try:
            return await self._common.attempt()
        except errors.ApiError as error:
            if error.conflict and await self._common.look():
                return self._common.written_after  # another member was faster
            raise

    def _stand_by(self) -> None:
        self.status.holder_known = True
        self._end(f"{self._common.holder} leads")
        self.status.report(f"{self._common.holder} leads")

    async def _look_around(self) -> bool:
        """Reads the Leases once; returns whether this member may join.

        The members alive are known after a lease duration at most.
        """
        if self.state is State.OUTSIDE:
            self._members.start_over()
        await self._common.look()
        if self._common.held_by_other():
            self._stand_by()
            return False
        self._others = await self._members.look()
        if self.state is State.OUTSIDE:
            self._looking_since = self._clock.monotonic()
            self._on(Event.ARRIVED)
        waited = self._clock.monotonic() - self._looking_since
        if self._members.others_found or waited >= self._election.lease_duration.total_seconds():
            self._may_be_first = False
        if self._may_be_first or not all(other.renewed for other in self._others):
            self.status.report("reading which members are alive")
            return False
        self._on(Event.ALL_KNOWN)
        return True

    async def _assign(self, others: Iterable[Member], published: frozenset[str], since: Moment) -> None:
        before = self._assignment if self._leadership.valid else None
        self._note(others)
        if not self._leadership.extend(since, self._election.renew_deadline):
            return
        if self.state is State.OUTSIDE:  # the previous grant expired during this round: look around first
            self._leadership.end()
            return
        self.status.holder_known = True
        after = Assignment(self._members.name, {other.name: other.member_set for other in self._others}, published)
        joined = self._assignment is None
        changed = before is not None and after != before
        self._on(Event.REASSIGNED if changed else Event.ASSIGNED)
        if changed or before is None:
            self._assignment, self._previous = after, before
            self._telemetry.election.members(len(after.members))
            self.status.notify()
        if joined:
            self._telemetry.election.leads(self._election.name, True)
            self._members.announce("joined")
        self.status.report(f"sharing the HPAs as one of {self.size} members")
        await self._members.delete_expired()

    def _note(self, others: Iterable[Member]) -> None:
        """Takes over the members seen, and logs which have joined and which have left."""
        before, now = {other.name: other for other in self._others}, {other.name: other for other in others}
        for name in now.keys() - before.keys():
            self._log.info("a member has joined", other=name, other_identity=now[name].identity)
        for name in before.keys() - now.keys():
            self._log.warning("a member has left", other=name, other_identity=before[name].identity)
        self._others = list(now.values())

    def _end(self, why: str, *, as_wanted: bool = False) -> None:
        """Owns nothing from now on. Without a leadership lease there is nothing to report."""
        self._on(Event.LOST)
        if not self._leadership.end():
            return
        self._assignment = self._previous = None
        self._telemetry.election.leads(self._election.name, False)
        self._telemetry.election.members(0)
        self.status.lost("stopped acting as a member", why, as_wanted=as_wanted)
        self._members.announce("left")

    async def _leave(self) -> None:
        self._end("hpad ends", as_wanted=True)
        await self.status.release(self._members.release)
