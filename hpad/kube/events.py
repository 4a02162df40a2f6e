"""Events as Kubernetes' own clients write them: best effort, in the background, never in anybody's way.

What becomes of an event: a new one, a count on an old one, part of a combined one, or nothing.

The rules and figures of Kubernetes' own clients (client-go, tools/record, EventCorrelator with its defaults), so that
`kubectl describe` reads the same. Pure: `now` is an argument.

What is remembered, thousands of times, may outlive what it is about: so objects and messages are known by digests
alone, and what was remembered of an object that is gone is let go of (client-go keeps it until others take its place).
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
_SIMILAR = 10  # different messages of one reason, from which on they are combined
_FORGET = timedelta(minutes=10)
_BURST = 25.0
_REFILL = timedelta(minutes=5)  # for one more event of one source about one object
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_NAME: Final = 253  # of a DNS subdomain (RFC 1123), as names of objects are
_DIGEST: Final = 16
_MARK: Final = 8  # of what is told apart from few others: the messages of one reason, the reasons of one object
_SWEPT: Final = 32
"""So many objects that are gone are let go of at a time: each takes a look at all that is remembered."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """The object an event is about: the fields of core/v1 ObjectReference."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class CountedEvent:
    """One core/v1 Event: about what, which, since when and how often. `name` is its object name."""

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
    """`event` as it is to stand on the server; `exists` where it is there already and only its count changes."""

    event: CountedEvent
    exists: bool


class _Recent(OrderedDict[bytes, V], Generic[V]):
    """The entries used last, as many as client-go remembers. A key begins with the digest of its object."""

    def use(self, key: bytes, value: V) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > _REMEMBERED:
            self.popitem(last=False)

    def drop(self, objects: Collection[bytes]) -> None:
        """Let go of everything about objects with these digests."""
        for key in [key for key in self if key[:_DIGEST] in objects]:
            del self[key]


class _Seen(msgspec.Struct, frozen=True, gc=False):
    """The name of the Event that stands for an occurrence, when it was first seen, and how often."""

    name: str
    first: datetime
    count: int


class _Similar(msgspec.Struct, frozen=True, gc=False):
    """Marks of the different messages of one reason, oldest first, and when the last one came."""

    marks: "array[int]"
    last: datetime


class _Bucket(msgspec.Struct, frozen=True, gc=False):
    """How many more events are let through, as of then."""

    tokens: float
    filled: datetime


class EventAggregator:
    """Remembers what was recorded; one for all events of one source."""

    def __init__(self) -> None:
        self._similar: _Recent[_Similar] = _Recent()
        self._seen: _Recent[_Seen] = _Recent()
        self._spam: _Recent[_Bucket] = _Recent()
        self._gone: set[bytes] = set()
        self._last_name = 0

    def judge(self, about: ObjectReference, type: str, reason: str, message: str, now: datetime) -> EventWrite | None:
        """What to do about an event that happened now; None: drop it, there were too many."""
        whose = _whose(about)
        key = whose + _mark(type, reason, message)
        combined = self._combines(whose, type, reason, message, now)
        if combined:
            key, message = whose + _mark(type, reason), COMBINED + message
        before = self._seen.get(key)
        if before is None:
            seen = _Seen(self._name(about.name, now), now, 1)
        else:
            seen = _Seen(before.name, before.first, before.count + 1)
        self._seen.use(key, seen)
        if not self._allows(whose + _mark(type), now):
            return None
        event = CountedEvent(about, type, reason, message, seen.name, seen.first, now, seen.count, combined)
        return EventWrite(event, before is not None)

    def forget(self, about: ObjectReference) -> None:
        """The object is gone for good. A few of them may be remembered for a while yet, and so may be one of whom an
        event is judged only after this."""
        self._gone.add(_whose(about))
        if len(self._gone) < _SWEPT:
            return
        gone, self._gone = self._gone, set()
        self._similar.drop(gone)
        self._seen.drop(gone)
        self._spam.drop(gone)

    def _combines(self, whose: bytes, type: str, reason: str, message: str, now: datetime) -> bool:
        """Whether there were so many different messages of one reason lately that they become one event."""
        group = whose + _mark(type, reason)
        mark = int.from_bytes(_mark(message), "big")
        held = self._similar.get(group)
        marks = held.marks if held is not None and now - held.last <= _FORGET else array("Q")
        if mark not in marks:
            marks.append(mark)
        self._similar.use(group, _Similar(marks, now))
        if len(marks) < _SIMILAR:
            return False
        del marks[0]
        return True

    def _allows(self, key: bytes, now: datetime) -> bool:
        bucket = self._spam.get(key) or _Bucket(_BURST, now)
        tokens = min(_BURST, bucket.tokens + max(timedelta(0), now - bucket.filled) / _REFILL)
        allowed = tokens >= 1.0
        self._spam.use(key, _Bucket(tokens - allowed, now))
        return allowed

    def _name(self, about: str, now: datetime) -> str:
        """`<object>.<nanoseconds in hex>`, never the same twice; a UUID where that is longer than a name may be."""
        nanoseconds = (now - _EPOCH) // timedelta(microseconds=1) * 1000
        self._last_name = max(nanoseconds, self._last_name + 1)
        name = f"{about}.{self._last_name:x}"
        return name if len(name) <= _LONGEST_NAME else _uuid(name)


def _uuid(text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST).digest()
    return str(uuid.UUID(bytes=digest, version=4))


def _whose(about: ObjectReference) -> bytes:
    """What tells the object, in whatever version, from all others."""
    return _digest((about.kind, about.namespace, about.name, about.uid, about.api_version), _DIGEST)


def _mark(*texts: str) -> bytes:
    return _digest(texts, _MARK)


def _digest(texts: tuple[str, ...], size: int) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(texts), digest_size=size).digest()


COMPONENT = "horizontal-pod-autoscaler"
_QUEUED = 1000
_TRIES = 12
_BETWEEN_S = 10.0
_NAMESPACES = 1024
"""So many namespaces whose events are refused are told apart in the log."""
_MERGE_PATCH = "application/merge-patch+json"


class _Waiting(NamedTuple):
    about: ObjectReference
    event: Event
    at: datetime


class EventRecorder:
    """Takes events at once and writes them from `run`. `dropped` counts those that never reach the server."""

    def __init__(self, client: Client, *, component: str = COMPONENT) -> None:
        self.dropped = 0
        self._client = client
        self._clock = client.clock
        self._component = component
        self._correlator = EventAggregator()
        self._queue: deque[_Waiting] = deque()
        self._filled = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        log = structlog.get_logger("hpad.kube", component=component)
        full = "too many events wait for the API server: new ones are dropped"
        self._full = Episode(log, self._clock, full, "events are taken again")
        self._refused = Episodes(log, self._clock, "event refused", "events are written again", most=_NAMESPACES)
        self._bugs = Episode(
            log, self._clock, "bug: an event cannot be written", "events can be written again", level="error"
        )

    def record(self, hpa: HorizontalPodAutoscaler, event: Event) -> None:
        """Take an event about an HPA; where too many wait already it is dropped, as client-go drops it."""
        self.record_for(_about(hpa), event)

    def record_for(self, about: ObjectReference, event: Event) -> None:
        """Take an event about any object."""
        if len(self._queue) >= _QUEUED:
            self.dropped += 1
            self._full.occurred(waiting=_QUEUED)
            return
        self._queue.append(_Waiting(about, event, self._clock.now()))
        self._written.clear()
        self._filled.set()

    def forget(self, hpa: HorizontalPodAutoscaler) -> None:
        """The HPA is gone: nothing more will be told of it, so no count of its events needs to be known."""
        self._correlator.forget(_about(hpa))

    async def flush(self) -> None:
        """Wait until everything recorded so far has been written or given up."""
        await self._written.wait()

    async def run(self) -> None:
        """Write what is recorded, in order, for ever."""
        while True:
            await self._filled.wait()
            while self._queue:
                await self._try(self._queue.popleft())
            self._full.ended()  # only now: with room for one event it would begin again with the next
            self._filled.clear()
            self._written.set()

    async def _try(self, waiting: _Waiting) -> None:
        try:
            await self._handle(waiting)
        except Exception as error:  # noqa: BLE001  # one event must not end the caches
            self.dropped += 1
            self._bugs.occurred(error=f"{type(error).__name__}: {error}", reason=waiting.event.reason)

    async def _handle(self, waiting: _Waiting) -> None:
        event = waiting.event
        verdict = self._correlator.judge(waiting.about, event.type, event.reason, event.message, waiting.at)
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
                if error.status:  # an answer, whichever: others wait behind this event
                    self._refused.occurred(
                        subject=namespace,
                        cause=error.status,
                        namespace=namespace,
                        error=str(error),
                        reason=event.reason,
                    )
                    break
            await self._clock.sleep(_BETWEEN_S)
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
    """The core/v1 Event to POST. A combined one names no reporting component, as client-go leaves it out there."""
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
    """The patch for an event that happened once more."""
    return {"count": event.count, "lastTimestamp": _seconds(event.last), "message": event.message}


def _seconds(moment: datetime) -> str:
    """RFC 3339 to the second, as metav1.Time is written."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
