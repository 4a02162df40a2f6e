"""Shards: several hpads share the HPAs, each acting on those that rendezvous hashing gives it among the members alive.

Each member holds a Lease of its own, with its roster: the members it took to be alive when it wrote it, and itself.
A round is to publish (write the Lease), then to look (list the Leases of all), then to judge (`control.assignment`).

Why two members never act on the same HPA at the same time. Let both A and B do so. Each has completed a round; let A's
Lease have been written before B's, in the order of the API server. So B looked after A had written, and saw A's Lease
as of that round or newer. It took it to be alive: it counts for `lease_duration` from when B first saw it as it was,
which is later than when it was written, and A's mandate ends `renew_deadline` after the moment before that; the former
is longer, and the clocks of both only need to run at the same rate. So A is one of those among whom B is the first for
the HPA. And B found A's acknowledgement in the roster it saw:

- either B is in that roster. But A is first only among a set that holds every roster it has published since its last
  completed round: what it publishes is whom it saw when it looked last (without hearsay), and itself. So B is in that
  set, too, and comes before A there: A does not act.
- or A is not the first by that roster. But then it is not the first in that larger set either.

So a member that dies is succeeded after its lease duration, one that comes gets what the others have acknowledged, and
one that is cut off, stopped or suspended has nothing from the end of its mandate on, whatever the others know of it.
Whoever gives HPAs away stops acting on them when it sees the newcomer, has their histories saved, and only then
publishes the roster that lets the newcomer act (`before_handing_off`).

All members together hold the Lease that a leader would hold, under one identity; a mandate also needs a proof that this
Lease has been renewed. So hpads with leader election and members of shards respect each other, whoever comes first,
as do members of another protocol (another identity: for another hash, say). One of the members renews it, and others
step in where it does not.

What Leases cannot do: a request that was sent within a mandate may arrive after it. So what comes from another rests
before its first turn (`control.handoff`), for as long as it takes that two members' writes for one HPA lie a lease
duration apart, also after a hand-over in good order. Members trust that a Lease is not
deleted by hand; one that is, those who have seen it respect all the same, and a newcomer that finds no trace of others
looks on for a lease duration, in which they write it anew.

Who comes, or comes back, says nothing before it knows of each Lease whether it is renewed or has expired: others give
HPAs away as soon as they see it, and nobody would act on them while it still respects somebody dead.

Which HPAs are a member's own, by what it saw of the others at one moment.

Which of several members a key belongs to, so that all who know the same members say the same (rendezvous hashing).

Each member draws a number for the key, and the highest wins: where a member comes or goes, no key changes hands
between two others. The numbers are part of what members agree on: other numbers are another protocol.
"""

import hashlib
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

import structlog

from hpad.api.metadata import Key
from hpad.clock import Clock, Moment
from hpad.election import lease
from hpad.election.leader import ElectionStatus, LeadershipLease
from hpad.election.members import Member, Members
from hpad.kube import errors
from hpad.settings.model import Election
from hpad.telemetry import Telemetry


def first(key: Key, members: Iterable[str]) -> str:
    """The member that the key belongs to; raises ValueError where there is none."""
    return max(members, key=lambda member: (weight(key, member), member))


def weight(key: Key, member: str) -> int:
    """What a member draws for a key: 64 bits."""
    return int.from_bytes(hashlib.blake2b(f"{member}\0{key}".encode(), digest_size=8).digest(), "big")


MemberSet = frozenset[str]
_MOST = 1 << 16


class Assignment:
    """What `me` may act on, having published `member_set` and then seen the `others` that are alive with their rosters.

    An HPA is ours if we are first for it among all whom we see or have in our roster, and each other member has
    acknowledged that: it has us in its roster, or its roster does not make it the first for the HPA anyway. With a
    roster that cannot be read (None) nothing is ours. `control.shards` says why that is safe.
    """

    def __init__(self, me: str, others: Mapping[str, MemberSet | None], member_set: MemberSet) -> None:
        self.members: MemberSet = frozenset({me, *others})
        self._me = me
        self._others = dict(others)
        self._candidates = self.members | member_set
        self._unaware = [(name, theirs) for name, theirs in others.items() if theirs is None or me not in theirs]
        self._known: dict[Key, bool] = {}

    def __eq__(self, other: object) -> bool:
        """Whether both give the same answers."""
        return isinstance(other, Assignment) and self._grounds == other._grounds

    def __hash__(self) -> int:
        return hash((self._me, self._candidates))

    @property
    def settled(self) -> bool:
        """Whether all the others know of us, so that nothing will become ours by just waiting."""
        return not self._unaware

    def owns(self, key: Key) -> bool:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST:  # of HPAs that came and went
                self._known.clear()
            known = self._known[key] = self._is_ours(key)
        return known

    @property
    def _grounds(self) -> tuple[object, ...]:
        return self._me, self._candidates, sorted(self._unaware, key=lambda each: each[0])

    def _is_ours(self, key: Key) -> bool:
        if first(key, self._candidates) != self._me:
            return False
        return all(theirs is not None and first(key, theirs | {name}) != name for name, theirs in self._unaware)


IDENTITY: Final = "hpad-shards-1"
"""Who holds the common Lease: members that agree on the protocol, and on the numbers of `model.rendezvous`."""
LATE = "the Leases were not renewed in time"
_HURRY = 20
_IMPATIENCE = 4


class Shards:
    """Takes part for as long as `run` runs; an `ownership.Owner` of this member's share.

    `changed` callbacks are called, on the loop, whenever the answers of `owns` have changed for a reason other than
    passing time. `status` is what there is to know of that.
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
        self._leadership = LeadershipLease(clock, lambda: self._end(LATE))
        self._assignment: Assignment | None = None
        self._leaving: Assignment | None = None
        self._others: list[Member] = []
        self._published: frozenset[str] = frozenset()
        self._arrived: float | None = None
        self._entered = False
        self._alone = True
        self._handing_over: list[Callable[[], Awaitable[None]]] = []
        self._log = structlog.get_logger("hpad.shards", member=members.name, identity=members.identity)
        self.status = ElectionStatus(self._log)
        telemetry.election.leads(election.name, False)

    @property
    def leading(self) -> bool:
        """Whether this member has a share at this very moment."""
        return self._leadership.valid

    @property
    def size(self) -> int:
        """How many members share the HPAs, as far as we know; 0 while we have no share."""
        return len(self._assignment.members) if self._assignment is not None and self.leading else 0

    def owns(self, key: Key) -> bool:
        return self._assignment is not None and self._leadership.valid and self._assignment.owns(key)

    def may_save(self, key: Key) -> bool:
        """Whether what is remembered of the HPA is ours to save: also while it is being handed over."""
        if self._leaving is not None and self._leadership.valid and self._leaving.owns(key):
            return True
        return self.owns(key)

    def subscribe(self, callback: Callable[[], None]) -> None:
        self.status.subscribe(callback)

    def before_handing_off(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Wait for this whenever HPAs are not ours any more (`changed` has been called), and others may have them only
        afterwards."""
        self._handing_over.append(callback)

    async def run(self) -> None:
        """Take part for ever. Cancelled, it gives its Lease up, so that others take over at once.

        Work must have ended by then.
        """
        self._log.info("joining those that share the HPAs")
        try:
            while True:
                began = self._clock.monotonic()
                await self._try()
                await self._clock.sleep(began + self._pause() - self._clock.monotonic())
        finally:
            await self._leave()

    def _pause(self) -> float:
        """Seconds from one round to the next: little where others wait for us, or we for them."""
        if self._arrived is not None and not self._entered:
            return self._retry / _IMPATIENCE
        if not self._leadership.given or self._assignment is None:
            return self._retry * (0.75 + self._dice() / 2)
        if self._member_set() != self._published:
            return self._retry / _HURRY
        expiry = self._members.expiry()
        usual = self._retry if self._assignment.settled else self._retry / _IMPATIENCE
        return usual if expiry is None else min(usual, max(expiry, self._retry / _HURRY))

    async def _try(self) -> None:
        slow = self._common.slow
        try:
            await self._round()
        except errors.ApiError as error:
            self.status.say(f"cannot reach an agreement: {error.message}", trouble=True)
        finally:
            self._telemetry.election.renewed_slowly(self._election.name, self._common.slow - slow)

    async def _round(self) -> None:
        """Raises errors.ApiError; then nothing is known anew, and the mandate runs on to its end."""
        if not self._entered and not await self._enter():
            return
        proof = await self._held_together()
        if proof is None:
            self._stand_by()
            return
        if self._leaving is not None:
            for callback in self._handing_over:
                await callback()
            self._leaving = None
        member_set = self._member_set()
        began = await self._members.publish(member_set)
        self._published = member_set
        others = await self._members.look()
        await self._judge(others, member_set, min(began, proof, key=lambda moment: moment.monotonic))

    def _member_set(self) -> frozenset[str]:
        """Whom we have seen, and ourselves: hearsay that was passed on would never end."""
        return frozenset({self._members.name, *(other.name for other in self._others if not other.hearsay)})

    async def _held_together(self) -> Moment | None:
        """A moment since which the common Lease has been renewed; None where it is another's.

        The first member renews it each round. Another one steps in when it has seen no renewal for two rounds, the
        later the higher its rank, so that they do not all come at once.
        """
        rank = sorted(self._member_set()).index(self._members.name)
        if rank and await self._common.look():
            proof = self._common.proof
            patience = self._retry * (2 + rank / 4)
            if proof is not None and self._clock.monotonic() - proof.monotonic <= patience:
                return proof
        try:
            return await self._common.attempt()
        except errors.ApiError as error:
            if error.conflict and await self._common.look():
                return self._common.proof  # another member was faster
            raise

    def _stand_by(self) -> None:
        self.status.agreed = True
        self._end(f"{self._common.holder} leads")
        self.status.say(f"{self._common.holder} leads")

    async def _enter(self) -> bool:
        """Look before the first word, until it is clear who is alive: others give HPAs away as soon as they see us.

        That takes a lease duration at most. So long looks, too, who is new and finds no trace of others.
        """
        if self._arrived is None:
            self._members.arrive()
        await self._common.look()
        if self._common.is_anothers():
            self._stand_by()
            return False
        self._others = await self._members.look()
        if self._arrived is None:
            self._arrived = self._clock.monotonic()
        waited = self._clock.monotonic() - self._arrived
        if self._members.strangers or waited >= self._election.lease_duration.total_seconds():
            self._alone = False
        self._entered = not self._alone and all(other.certain for other in self._others)
        if not self._entered:
            self.status.say("looking who is alive")
        return self._entered

    async def _judge(self, others: Iterable[Member], member_set: frozenset[str], since: Moment) -> None:
        before = self._assignment if self._leadership.valid else None
        self._note(others)
        if not self._leadership.extend(since, self._election.renew_deadline):
            return
        self.status.agreed = True
        assignment = Assignment(
            self._members.name, {other.name: other.member_set for other in self._others}, member_set
        )
        joined = self._assignment is None
        if before is None or assignment != before:
            self._assignment, self._leaving = assignment, before
            self._telemetry.election.members(len(assignment.members))
            self.status.change()
        if joined:
            self._telemetry.election.leads(self._election.name, True)
            self._members.announce("joined")
        self.status.say(f"sharing the HPAs as one of {self.size} members")
        await self._members.tidy()

    def _note(self, others: Iterable[Member]) -> None:
        """Take in who is there, and say who has come and who has gone."""
        before, now = {other.name: other for other in self._others}, {other.name: other for other in others}
        for name in now.keys() - before.keys():
            self._log.info("a member has come", other=name, other_identity=now[name].identity)
        for name in before.keys() - now.keys():
            self._log.warning("a member has gone", other=name, other_identity=before[name].identity)
        self._others = list(now.values())

    def _end(self, why: str, *, as_wanted: bool = False) -> None:
        """Own nothing, now; nothing happens if we own nothing."""
        if not self._leadership.end():
            return
        self._assignment = self._leaving = self._arrived = None
        self._entered = False
        self._telemetry.election.leads(self._election.name, False)
        self._telemetry.election.members(0)
        self.status.ended("not sharing any more", why, as_wanted=as_wanted)
        self._members.announce("left")

    async def _leave(self) -> None:
        self._end("hpad ends", as_wanted=True)
        await self.status.release(self._members.release)
