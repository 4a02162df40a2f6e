"""The members of a shard group: each has a Lease of its own, found by a label.

The Lease of a member also carries its member set in the annotation `hpad.io/roster`: the members that it saw alive when
it wrote the Lease. `assignment` explains the use of member sets.

A member is alive while its Lease has not expired, by the reader's monotonic clock since it first saw the Lease as it is
(see `lease`). The time of one and a half renewals is added: a member that was killed may have written for an HPA until
just before its next renewal, and its successor starts no sooner than a lease duration after that. A Lease without a
holder was released and counts as expired at once.

Only members delete Leases, long after they expired. If something else deletes the Lease of a running member, that
member writes it again. Until then another member counts it as alive with an unknown member set if it saw it alive in
its last read (for its lease duration from the read that first missed it), or if it finds it in a member set.
"""

import hashlib
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from hpad.api.metadata import Key
from hpad.clock import Moment
from hpad.election import lease
from hpad.election.lease import Object
from hpad.kube import errors
from hpad.kube.client import Client
from hpad.kube.events import EventRecorder
from hpad.settings.model import Election

LABEL: Final = "hpad.io/member-of"
MEMBER_SET: Final = "hpad.io/roster"
_RENEWALS: Final = 1.5
"""The longest time between two renewals of a working member, in retry periods."""
_DELETE_AFTER: Final = 20
"""Age at which an expired Lease is deleted, in lease durations."""


class Member(NamedTuple):
    """Another member, by the name of its Lease. `member_set` is None if what it has published is not known.

    `listed_only`: other members list it, but no Lease of it was ever seen. `renewed`: it was seen to renew its Lease
    since `Members.start_over`; until then it counts as alive, although it may be long dead.
    """

    name: str
    identity: str
    member_set: frozenset[str] | None
    listed_only: bool = False
    renewed: bool = False


class _Known(NamedTuple):
    """The Lease of another member. `missing`: it was deleted. `restarts`: how often this member had started over when
    the Lease was last read; `renewed` as in Member."""

    object: Object
    seen: lease.Observation
    restarts: int
    missing: bool = False
    renewed: bool = False


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class Members:
    """One member's view of the group. `name` is the name of its own Lease, derived from its `identity`.

    `others_found`: the Lease of another member was ever seen, also a released one. `release` and `announce` are
    methods of StoredLease.
    """

    def __init__(
        self, client: Client, election: Election, *, identity: str, recorder: EventRecorder | None = None
    ) -> None:
        self.name = f"{election.name}-{hashlib.blake2b(identity.encode(), digest_size=5).hexdigest()}"
        self.identity = identity
        self.others_found = False
        self._lease = lease.StoredLease(client, election, self.name, identity, recorder)
        self.release = self._lease.release
        self.announce = self._lease.announce
        self._clock = client.clock
        self._election = election
        self._grace = _RENEWALS * election.retry_period.total_seconds()
        self._known: dict[str, _Known] = {}
        self._alive: frozenset[str] = frozenset()
        self._restarts = 0
        self._log = structlog.get_logger("hpad.shards", member=self.name)

    def start_over(self) -> None:
        """Requires each member to renew its Lease again before it counts as `renewed`: this one is new, or was away."""
        self._restarts += 1

    async def publish(self, member_set: Iterable[str]) -> Moment:
        """Renews the own Lease with this member set; returns the moment before the successful request was sent.

        Raises errors.ApiError; the request may still take effect.
        """
        if self._lease.object is not None:
            try:
                return await self._write(member_set)
            except errors.ApiError as error:
                if error.status not in (404, 409):
                    raise
                self._log.debug("the own Lease has changed; reading it", error=str(error))
        await self._lease.read()
        return await self._write(member_set)

    async def read(self) -> list[Member]:
        """Returns the other members that are alive, sorted by name.

        Raises errors.ApiError, also if the own Lease is not there as published: other members may not know of it.
        """
        found = await self._list()
        now = self._clock.monotonic()
        self._check_own(found.pop(self.name, None))
        self.others_found = self.others_found or bool(found)
        for name, each in found.items():
            self._known[name] = self._noted(each, self._known.get(name), now)
        for name in self._known.keys() - found.keys():
            self._note_missing(name, now)
        alive = [self._member(name) for name in self._known if self._is_alive(name, now)]
        self._alive = frozenset(member.name for member in alive)
        mentioned = frozenset(name for member in alive for name in member.member_set or ())
        unseen = mentioned - self._known.keys() - {self.name}
        return sorted([*alive, *(Member(name, "", None, listed_only=True) for name in unseen)])

    def expiry(self) -> float | None:
        """Returns the seconds until the first of the members alive expires, if it does not renew."""
        now = self._clock.monotonic()
        ends = [self._expiry(known.seen) for name, known in self._known.items() if self._is_alive(name, now)]
        return min(ends) - now if ends else None

    async def delete_expired(self) -> None:
        """Deletes Leases that expired long ago, unless they change at this moment; best effort."""
        now = self._clock.monotonic()
        age = _DELETE_AFTER * self._election.lease_duration.total_seconds()
        for name, known in list(self._known.items()):
            if now - known.seen.at <= age or now <= self._expiry(known.seen):
                continue
            meta = known.object["metadata"]
            unchanged = {"uid": meta.get("uid"), "resourceVersion": meta.get("resourceVersion")}
            options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": unchanged}
            path = lease.LEASES.object(Key(self._election.namespace, name))
            try:
                await self._lease.send("DELETE", path, options)
            except errors.ApiError as error:
                self._log.debug("an old Lease was not deleted", lease=name, error=str(error))
            else:
                del self._known[name]

    def _noted(self, found: Object, before: _Known | None, now: float) -> _Known:
        seen = lease.observe(before and before.seen, found["spec"], now)
        if before is None or before.restarts != self._restarts:
            return _Known(found, seen, self._restarts)
        return _Known(found, seen, self._restarts, renewed=before.renewed or seen is not before.seen)

    def _note_missing(self, name: str, now: float) -> None:
        """Handles a known Lease that is missing from the last list."""
        known = self._known[name]
        if name in self._alive and not known.missing:
            # The member may run on without noticing, so it stays alive for another lease duration.
            self._known[name] = _Known(known.object, known.seen._replace(at=now), self._restarts, missing=True)
        elif not self._is_alive(name, now):
            del self._known[name]

    def _is_alive(self, name: str, now: float) -> bool:
        return lease.held_by_other(self._known[name].seen, self.identity, self._election, now - self._grace)

    def _expiry(self, seen: lease.Observation) -> float:
        return lease.expiry(seen, self._election) + self._grace

    def _member(self, name: str) -> Member:
        known = self._known[name]
        member_set = None if known.missing else _member_set(known.object["metadata"])
        return Member(name, known.seen.record.holder_identity or "", member_set, renewed=known.renewed)

    def _check_own(self, found: Object | None) -> None:
        own = self._lease.object
        if own is None:
            return
        if (
            found is None
            or found["spec"] != own["spec"]
            or _member_set(found["metadata"]) != _member_set(own["metadata"])
        ):
            raise errors.ApiError(0, "Changed", f"the own Lease {self.name} was deleted or changed by another client")
        # Another client may have changed other fields: the next write builds on the present resourceVersion.
        self._lease.object = found

    async def _list(self) -> dict[str, Object]:
        path = lease.LEASES.collection(self._election.namespace)
        answer = await self._lease.send("GET", path, params={"labelSelector": f"{LABEL}={self._election.name}"})
        try:
            items = msgspec.json.decode(answer, type=_List).items
            found = [lease.decoded(bytes(item)) for item in items or ()]
            return {str(each["metadata"]["name"]): each for each in found}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
            raise errors.ApiError(0, "BadAnswer", f"the answer is no list of Leases: {error}") from error

    async def _write(self, member_set: Iterable[str]) -> Moment:
        began, own = Moment.now(self._clock), self._lease.object
        meta = {} if own is None else own["metadata"]
        labels = {**(meta.get("labels") or {}), LABEL: self._election.name}
        annotations = {**(meta.get("annotations") or {}), MEMBER_SET: " ".join(sorted(member_set))}
        spec = lease.acquire_or_renew_spec(own and own["spec"], self.identity, self._election, began.wall)
        await self._lease.write(spec, labels=labels, annotations=annotations)
        return began


def _member_set(metadata: dict[str, Any]) -> frozenset[str] | None:
    text = (metadata.get("annotations") or {}).get(MEMBER_SET)
    return frozenset(text.split()) if isinstance(text, str) else None
