"""Records core/v1 Events in the background, best effort, with the aggregation rules of client-go.

Repeated events become a count, many similar ones a combined event, and too many are dropped. Rules and figures are the
defaults of client-go (tools/record/events_cache.go: EventCorrelator), so that `kubectl describe` shows the same.
Objects and messages are kept as digests; unlike client-go, the entries of a deleted object are dropped early.
"""

import asyncio
import hashlib
import uuid
from array import array
from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import structlog

from hpad.api.hpa import API_VERSION, KIND, HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.engine.conditions import Event
from hpad.kube import errors, paths
from hpad.kube.client import Client
from hpad.telemetry.episode import Episode, Episodes

V = TypeVar("V")

COMBINED = "(combined from similar events): "
_REMEMBERED = 4096
_SIMILAR = 10  # different messages of one reason after which they are combined
_SIMILAR_SPAN = timedelta(minutes=10)
_BURST = 25.0
_REFILL = timedelta(minutes=5)  # per event of one type about one object
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_NAME: Final = 253  # object names are DNS subdomains (RFC 1123)
_DIGEST: Final = 16
_SHORT_DIGEST: Final = 8  # of a message or a reason: few exist per object
_FORGOTTEN_AT_ONCE: Final = 32
"""Deleted objects are forgotten in batches, since each batch scans all entries."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object of an event: the fields of core/v1 ObjectReference."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CountedEvent:
    """One core/v1 Event with its count; `name` is the name of the Event object, `combined` as in client-go."""

    about: ObjectReference
    type: str
    reason: str
    message: str
    name: str
    first: datetime
    last: datetime
    count: int = 1
    combined: bool = False


@dataclass(frozen=True, slots=True)
class EventWrite:
    """The event as the server shall have it; `exists` if only the count of an existing Event changes."""

    event: CountedEvent
    exists: bool


class _Recent(OrderedDict[bytes, V], Generic[V]):
    """The 4096 most recently used entries, as in client-go. A key starts with the digest of its object."""

    def use(self, key: bytes, value: V) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > _REMEMBERED:
            self.popitem(last=False)

    def drop(self, objects: Collection[bytes]) -> None:
        """Deletes the entries of objects with these digests."""
        for key in [key for key in self if key[:_DIGEST] in objects]:
            del self[key]


class _Seen(msgspec.Struct, frozen=True, gc=False):
    """The name of the Event object, the time of the first occurrence, and the number of occurrences."""

    name: str
    first: datetime
    count: int


class _Similar(msgspec.Struct, frozen=True, gc=False):
    """Short digests of the different messages of one reason, oldest first, and the time of the last one."""

    digests: "array[int]"
    last: datetime


class _Bucket(msgspec.Struct, frozen=True, gc=False):
    """A token bucket: the tokens at the time `filled`."""

    tokens: float
    filled: datetime


class EventAggregator:
    """Aggregates the events of one source. Pure: times are arguments."""

    def __init__(self) -> None:
        self._similar: _Recent[_Similar] = _Recent()
        self._seen: _Recent[_Seen] = _Recent()
        self._spam: _Recent[_Bucket] = _Recent()
        self._gone: set[bytes] = set()
        self._last_name = 0

    def aggregate(
        self, about: ObjectReference, type: str, reason: str, message: str, now: datetime
    ) -> EventWrite | None:
        """The write for an event that occurred now; None if there were too many."""
        subject = _object_digest(about)
        key = subject + _short_digest(type, reason, message)
        combined = self._combines(subject, type, reason, message, now)
        if combined:
            key, message = subject + _short_digest(type, reason), COMBINED + message
        before = self._seen.get(key)
        if before is None:
            seen = _Seen(self._name(about.name, now), now, 1)
        else:
            seen = _Seen(before.name, before.first, before.count + 1)
        self._seen.use(key, seen)
        if not self._allows(subject + _short_digest(type), now):
            return None
        event = CountedEvent(about, type, reason, message, seen.name, seen.first, now, seen.count, combined)
        return EventWrite(event, before is not None)

    def forget(self, about: ObjectReference) -> None:
        """Drops the entries of a deleted object, a batch of objects at a time."""
        self._gone.add(_object_digest(about))
        if len(self._gone) < _FORGOTTEN_AT_ONCE:
            return
        gone, self._gone = self._gone, set()
        self._similar.drop(gone)
        self._seen.drop(gone)
        self._spam.drop(gone)

    def _combines(self, subject: bytes, type: str, reason: str, message: str, now: datetime) -> bool:
        """Whether the event joins a combined one: its reason has had 10 different messages, no gap over 10 minutes."""
        group = subject + _short_digest(type, reason)
        digest = int.from_bytes(_short_digest(message), "big")
        before = self._similar.get(group)
        digests = before.digests if before is not None and now - before.last <= _SIMILAR_SPAN else array("Q")
        if digest not in digests:
            digests.append(digest)
        self._similar.use(group, _Similar(digests, now))
        if len(digests) < _SIMILAR:
            return False
        del digests[0]
        return True

    def _allows(self, key: bytes, now: datetime) -> bool:
        bucket = self._spam.get(key) or _Bucket(_BURST, now)
        tokens = min(_BURST, bucket.tokens + max(timedelta(0), now - bucket.filled) / _REFILL)
        allowed = tokens >= 1.0
        self._spam.use(key, _Bucket(tokens - allowed, now))
        return allowed

    def _name(self, about: str, now: datetime) -> str:
        """`<object>.<nanoseconds in hex>`, unique; a UUID if that is too long for a name."""
        nanoseconds = (now - _EPOCH) // timedelta(microseconds=1) * 1000
        self._last_name = max(nanoseconds, self._last_name + 1)
        name = f"{about}.{self._last_name:x}"
        return name if len(name) <= _LONGEST_NAME else _uuid(name)


def _uuid(text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST).digest()
    return str(uuid.UUID(bytes=digest, version=4))


def _object_digest(about: ObjectReference) -> bytes:
    """The digest of the object, independent of its resourceVersion."""
    return _digest((about.kind, about.namespace, about.name, about.uid, about.api_version), _DIGEST)


def _short_digest(*texts: str) -> bytes:
    return _digest(texts, _SHORT_DIGEST)


def _digest(texts: tuple[str, ...], size: int) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(texts), digest_size=size).digest()


COMPONENT = "horizontal-pod-autoscaler"
_QUEUED = 1000
_TRIES = 12
_RETRY_S = 10.0
_NAMESPACES = 1024  # namespaces with refused events that are logged separately
_MERGE_PATCH = "application/merge-patch+json"


class _Queued(NamedTuple):
    about: ObjectReference
    event: Event
    at: datetime


class EventRecorder:
    """Queues events, and writes them in `run`. `dropped` counts the events that did not reach the server."""

    def __init__(self, client: Client, *, component: str = COMPONENT) -> None:
        self.dropped = 0
        self._client = client
        self._clock = client.clock
        self._component = component
        self._aggregator = EventAggregator()
        self._queue: deque[_Queued] = deque()
        self._not_empty = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        log = structlog.get_logger("hpad.kube", component=component)
        full = "too many events wait for the API server: new ones are dropped"
        self._full = Episode(log, self._clock, full, "events are taken again")
        self._refused = Episodes(log, self._clock, "event refused", "events are written again", most=_NAMESPACES)
        self._bugs = Episode(
            log, self._clock, "bug: an event cannot be written", "events can be written again", level="error"
        )

    def record(self, hpa: HorizontalPodAutoscaler, event: Event) -> None:
        """Queues an event about an HPA; drops it if the queue is full, as client-go does."""
        self.record_for(_about(hpa), event)

    def record_for(self, about: ObjectReference, event: Event) -> None:
        """Queues an event about any object."""
        if len(self._queue) >= _QUEUED:
            self.dropped += 1
            self._full.occurred(waiting=_QUEUED)
            return
        self._queue.append(_Queued(about, event, self._clock.now()))
        self._idle.clear()
        self._not_empty.set()

    def forget(self, hpa: HorizontalPodAutoscaler) -> None:
        """Drops the counts of the events of a deleted HPA."""
        self._aggregator.forget(_about(hpa))

    async def flush(self) -> None:
        """Waits until every queued event was written or dropped."""
        await self._idle.wait()

    async def run(self) -> None:
        """Writes queued events in order until cancelled."""
        while True:
            await self._not_empty.wait()
            while self._queue:
                await self._try(self._queue.popleft())
            self._full.ended()  # not earlier: with room for one event, the next would start a new episode
            self._not_empty.clear()
            self._idle.set()

    async def _try(self, waiting: _Queued) -> None:
        try:
            await self._handle(waiting)
        except Exception as error:  # noqa: BLE001  # a bug with one event must not stop the caches
            self.dropped += 1
            self._bugs.occurred(error=f"{type(error).__name__}: {error}", reason=waiting.event.reason)

    async def _handle(self, waiting: _Queued) -> None:
        event = waiting.event
        verdict = self._aggregator.aggregate(waiting.about, event.type, event.reason, event.message, waiting.at)
        if verdict is None:
            self.dropped += 1
            return
        namespace = waiting.about.namespace
        for _ in range(_TRIES):
            try:
                await self._write(verdict)
                self._refused.ended(subject=namespace, namespace=namespace)
                self._bugs.ended()
                return
            except errors.ApiError as error:
                if error.status:  # any answer is final: other events wait behind this one
                    self._refused.occurred(
                        subject=namespace,
                        cause=error.status,
                        namespace=namespace,
                        error=str(error),
                        reason=event.reason,
                    )
                    break
            await self._clock.sleep(_RETRY_S)
        self.dropped += 1

    async def _write(self, verdict: EventWrite) -> None:
        event = verdict.event
        key = Key(event.about.namespace, event.name)
        if verdict.exists:
            try:
                body = msgspec.json.encode(counted(event))
                await self._client.request("PATCH", paths.EVENTS.object(key), body=body, content_type=_MERGE_PATCH)
                return
            except errors.ApiError as error:
                if not error.not_found:
                    raise
        body = msgspec.json.encode(created(event, self._component))
        await self._client.request("POST", paths.EVENTS.collection(key.namespace), body=body)


def _about(hpa: HorizontalPodAutoscaler) -> ObjectReference:
    meta = hpa.metadata
    return ObjectReference(KIND, meta.namespace, meta.name, meta.uid, API_VERSION, meta.resource_version)


def created(event: CountedEvent, component: str) -> dict[str, Any]:
    """The core/v1 Event to POST. A combined event has no reporting component, as in client-go."""
    about = event.about
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": event.name, "namespace": about.namespace},
        "involvedObject": {
            "kind": about.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
            "apiVersion": about.api_version,
            "resourceVersion": about.resource_version,
        },
        "reason": event.reason,
        "message": event.message,
        "source": {"component": component},
        "firstTimestamp": _seconds(event.first),
        "lastTimestamp": _seconds(event.last),
        "count": event.count,
        "type": event.type,
        "eventTime": None,
        "reportingComponent": "" if event.combined else component,
        "reportingInstance": "",
    }


def counted(event: CountedEvent) -> dict[str, Any]:
    """The patch for one more occurrence of an event."""
    return {"count": event.count, "lastTimestamp": _seconds(event.last), "message": event.message}


def _seconds(moment: datetime) -> str:
    """RFC 3339 in whole seconds, like metav1.Time."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
