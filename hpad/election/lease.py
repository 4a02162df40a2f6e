"""The Lease of a leader election, kept as Kubernetes' own components keep it, so that both respect each other.

The rules of client-go's tools/leaderelection: whoever is named as holder in the Lease leads; it is respected until
`leaseDurationSeconds` have passed since *we* last saw the Lease change, by our monotonic clock. The times written in it
are for people: clocks of two machines need not agree. A write carries the resourceVersion it builds on, so that of two
candidates one is refused.

A Lease is no fencing. It names one leader at a time as long as monotonic clocks run at the same rate and leaders stop
in time; a request that a leader sent while it led can still reach the API server after another has taken over.
"""

import asyncio
import socket
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import structlog

from hpad.api import duration
from hpad.api.metadata import Key
from hpad.clock import Moment
from hpad.engine.conditions import NORMAL, Event
from hpad.kube import errors, events, paths
from hpad.kube.client import Client
from hpad.kube.events import EventRecorder
from hpad.settings.model import Election

LEASES = paths.Resource("coordination.k8s.io", "v1", "leases", "Lease")
API_VERSION = "coordination.k8s.io/v1"
Object = dict[str, Any]


class Terms(msgspec.Struct, frozen=True, rename="camel"):
    """coordination.k8s.io/v1 LeaseSpec, as far as it decides anything."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class Seen(NamedTuple):
    """A spec of the Lease, and since when (monotonic seconds) we know it to be so."""

    spec: Object
    terms: Terms
    at: float


def seen(before: Seen | None, spec: Object, now: float) -> Seen:
    """The Lease was looked at: only a change of its spec counts as a sign of life. Raises errors.ApiError."""
    if before is not None and before.spec == spec:
        return before
    try:
        return Seen(spec, msgspec.convert(spec, Terms), now)
    except msgspec.ValidationError as error:
        raise errors.ApiError(0, "BadAnswer", f"the Lease makes no sense: {error}") from error


def respected(held: Seen | None, identity: str, election: Election, now: float) -> bool:
    """Whether the Lease is another's and still counts. Without a duration in it, ours is taken for the holder's."""
    if held is None or held.terms.holder_identity in (None, "", identity):
        return False
    seconds = held.terms.lease_duration_seconds
    return now < held.at + (election.lease_duration.total_seconds() if seconds is None else seconds)


def claimed(spec: Object | None, identity: str, election: Election, now: datetime) -> Object:
    """The spec that makes (or keeps) the Lease ours; fields that we do not know stay. None: there is no Lease yet."""
    claim = {
        "holderIdentity": identity,
        "leaseDurationSeconds": int(election.lease_duration.total_seconds()),
        "acquireTime": micro_time(now),
        "renewTime": micro_time(now),
        "leaseTransitions": 0,
    }
    if spec is None:
        return claim
    transitions = spec.get("leaseTransitions") or 0
    if spec.get("holderIdentity") == identity:
        return {**spec, **claim, "acquireTime": spec.get("acquireTime"), "leaseTransitions": transitions}
    return {**spec, **claim, "leaseTransitions": transitions + 1}


def released(spec: Object, now: datetime) -> Object:
    """The spec that lets anybody take over at once (client-go: ReleaseOnCancel)."""
    moment = micro_time(now)
    return {**spec, "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": moment, "renewTime": moment}


def micro_time(moment: datetime) -> str:
    """RFC 3339 with microseconds in UTC, as metav1.MicroTime is written; expects an aware datetime in UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def identity() -> str:
    """A name for this process that no other has, as Kubernetes' components choose theirs."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Requests:
    """Requests about Leases, which neither we nor the server follow for longer than half the renew deadline."""

    def __init__(self, client: Client, election: Election) -> None:
        self._client = client
        self._patience = election.renew_deadline.total_seconds() / 2
        self._limit = {"timeout": duration.write(election.renew_deadline / 2)}

    async def send(
        self, method: str, path: str, body: Object | None = None, params: Mapping[str, str] | None = None
    ) -> bytes:
        """The answer, however often the client retries; raises errors.ApiError."""
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with asyncio.timeout(self._patience):
                return await self._client.request(
                    method, path, params={**self._limit, **(params or {})}, body=data, timeout=self._patience
                )
        except TimeoutError as error:
            text = f"{method} of {path} was not answered within {self._patience:g} s"
            raise errors.ApiError(0, "Timeout", text) from error

    async def lease(self, method: str, path: str, body: Object | None = None) -> Object:
        """The Lease that was read or written; raises errors.ApiError."""
        answer = await self.send(method, path, body)
        try:
            return decoded(answer)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise errors.ApiError(0, "BadAnswer", f"the answer is no Lease: {error}") from error


def announce(recorder: EventRecorder | None, lease: Object | None, message: str) -> None:
    """An event on a Lease, as client-go's electors make them; best effort."""
    if recorder is None or lease is None:
        return
    meta = lease["metadata"]
    about = events.ObjectReference(
        LEASES.kind,
        str(meta.get("namespace", "")),
        str(meta.get("name", "")),
        str(meta.get("uid", "")),
        API_VERSION,
        str(meta.get("resourceVersion", "")),
    )
    recorder.record_for(about, Event(NORMAL, "LeaderElection", message))


class Elector:
    """One candidate's view of one Lease. Each attempt is one request for the leader, four at most.

    A renewal is written at once on top of what was written last; only where that fails the Lease is read first. A Lease
    that vanishes while another holds it is respected as if it were still there. `slow` counts the renewals that
    needed a reading. Several may share an identity (and then hold the Lease together).
    """

    def __init__(
        self, client: Client, election: Election, *, identity: str, recorder: EventRecorder | None = None
    ) -> None:
        self.key = Key(election.namespace, election.name)
        self.identity = identity
        self.slow = 0
        self.proof: Moment | None = None
        """A moment at which the Lease, as we know it now, had not been written yet; None where we know of none."""
        self._requests = Requests(client, election)
        self._clock = client.clock
        self._election = election
        self._recorder = recorder
        self._object: Object | None = None
        self._seen: Seen | None = None
        self._looked: Moment | None = None
        self._log = structlog.get_logger("hpad.election", lease=str(self.key))

    @property
    def holder(self) -> str:
        """Whom the Lease named when it was last seen; "" for nobody."""
        return (self._seen.terms.holder_identity if self._seen is not None else None) or ""

    def is_anothers(self) -> bool:
        """Whether the Lease, as it was last seen, is somebody else's and still counts."""
        return respected(self._seen, self.identity, self._election, self._clock.monotonic())

    async def attempt(self) -> Moment | None:
        """Acquire or renew the Lease, once: the moment before the request that made it ours was sent.

        None: another's counts. Raises errors.ApiError where neither could be found out.
        """
        if self._object is not None and self.holder == self.identity:
            try:
                return await self._claim()
            except errors.ApiError as error:
                self.slow += 1
                self._log.debug("renewal refused; looking", error=str(error))
        await self._look()
        if self.is_anothers():
            return None
        try:
            return await self._claim()
        except errors.ApiError as error:
            if error.status != 409:
                raise
            await self._look()  # another candidate was faster
            if self.is_anothers():
                return None
            raise

    async def release(self) -> None:
        """Give the Lease up, if it is ours. Raises errors.ApiError."""
        try:
            await self._give_up()
        except errors.ApiError as error:
            if not error.conflict:
                raise
            await self._look()
            await self._give_up()

    def announce(self, text: str) -> None:
        """An event on the Lease: "<identity> became leader"; best effort."""
        announce(self._recorder, self._object, f"{self.identity} {text}")

    async def look(self) -> bool:
        """Read the Lease: whether it is ours. Raises errors.ApiError."""
        await self._look()
        return self._object is not None and self.holder == self.identity

    async def _look(self) -> None:
        began = Moment.now(self._clock)
        try:
            found = await self._requests.lease("GET", LEASES.object(self.key))
        except errors.ApiError as error:
            if not error.not_found:
                raise
            self._object = None
        else:
            before, self._seen = self._seen, seen(self._seen, found["spec"], self._clock.monotonic())
            if self._seen is not before:
                self.proof = self._looked
            self._object = found
        self._looked = began

    async def _claim(self) -> Moment:
        began = Moment.now(self._clock)
        spec = claimed(self._object and self._object["spec"], self.identity, self._election, began.wall)
        await self._write(spec, began.monotonic)
        return began

    async def _give_up(self) -> None:
        if self._object is not None and self._object["spec"].get("holderIdentity") == self.identity:
            await self._write(released(self._object["spec"], self._clock.now()), self._clock.monotonic())

    async def _write(self, spec: Object, now: float) -> None:
        """PUT the spec on top of the Lease as it was last seen, or POST it where there is none."""
        if self._object is None:
            head = {"name": self.key.name, "namespace": self.key.namespace}
            method, path = "POST", LEASES.collection(self.key.namespace)
        else:
            head, method, path = self._object["metadata"], "PUT", LEASES.object(self.key)
        lease = {"kind": LEASES.kind, "apiVersion": API_VERSION, "metadata": head, "spec": spec}
        began = Moment.now(self._clock)
        written = await self._requests.lease(method, path, lease)
        if written["spec"].get("holderIdentity", "") != spec["holderIdentity"]:
            raise errors.ApiError(0, "BadAnswer", f"the server took our Lease but answered {written['spec']}")
        self._seen = seen(None, written["spec"], now)
        self._object = written
        self.proof = self._looked = began


class _Lease(msgspec.Struct):
    metadata: Object
    spec: Object = {}


def decoded(answer: bytes) -> Object:
    """The whole object, once it is known to have the parts used here. Raises what msgspec does."""
    msgspec.json.decode(answer, type=_Lease)
    found: Object = msgspec.json.decode(answer)
    return {**found, "spec": found.get("spec", {})}
