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
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import Final

import structlog

from hpad.api.metadata import Key
from hpad.clock import Clock, Moment
from hpad.election import lease
from hpad.election.assignment import UNITS, Assignment, first
from hpad.election.leader import Participant, Replica
from hpad.election.members import Member, Members
from hpad.kube import errors
from hpad.settings.model import SHARD_BY_HPA, SHARD_BY_NAMESPACE, Election
from hpad.telemetry import Telemetry

_IDENTITIES: Final = {SHARD_BY_HPA: "hpad-shards-1", SHARD_BY_NAMESPACE: "hpad-shards-by-namespace-1"}


def identity(election: Election) -> str:
    """Returns the holder of the common Lease: it stands for members with the same protocol and the same hash."""
    return _IDENTITIES[election.shard_by]


_HANDOFF_DIVISOR = 20
"""A changed member set is published after this part of the retry period: a new owner waits for it."""
_WAITING_DIVISOR = 4
"""While this member waits for others, rounds follow after this part of the retry period."""


class State(Enum):
    """What a member does. It owns HPAs in MEMBER and HANDING_OFF, for as long as its leadership lease is valid."""

    OUTSIDE = "publishes nothing: not started, expired, left, or another identity holds the common Lease"
    OBSERVING = "reads Leases until it knows which members are alive"
    JOINING = "publishes its Lease and waits for the first assignment"
    MEMBER = "owns its assignment"
    HANDING_OFF = "has lost HPAs whose state must be saved before the next publish"


class Event(Enum):
    """What changes the state of a member."""

    ARRIVED = "the first list of Leases was read"
    ALL_KNOWN = "it is known for each Lease whether its member is alive"
    ASSIGNED = "a round was completed; the assignment is new after a gap, or unchanged"
    REASSIGNED = "a round was completed with another assignment"
    HANDED_OFF = "the state of the HPAs that were lost is saved"
    LOST = "the leadership lease expired or was given up, or another identity holds the common Lease"


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.OUTSIDE, Event.ARRIVED): State.OBSERVING,
    (State.OBSERVING, Event.ALL_KNOWN): State.JOINING,
    (State.JOINING, Event.ASSIGNED): State.MEMBER,
    (State.MEMBER, Event.ASSIGNED): State.MEMBER,
    (State.MEMBER, Event.REASSIGNED): State.HANDING_OFF,
    (State.HANDING_OFF, Event.HANDED_OFF): State.MEMBER,
    (State.OUTSIDE, Event.HANDED_OFF): State.OUTSIDE,  # the leadership lease expired during the handoff
    **{(state, Event.LOST): State.OUTSIDE for state in State},
}


class Shards(Participant):
    """Takes part in the group while `run` runs; an `owner.Owner` of this member's HPAs.

    `common` is the elector of the Lease that all members hold together.
    """

    beginning = "joining the shard group"

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
        super().__init__(common, election, telemetry, clock, dice=dice)
        self.state = State.OUTSIDE
        self._members = members
        self._assignment: Assignment | None = None
        self._previous: Assignment | None = None
        """In HANDING_OFF: the assignment before the current one."""
        self._others: list[Member] = []
        self._published: frozenset[str] = frozenset()
        self._observing_since = 0.0
        self._may_be_first = True
        """Whether no trace of other members has been found yet, and the search for them has not lasted long enough."""
        self._before_handing_off: list[Callable[[], Awaitable[None]]] = []
        self._log = structlog.get_logger("hpad.shards", member=members.name, identity=members.identity)

    @property
    def size(self) -> int:
        """The number of members that divide the HPAs, as far as this one knows; 0 while it owns nothing."""
        return len(self._assignment.members) if self._assignment is not None and self.leading else 0

    def replicas(self, keys: Collection[Key]) -> tuple[Replica, ...]:
        """See Participant. An HPA counts for the member that it belongs to, also while it is handed off to it.

        O(HPAs x members), or O(HPAs + namespaces x members).
        """
        others = {other.name: other.identity or other.name for other in self._others}
        if not self.leading:
            return Replica(self._members.identity, "joining", 0), *(Replica(name, "member") for name in others.values())
        known = {self._members.name: self._members.identity, **others}
        # Per unit first: a namespace is hashed once, whatever the number of its HPAs.
        units = Counter(map(UNITS[self._election.shard_by], keys))
        counts = Counter[str]()
        for unit, count in units.items():
            counts[first(unit, known)] += count
        return tuple(Replica(identity, "member", counts[name]) for name, identity in known.items())

    def owns(self, key: Key) -> bool:
        return self._assignment is not None and self._leadership.valid and self._assignment.owns(key)

    def may_save(self, key: Key) -> bool:
        """Returns whether this member may save the state of the HPA: also while it hands the HPA off."""
        if self._previous is not None and self._leadership.valid and self._previous.owns(key):
            return True
        return self.owns(key)

    @property
    def whole_namespaces(self) -> bool:
        """Whether all HPAs of a namespace belong to one member."""
        return self._election.shard_by == SHARD_BY_NAMESPACE

    def expects(self, namespace: str) -> bool:
        """Returns whether this member owns the namespace, or will soon; False while it is not a member."""
        return self._assignment is not None and self._assignment.expects(namespace)

    def before_handing_off(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Awaits `callback` after this member lost HPAs and before another member may own them."""
        self._before_handing_off.append(callback)

    def _on(self, event: Event) -> None:
        self.state = TRANSITIONS[self.state, event]

    def _pause(self, began: float) -> float:
        return began + self._interval() - self._clock.monotonic()

    def _interval(self) -> float:
        """Returns the seconds from the start of one round to the next."""
        if self.state is State.OBSERVING:
            return self._retry / _WAITING_DIVISOR
        if self._assignment is None:
            # Random, so that members that wait for the common Lease do not write it at the same moment.
            return self._retry * (0.75 + self._dice() / 2)
        if self._member_set() != self._published:
            # The new owners of HPAs act only after the next publish.
            return self._retry / _HANDOFF_DIVISOR
        usual = self._retry if self._assignment.acknowledged_by_all else self._retry / _WAITING_DIVISOR
        # HPAs of a member that has crashed are taken over when it expires, not up to a whole interval later.
        expiry = self._members.expiry()
        return usual if expiry is None else min(usual, max(expiry, self._retry / _HANDOFF_DIVISOR))

    async def _round(self) -> None:
        if self.state in (State.OUTSIDE, State.OBSERVING) and not await self._observe_members():
            return
        renewed = await self._renewed_common_lease()
        if renewed is None:
            self._stand_by()
            return
        if self.state is State.HANDING_OFF:
            # Before the publish: it lets the new owners read the state of these HPAs.
            for callback in self._before_handing_off:
                await callback()
            self._previous = None
            self._on(Event.HANDED_OFF)
        published = self._member_set()
        began = await self._members.publish(published)
        self._published = published
        others = await self._members.read()
        await self._assign(others, published, min(began, renewed, key=lambda moment: moment.monotonic))

    def _member_set(self) -> frozenset[str]:
        """Returns the members seen, and this one.

        A member known only from the sets of others is left out: otherwise members would list it to each other for ever.
        """
        return frozenset({self._members.name, *(other.name for other in self._others if not other.listed_only)})

    async def _renewed_common_lease(self) -> Moment | None:
        """Returns a moment after which the common Lease was renewed, None while another identity holds it.

        The first member renews it in each round. Another member steps in after two rounds without a renewal, later the
        higher its rank, so that not all of them write at once.
        """
        rank = sorted(self._member_set()).index(self._members.name)
        if rank and await self._elector.read():
            renewed = self._elector.written_after
            patience = self._retry * (2 + rank / 4)
            if renewed is not None and self._clock.monotonic() - renewed.monotonic <= patience:
                return renewed
        try:
            return await self._elector.attempt()
        except errors.ApiError as error:
            if error.conflict and await self._elector.read():
                return self._elector.written_after  # another member was faster
            raise

    async def _observe_members(self) -> bool:
        """Reads the Leases once; returns whether this member may join.

        The members alive are known after a lease duration at most.
        """
        if self.state is State.OUTSIDE:
            self._members.start_over()
        await self._elector.read()
        if self._elector.held_by_other():
            self._stand_by()
            return False
        self._others = await self._members.read()
        if self.state is State.OUTSIDE:
            self._observing_since = self._clock.monotonic()
            self._on(Event.ARRIVED)
        waited = self._clock.monotonic() - self._observing_since
        if self._members.others_found or waited >= self._election.lease_duration.total_seconds():
            self._may_be_first = False
        if self._may_be_first or not all(other.renewed for other in self._others):
            self._report("reading which members are alive", self._log.info)
            return False
        self._on(Event.ALL_KNOWN)
        return True

    async def _assign(self, others: Iterable[Member], published: frozenset[str], since: Moment) -> None:
        before = self._assignment if self._leadership.valid else None
        self._note(others)
        if not self._leadership.extend(since, self._election.renew_deadline):
            return
        if self.state is State.OUTSIDE:  # the previous grant expired during this round: read the members again first
            self._leadership.end()
            return
        self.holder_known = True
        sets = {other.name: other.member_set for other in self._others}
        after = Assignment(self._members.name, sets, published, shard_by=self._election.shard_by)
        joined = self._assignment is None
        changed = before is not None and after.inputs != before.inputs
        self._on(Event.REASSIGNED if changed else Event.ASSIGNED)
        if changed or before is None:
            self._assignment, self._previous = after, before
            self._telemetry.members.set(len(after.members))
            self._notify()
        if joined:
            self._telemetry.leads(self._election.name, True)
            self._members.announce("joined")
        self._report(f"sharing the HPAs as one of {self.size} members", self._log.info)
        await self._members.delete_expired()

    def _note(self, others: Iterable[Member]) -> None:
        """Takes over the members seen, and logs which have joined and which have left."""
        before, now = {other.name: other for other in self._others}, {other.name: other for other in others}
        for name in now.keys() - before.keys():
            self._log.info("a member has joined", other=name, other_identity=now[name].identity)
        for name in before.keys() - now.keys():
            self._log.warning("a member has left", other=name, other_identity=before[name].identity)
        self._others = list(now.values())

    def _end(self, why: str, *, intended: bool = False) -> None:
        self._on(Event.LOST)
        if self._stopped("stopped acting as a member", why, intended=intended):
            self._assignment = self._previous = None
            self._telemetry.members.set(0)
            self._members.announce("left")

    async def _release(self) -> None:
        await self._members.release()
