"""The members that share HPAs: each has a Lease of its own, found by a label, renewed and judged as a leader's is.

Beside what any Lease says, a member's own holds its roster: the members that it took to be alive when it wrote it
(annotation `hpad.io/member_set`). What rosters are for, and why two members never act on the same HPA, is said in
`control.shards`.

Liveness is judged by our monotonic clock, from the moment on which we first saw a Lease as it is, as `kube.lease` does,
but for longer by the time between two renewals: a member that was killed may have written something for an HPA until
just before the next one, and its successor begins no sooner than a lease duration after that.
A Lease that names no holder has been given up and counts for nothing at once.

Leases are deleted by members alone, long after they have expired. Should anybody else delete one whose member works,
that member writes it anew; until then it counts as there, its roster unknown, for those who saw it alive when they
looked last (for its duration from when they first miss it: that is later than its last renewal), and for those who
find it in a roster.
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
"""Retry periods from one renewal to the next at the most, in a member that works as it should."""
_LITTER: Final = 20
"""Lease durations after which the Lease of a member that has gone is deleted."""


class Member(NamedTuple):
    """Another member, by the name of its Lease. `member_set`: None where what it has published is not known.

    `hearsay`: others list it in their member sets, and we have never seen a Lease of it.
    `certain`: we have seen it renew its Lease since we arrived; else it may be long dead, and counts all the same.
    """

    name: str
    identity: str
    member_set: frozenset[str] | None
    hearsay: bool = False
    certain: bool = False


class _Known(NamedTuple):
    """The Lease of another member, and what is known of it. `missing`: it has vanished. `arrivals`: how often we had
    arrived when it was renewed last; `certain` as Member's."""

    object: Object
    seen: lease.Seen
    arrivals: int
    missing: bool = False
    certain: bool = False


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class Members:
    """One member's view of all of them. `name` is that of its own Lease, made of its `identity` (see lease.identity).

    `strangers`: whether another member's Lease has ever been seen, be it one that was given up.
    """

    def __init__(
        self, client: Client, election: Election, *, identity: str, recorder: EventRecorder | None = None
    ) -> None:
        self.name = f"{election.name}-{hashlib.blake2b(identity.encode(), digest_size=5).hexdigest()}"
        self.identity = identity
        self.strangers = False
        self._requests = lease.Requests(client, election)
        self._clock = client.clock
        self._election = election
        self._grace = _RENEWALS * election.retry_period.total_seconds()
        self._recorder = recorder
        self._own: Object | None = None
        self._known: dict[str, _Known] = {}
        self._alive: frozenset[str] = frozenset()
        self._arrivals = 0
        self._log = structlog.get_logger("hpad.shards", member=self.name)

    def arrive(self) -> None:
        """We have been away, or are new: from here on it must show again who is alive."""
        self._arrivals += 1

    async def publish(self, member_set: Iterable[str]) -> Moment:
        """Renew our Lease, with this roster: the moment before the request that did it was sent.

        Raises errors.ApiError, where the Lease may yet become what was sent.
        """
        if self._own is not None:
            try:
                return await self._write(member_set)
            except errors.ApiError as error:
                if error.status not in (404, 409):
                    raise
                self._log.debug("our Lease is not what it was; looking", error=str(error))
        await self._reread()
        return await self._write(member_set)

    async def look(self) -> list[Member]:
        """The other members that are alive, by name. Raises errors.ApiError, also where our own Lease is not there as
        we have published it: then nobody needs to know of us."""
        found = await self._list()
        now = self._clock.monotonic()
        self._own_is_there(found.pop(self.name, None))
        self.strangers = self.strangers or bool(found)
        for name, each in found.items():
            self._known[name] = self._found(each, self._known.get(name), now)
        for name in self._known.keys() - found.keys():
            self._miss(name, now)
        alive = [self._member(name) for name in self._known if self._counts(name, now)]
        self._alive = frozenset(member.name for member in alive)
        mentioned = frozenset(name for member in alive for name in member.member_set or ())
        unseen = mentioned - self._known.keys() - {self.name}
        return sorted([*alive, *(Member(name, "", None, hearsay=True) for name in unseen)])

    def expiry(self) -> float | None:
        """Seconds until the first of those that count now counts no more, should it not be heard of."""
        now = self._clock.monotonic()
        ends = [self._end(held.seen) for name, held in self._known.items() if self._counts(name, now)]
        return min(ends) - now if ends else None

    async def release(self) -> None:
        """Give our Lease up, so that others need not wait for it to expire. Raises errors.ApiError."""
        if self._own is None:
            return
        try:
            await self._put({**self._own, "spec": lease.released(self._own["spec"], self._clock.now())})
        except errors.ApiError as error:
            if not error.conflict:
                raise
            await self._reread()
            if self._own is not None:
                await self._put({**self._own, "spec": lease.released(self._own["spec"], self._clock.now())})

    async def tidy(self) -> None:
        """Delete Leases of members that have gone long ago, unless they come back this moment; best effort."""
        now = self._clock.monotonic()
        age = _LITTER * self._election.lease_duration.total_seconds()
        litter = [
            held.object for held in self._known.values() if now - held.seen.at > age and now > self._end(held.seen)
        ]
        for each in litter:
            meta = each["metadata"]
            wanted = {"uid": meta.get("uid"), "resourceVersion": meta.get("resourceVersion")}
            options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": wanted}
            path = lease.LEASES.object(Key(self._election.namespace, meta["name"]))
            try:
                await self._requests.send("DELETE", path, options)
            except errors.ApiError as error:
                self._log.debug("an old Lease was not deleted", lease=meta["name"], error=str(error))
            else:
                del self._known[meta["name"]]

    def announce(self, text: str) -> None:
        """An event on our Lease: "<identity> joined"; best effort."""
        lease.announce(self._recorder, self._own, f"{self.identity} {text}")

    def _found(self, found: Object, before: _Known | None, now: float) -> _Known:
        seen = lease.seen(before and before.seen, found["spec"], now)
        if before is None or before.arrivals != self._arrivals:
            return _Known(found, seen, self._arrivals)
        return _Known(found, seen, self._arrivals, certain=before.certain or seen is not before.seen)

    def _miss(self, name: str, now: float) -> None:
        """The Lease of that name is not there any more."""
        held = self._known[name]
        if name in self._alive and not held.missing:
            self._known[name] = _Known(held.object, held.seen._replace(at=now), self._arrivals, missing=True)
        elif not self._counts(name, now):
            del self._known[name]

    def _counts(self, name: str, now: float) -> bool:
        return lease.respected(self._known[name].seen, self.identity, self._election, now - self._grace)

    def _end(self, seen: lease.Seen) -> float:
        seconds = seen.terms.lease_duration_seconds
        return seen.at + (self._election.lease_duration.total_seconds() if seconds is None else seconds) + self._grace

    def _member(self, name: str) -> Member:
        held = self._known[name]
        member_set = None if held.missing else _member_set(held.object["metadata"])
        return Member(name, held.seen.terms.holder_identity or "", member_set, certain=held.certain)

    def _own_is_there(self, found: Object | None) -> None:
        own = self._own
        if own is None:
            return
        if (
            found is None
            or found["spec"] != own["spec"]
            or _member_set(found["metadata"]) != _member_set(own["metadata"])
        ):
            raise errors.ApiError(0, "Changed", f"our Lease {self.name} is not there as we have written it")
        self._own = found

    async def _list(self) -> dict[str, Object]:
        path = lease.LEASES.collection(self._election.namespace)
        answer = await self._requests.send("GET", path, params={"labelSelector": f"{LABEL}={self._election.name}"})
        try:
            items = msgspec.json.decode(answer, type=_List).items
            found = [lease.decoded(bytes(item)) for item in items or ()]
            return {str(each["metadata"]["name"]): each for each in found}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
            raise errors.ApiError(0, "BadAnswer", f"the answer is no list of Leases: {error}") from error

    async def _reread(self) -> None:
        """Our Lease as it is now, None where there is none (yet)."""
        try:
            self._own = await self._requests.lease("GET", lease.LEASES.object(Key(self._election.namespace, self.name)))
        except errors.ApiError as error:
            if not error.not_found:
                raise
            self._own = None

    async def _write(self, member_set: Iterable[str]) -> Moment:
        began = Moment.now(self._clock)
        before = self._own or {"metadata": {"name": self.name, "namespace": self._election.namespace}}
        meta = before["metadata"]
        labels = {**(meta.get("labels") or {}), LABEL: self._election.name}
        annotations = {**(meta.get("annotations") or {}), MEMBER_SET: " ".join(sorted(member_set))}
        spec = lease.claimed(before.get("spec"), self.identity, self._election, began.wall)
        await self._put({"metadata": {**meta, "labels": labels, "annotations": annotations}, "spec": spec})
        return began

    async def _put(self, wanted: Object) -> None:
        """PUT our Lease on top of what was there last, or POST it where there is none."""
        namespace = self._election.namespace
        method, path = "PUT", lease.LEASES.object(Key(namespace, self.name))
        if self._own is None:
            method, path = "POST", lease.LEASES.collection(namespace)
        body = {"kind": lease.LEASES.kind, "apiVersion": lease.API_VERSION, **wanted}
        written = await self._requests.lease(method, path, body)
        if written["spec"].get("holderIdentity", "") != wanted["spec"]["holderIdentity"]:
            raise errors.ApiError(0, "BadAnswer", f"the server took our Lease but answered {written['spec']}")
        self._own = written


def _member_set(metadata: dict[str, Any]) -> frozenset[str] | None:
    told = (metadata.get("annotations") or {}).get(MEMBER_SET)
    return frozenset(told.split()) if isinstance(told, str) else None
