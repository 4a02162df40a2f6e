"""Checks the writes of shard members in the API server's log against their Leases."""

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
from hpad.settings.model import SHARD_BY_HPA

LEASE, DEADLINE = 8, 6.0
"""Seconds: the lease duration and the renew deadline of the members."""
IN_FLIGHT = 1.0
"""Seconds after the renew deadline in which a request that was sent before it may arrive."""
WITNESSES = (("horizontalpodautoscalers", "status"), ("deployments", "scale"))


class Action(NamedTuple):
    """A write of an HPA's status or of its target's scale, by the member `author`."""

    at: datetime
    author: str
    key: Key


class Tenure(NamedTuple):
    """A version of a member's Lease: its start, whether it has a holder, and its member set."""

    at: datetime
    was_granted: bool
    member_set: frozenset[str]


class Chronicle:
    """Records changes of Leases and replica counts, in the order of the API server."""

    def __init__(self, cluster: Cluster, shard_by: str = SHARD_BY_HPA) -> None:
        self.unit = assignment.UNITS[shard_by]
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
        """Returns all successful writes for HPAs so far; an author is the name of a member."""
        fresh = self._cluster.log.writes[self._read :]
        self._read += len(fresh)
        for write in fresh:
            if write.status >= 300 or (write.resource, write.subresource) not in WITNESSES:
                continue
            named = re.search(r"\((\S+)\)", write.user_agent)
            assert named is not None, f"a write by an unknown client: {write}"
            parts = write.path.split("/")
            key = Key(parts[parts.index("namespaces") + 1], parts[-2])
            self.actions.append(Action(write.time, self.members[named[1]], key))
        return self.actions

    async def watch(self) -> None:
        """Records when this event loop was delayed by more than IN_FLIGHT, since the machine was paused or busy."""
        before = self._cluster.clock.now()
        while True:
            await asyncio.sleep(0.1)
            now = self._cluster.clock.now()
            if (now - before).total_seconds() > IN_FLIGHT:
                self.pauses.append(now)
            before = now

    def checkable(self) -> list[Action]:
        """Returns the writes to check, without those around a pause, which may have been sent before it."""
        return [
            action
            for action in self.read()
            if not any(-IN_FLIGHT < (action.at - pause).total_seconds() < LEASE for pause in self.pauses)
        ]

    def owner(self, key: Key, member_set: frozenset[str]) -> str:
        """Returns the member that an HPA belongs to."""
        return assignment.first(self.unit(key), member_set)

    def at(self, member: str, moment: datetime) -> Tenure | None:
        """Returns the version of a member's Lease at a time."""
        known = self.tenures[member]
        index = bisect.bisect_right(known, moment, key=lambda tenure: tenure.at)
        return known[index - 1] if index else None

    def between(self, member: str, since: datetime, until: datetime) -> Iterator[Tenure]:
        """Yields the versions of a member's Lease from `since` until `until`."""
        first = self.at(member, since)
        if first is not None:
            yield first
        yield from (tenure for tenure in self.tenures[member] if since < tenure.at <= until)


def unauthorized(chronicle: Chronicle, action: Action) -> str | None:
    """Returns why a member must not have written, None if it owned the HPA.

    The member must hold a Lease that was renewed within the renew deadline (plus IN_FLIGHT), and own the HPA by the
    member set in this Lease.
    """
    tenure = chronicle.at(action.author, action.at)
    if tenure is None or not tenure.was_granted:
        return "it holds no Lease"
    age = (action.at - tenure.at).total_seconds()
    if age > DEADLINE + IN_FLIGHT:
        return f"its Lease was renewed {age:.2f} s before"
    if chronicle.owner(action.key, tenure.member_set) != action.author:
        return "its member set assigns the HPA to another member"
    return None


def taken_too_early(chronicle: Chronicle, before: Action, after: Action) -> str | None:
    """Returns why another member must not have written next, None if the HPA had left its previous owner.

    The previous author must have released its Lease, published a member set without the HPA, or not renewed its Lease
    for a whole lease duration.
    """
    tenures = list(chronicle.between(before.author, before.at, after.at))
    for tenure in tenures:
        if not tenure.was_granted or chronicle.owner(before.key, tenure.member_set) != before.author:
            return None
    moments = [*(tenure.at for tenure in tenures), after.at]
    longest = max((later - earlier).total_seconds() for earlier, later in itertools.pairwise(moments))
    return None if longest >= LEASE else f"in between its Lease was not renewed for {longest:.2f} s at the most"


def followed(done: list[Action]) -> Iterator[tuple[Action, Action]]:
    """Yields each pair of successive writes for one HPA by different members."""
    last: dict[Key, Action] = {}
    for action in done:
        before = last.get(action.key)
        if before is not None and before.author != action.author:
            yield before, action
        last[action.key] = action
