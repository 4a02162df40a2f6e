"""What the API server saw of members that share HPAs: their Leases, their writes, and whether they might write."""

import asyncio
import bisect
import itertools
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from hpad.api.metadata import Key
from hpad.election import assignment
from hpad.election.members import LABEL, MEMBER_SET
from hpad.lab.cluster import Cluster

LEASE, DEADLINE = 8, 6.0
"""Seconds: the lease duration and the renew deadline of the members."""
IN_FLIGHT = 1.0
"""How long after the end of its mandate a request may arrive that was sent before."""
WITNESSES = (("horizontalpodautoscalers", "status"), ("deployments", "scale"))


class Action(NamedTuple):
    """A write for an HPA, of its status or its target's scale."""

    at: datetime
    author: str
    key: Key


class Tenure(NamedTuple):
    """A version of a member's Lease: since when, whose, whether it is still held, and its roster."""

    at: datetime
    held: bool
    member_set: frozenset[str]


class Chronicle:
    """What happened to Leases and replica counts, in the order of the API server."""

    def __init__(self, cluster: Cluster) -> None:
        self.tenures: dict[str, list[Tenure]] = {}
        self.members: dict[str, str] = {}
        self.shrunk: list[tuple[str, int, int]] = []
        self.actions: list[Action] = []
        self.pauses: list[datetime] = []
        self._read = 0
        self._cluster = cluster
        cluster.store.subscribe(self._note)

    def _note(self, change: Any) -> None:
        meta = change.object["metadata"]
        if change.resource.plural == "deployments" and change.type == "MODIFIED":
            before, after = change.previous["spec"]["replicas"], change.object["spec"]["replicas"]
            if after < before:
                self.shrunk.append((meta["name"], before, after))
        if change.resource.plural == "leases" and LABEL in (meta.get("labels") or {}) and change.type != "DELETED":
            holder = change.object["spec"]["holderIdentity"]
            member_set = frozenset(meta["annotations"][MEMBER_SET].split())
            self.tenures.setdefault(meta["name"], []).append(
                Tenure(self._cluster.clock.now(), bool(holder), member_set)
            )
            if holder:
                self.members[holder] = meta["name"]

    def read(self) -> list[Action]:
        """Every write for an HPA that the API server has carried out; the author is the name of a member."""
        fresh = self._cluster.log.writes[self._read :]
        self._read += len(fresh)
        for write in fresh:
            if write.status >= 300 or (write.resource, write.subresource) not in WITNESSES:
                continue
            named = re.search(r"\((\S+)\)", write.user_agent)
            assert named is not None, f"nobody knows who wrote: {write}"
            key = Key("default", write.path.split("/")[-2])
            self.actions.append(Action(write.time, self.members[named[1]], key))
        return self.actions

    async def watch(self) -> None:
        """Note when the machine was paused, or too busy for this very loop, for longer than a request may take."""
        before = self._cluster.clock.now()
        while True:
            await asyncio.sleep(0.1)
            now = self._cluster.clock.now()
            if (now - before).total_seconds() > IN_FLIGHT:
                self.pauses.append(now)
            before = now

    def judged(self) -> list[Action]:
        """The writes that tell something: not those at the end of a pause, which may have been sent before it."""
        return [
            action
            for action in self.read()
            if not any(-IN_FLIGHT < (action.at - pause).total_seconds() < LEASE for pause in self.pauses)
        ]

    def at(self, member: str, moment: datetime) -> Tenure | None:
        """The Lease as it was then."""
        known = self.tenures[member]
        place = bisect.bisect_right(known, moment, key=lambda tenure: tenure.at)
        return known[place - 1] if place else None

    def between(self, member: str, since: datetime, until: datetime) -> Iterator[Tenure]:
        """The Lease as it was then, and all it became up to the end."""
        first = self.at(member, since)
        if first is not None:
            yield first
        yield from (tenure for tenure in self.tenures[member] if since < tenure.at <= until)


def who_may(chronicle: Chronicle, action: Action) -> str | None:
    """What is wrong with somebody's writing for an HPA: it must hold a Lease that was renewed within the renew deadline
    (and a moment for the way), and be the first for the HPA by the roster that stands there."""
    tenure = chronicle.at(action.author, action.at)
    if tenure is None or not tenure.held:
        return "it holds no Lease"
    age = (action.at - tenure.at).total_seconds()
    if age > DEADLINE + IN_FLIGHT:
        return f"its Lease was renewed {age:.2f} s before"
    if assignment.first(action.key, tenure.member_set) != action.author:
        return "its roster gives the HPA to somebody else"
    return None


def who_had_it(chronicle: Chronicle, before: Action, after: Action) -> str | None:
    """What is wrong with another's having written for the HPA next: who wrote before must have handed it over since, or
    have given its Lease up, or not have renewed it for a whole lease duration."""
    tenures = list(chronicle.between(before.author, before.at, after.at))
    for tenure in tenures:
        if not tenure.held or assignment.first(before.key, tenure.member_set) != before.author:
            return None
    moments = [*(tenure.at for tenure in tenures), after.at]
    longest = max((later - earlier).total_seconds() for earlier, later in itertools.pairwise(moments))
    return None if longest >= LEASE else f"in between its Lease was not renewed for {longest:.2f} s at the most"


def followed(done: list[Action]) -> Iterator[tuple[Action, Action]]:
    """Each write for an HPA and the next one for it, where another wrote that."""
    last: dict[Key, Action] = {}
    for action in done:
        before = last.get(action.key)
        if before is not None and before.author != action.author:
            yield before, action
        last[action.key] = action
