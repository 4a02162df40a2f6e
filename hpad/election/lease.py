"""The Lease of a leader election, with the semantics of Kubernetes' own components, so that both exclude each other.

The rules are those of client-go, tools/leaderelection. The holder named in the Lease leads. Others respect it until
`leaseDurationSeconds` have passed since they last saw the Lease change, by their own monotonic clock. The times written
in the Lease are for people, since clocks of two machines need not agree. A write carries the resourceVersion that it
builds on, so the API server refuses one of two concurrent candidates.

A Lease is not a fence. It names one leader at a time as long as monotonic clocks run at the same rate and leaders stop
in time. A request that a leader sent while it led can still arrive after another has taken over.
"""

import asyncio
import socket
import uuid
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


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a coordination.k8s.io/v1 LeaseSpec that decide which candidate leads."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None


class Observation(NamedTuple):
    """A spec of the Lease, and the monotonic time in seconds at which it was first seen."""

    spec: Object
    record: LeaseSpec
    at: float


def observe(before: Observation | None, spec: Object, now: float) -> Observation:
    """Returns the observation after a read: only a change of the spec counts as a renewal. Raises errors.ApiError."""
    if before is not None and before.spec == spec:
        return before
    try:
        return Observation(spec, msgspec.convert(spec, LeaseSpec), now)
    except msgspec.ValidationError as error:
        raise errors.ApiError(0, "BadAnswer", f"the Lease is malformed: {error}") from error


def held_by_other(seen: Observation | None, identity: str, election: Election, now: float) -> bool:
    """Returns whether another identity holds the Lease and it has not expired.

    A Lease without a duration gets that of `election`.
    """
    if seen is None or seen.record.holder_identity in (None, "", identity):
        return False
    seconds = seen.record.lease_duration_seconds
    return now < seen.at + (election.lease_duration.total_seconds() if seconds is None else seconds)


def acquire_or_renew_spec(spec: Object | None, identity: str, election: Election, now: datetime) -> Object:
    """Returns the spec that acquires or renews the Lease; unknown fields stay. `spec` None: there is no Lease yet."""
    record = {
        "holderIdentity": identity,
        "leaseDurationSeconds": int(election.lease_duration.total_seconds()),
        "acquireTime": micro_time(now),
        "renewTime": micro_time(now),
        "leaseTransitions": 0,
    }
    if spec is None:
        return record
    transitions = spec.get("leaseTransitions") or 0
    if spec.get("holderIdentity") == identity:
        return {**spec, **record, "acquireTime": spec.get("acquireTime"), "leaseTransitions": transitions}
    return {**spec, **record, "leaseTransitions": transitions + 1}


def release_spec(spec: Object, now: datetime) -> Object:
    """Returns the spec that lets any candidate take over at once (client-go: ReleaseOnCancel)."""
    moment = micro_time(now)
    return {**spec, "holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": moment, "renewTime": moment}


def micro_time(moment: datetime) -> str:
    """Formats a UTC datetime as RFC 3339 with microseconds, as metav1.MicroTime does."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def identity() -> str:
    """Returns a unique name for this process, host name and UUID, as Kubernetes' components do."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class Elector:
    """One candidate's view of one Lease at the API server. An attempt takes one request for the leader, four at most.

    A renewal is written on top of the last version read or written; the Lease is read only if that fails. A Lease that
    vanishes while another holds it is respected as if it still existed. `slow_renewals` counts the renewals that needed
    a read. Client and server both give up a request after half the renew deadline.
    """

    def __init__(
        self, client: Client, election: Election, *, identity: str, recorder: EventRecorder | None = None
    ) -> None:
        self.identity = identity
        self.slow_renewals = 0
        self.key = Key(election.namespace, election.name)
        self._client = client
        self._clock = client.clock
        self._election = election
        self._patience = election.renew_deadline.total_seconds() / 2
        self._limit = {"timeout": duration.write(election.renew_deadline / 2)}
        self._recorder = recorder
        self._object: Object | None = None
        """The version last read or written; None if there was none."""
        self._seen: Observation | None = None
        self._log = structlog.get_logger("hpad.election", lease=str(self.key))

    @property
    def holder(self) -> str:
        """The holder named in the Lease when it was last read; "" without one."""
        return (self._seen.record.holder_identity if self._seen is not None else None) or ""

    @property
    def _is_held(self) -> bool:
        """Whether the version last read or written names this process as the holder."""
        return self._object is not None and self._object["spec"].get("holderIdentity") == self.identity

    def held_by_other(self) -> bool:
        """Returns whether another identity held the Lease when it was last read, and it has not expired since."""
        return held_by_other(self._seen, self.identity, self._election, self._clock.monotonic())

    async def attempt(self) -> Moment | None:
        """Tries once to acquire or renew the Lease; returns the moment before the successful request was sent.

        Returns None while another identity holds the Lease. Raises errors.ApiError if the outcome is unknown.
        """
        if self._is_held:
            try:
                return await self._acquire_or_renew()
            except errors.ApiError as error:
                self.slow_renewals += 1
                self._log.debug("renewal refused; reading the Lease", error=str(error))
        await self.read()
        if self.held_by_other():
            return None
        try:
            return await self._acquire_or_renew()
        except errors.ApiError as error:
            if error.status != 409:
                raise
            await self.read()  # another candidate was faster
            if self.held_by_other():
                return None
            raise

    async def read(self) -> None:
        """Reads the Lease. Raises errors.ApiError, except that the Lease is not found."""
        try:
            self._object = await self._send("GET", LEASES.object(self.key))
        except errors.ApiError as error:
            if not error.not_found:
                raise
            self._object = None
        else:
            self._seen = observe(self._seen, self._object["spec"], self._clock.monotonic())

    async def release(self) -> None:
        """Releases the Lease if this process holds it. Raises errors.ApiError."""
        try:
            await self._release()
        except errors.ApiError as error:
            if not error.conflict:
                raise
            await self.read()
            await self._release()

    def announce(self, text: str) -> None:
        """Records an event "<identity> <text>" on the Lease, as client-go's leaderelection does; best effort."""
        if self._recorder is None or self._object is None:
            return
        meta = self._object["metadata"]
        uid, version = str(meta.get("uid", "")), str(meta.get("resourceVersion", ""))
        about = events.EventObject(LEASES.kind, self.key.namespace, self.key.name, uid, API_VERSION, version)
        self._recorder.record_for(about, Event(NORMAL, "LeaderElection", f"{self.identity} {text}"))

    async def _acquire_or_renew(self) -> Moment:
        began, stored = Moment.now(self._clock), self._object
        spec = acquire_or_renew_spec(stored and stored["spec"], self.identity, self._election, began.wall)
        written = await self._write(spec)
        self._seen = observe(None, written["spec"], began.monotonic)
        return began

    async def _release(self) -> None:
        if self._object is not None and self._is_held:
            await self._write(release_spec(self._object["spec"], self._clock.now()))

    async def _write(self, spec: Object) -> Object:
        """Sends the spec; returns the new object. Raises errors.ApiError.

        Sends a PUT on top of the version last seen, or a POST if there is no Lease.
        """
        method, path = "PUT", LEASES.object(self.key)
        if self._object is None:
            method, path = "POST", LEASES.collection(self.key.namespace)
        head = {"name": self.key.name, "namespace": self.key.namespace}
        head = head if self._object is None else self._object["metadata"]
        lease = {"kind": LEASES.kind, "apiVersion": API_VERSION, "metadata": head, "spec": spec}
        written = await self._send(method, path, lease)
        if written["spec"].get("holderIdentity", "") != spec["holderIdentity"]:
            # A webhook or proxy may answer with another object: this process would lead without the Lease.
            raise errors.ApiError(0, "BadAnswer", f"the server accepted the Lease but answered {written['spec']}")
        self._object = written
        return written

    async def _send(self, method: str, path: str, body: Object | None = None) -> Object:
        """Returns the Lease of the answer. Raises errors.ApiError, also for a timeout over all retries."""
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with asyncio.timeout(self._patience):
                answer = await self._client.request(method, path, params=self._limit, body=data, timeout=self._patience)
            return decoded(answer)
        except TimeoutError as error:
            text = f"{method} of {path} was not answered within {self._patience:g} s"
            raise errors.ApiError(0, "Timeout", text) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise errors.ApiError(0, "BadAnswer", f"the answer is no Lease: {error}") from error


class _Lease(msgspec.Struct):
    metadata: Object
    spec: Object = {}


def decoded(answer: bytes) -> Object:
    """Returns the whole object after checking the parts used here. Raises the exceptions of msgspec."""
    msgspec.json.decode(answer, type=_Lease)
    found: Object = msgspec.json.decode(answer)
    return {**found, "spec": found.get("spec", {})}
