"""Records core/v1 Events in the background, best effort, with the aggregation rules of client-go.

Repeated events become a count, many similar ones a combined event, and too many are dropped. Rules and figures are the
defaults of client-go (tools/record/events_cache.go: EventCorrelator), so that `kubectl describe` shows the same.
Objects and messages are kept as digests. The detail of an event takes no part in the rules: its numbers differ each
time, and events that are equal in Kubernetes would not be counted. The Event on the server has the newest detail.
"""

import asyncio
import functools
import hashlib
import uuid
from array import array
from collections import OrderedDict
from datetime import datetime, timedelta
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import structlog

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.clock import micros
from hpad.engine.conditions import Event, with_detail
from hpad.kube import errors, paths
from hpad.kube.client import MERGE_PATCH, Allowed, Client, NotAllowed
from hpad.telemetry.episode import Episode, Episodes

V = TypeVar("V")

COMBINED = "(combined from similar events): "
_REMEMBERED = 4096
_SIMILAR = 10  # different messages of one reason after which they are combined
_SIMILAR_SPAN = timedelta(minutes=10)
_BURST = 25.0
_REFILL = timedelta(minutes=5)  # per event of one type about one object
_LONGEST_NAME: Final = 253  # object names are DNS subdomains (RFC 1123)
_DIGEST: Final = 16
_SHORT_DIGEST: Final = 8  # of a message or a reason: few exist per object


class EventObject(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The object of an event: the fields of core/v1 ObjectReference."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str
    resource_version: str = ""


class CountedEvent(msgspec.Struct, frozen=True, gc=False):
    """One core/v1 Event as it shall be on the server; a count above 1 means that it exists there already.

    `name` is the name of the Event object; `combined`: it stands for several similar events.
    """

    about: EventObject
    type: str
    reason: str
    message: str
    name: str
    first: datetime
    last: datetime
    count: int = 1
    combined: bool = False


class _Recent(OrderedDict[bytes, V], Generic[V]):
    """The 4096 most recently used entries, as in client-go. Entries of deleted objects leave by disuse."""

    def use(self, key: bytes, value: V) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > _REMEMBERED:
            self.popitem(last=False)


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
        self._last_name = 0

    def aggregate(self, about: EventObject, type: str, reason: str, message: str, now: datetime) -> CountedEvent | None:
        """Counts an event that occurred now; returns the Event to write, None if there were too many."""
        # Without the resourceVersion, which changes with each write of the object.
        subject = _digest((about.kind, about.namespace, about.name, about.uid, about.api_version), _DIGEST)
        key = subject + _short_digest(type, reason, message)
        combined = self._combines(subject, type, reason, message, now)
        if combined:
            key, message = subject + _short_digest(type, reason), COMBINED + message
        seen = self._seen.get(key) or _Seen(self._name(about.name, now), now, 0)
        seen = msgspec.structs.replace(seen, count=seen.count + 1)
        self._seen.use(key, seen)
        # Events beyond the limit are counted as well: the next one that is written shows how many there were.
        if not self._allows(subject + _short_digest(type), now):
            return None
        return CountedEvent(about, type, reason, message, seen.name, seen.first, now, seen.count, combined)

    def _combines(self, subject: bytes, type: str, reason: str, message: str, now: datetime) -> bool:
        """Returns whether the event joins a combined one.

        It does if its reason has had 10 different messages, without a gap of more than 10 minutes.
        """
        group = subject + _short_digest(type, reason)
        digest = int.from_bytes(_short_digest(message), "big")
        before = self._similar.get(group)
        digests = before.digests if before is not None and now - before.last <= _SIMILAR_SPAN else array("Q")
        if digest not in digests:
            digests.append(digest)
        self._similar.use(group, _Similar(digests, now))
        if len(digests) < _SIMILAR:
            return False
        del digests[0]  # nine are kept, so that the next different message is the tenth, and combined as well
        return True

    def _allows(self, key: bytes, now: datetime) -> bool:
        bucket = self._spam.get(key) or _Bucket(_BURST, now)
        tokens = min(_BURST, bucket.tokens + max(timedelta(0), now - bucket.filled) / _REFILL)
        allowed = tokens >= 1.0
        self._spam.use(key, _Bucket(tokens - allowed, now))
        return allowed

    def _name(self, about: str, now: datetime) -> str:
        """Returns `<object>.<nanoseconds in hex>`, unique; a UUID if that is too long for a name."""
        nanoseconds = micros(now) * 1000
        self._last_name = max(nanoseconds, self._last_name + 1)
        name = f"{about}.{self._last_name:x}"
        return name if len(name) <= _LONGEST_NAME else str(uuid.UUID(bytes=_digest((name,), _DIGEST), version=4))


def _short_digest(*texts: str) -> bytes:
    return _digest(texts, _SHORT_DIGEST)


def _digest(texts: tuple[str, ...], size: int) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(texts), digest_size=size).digest()


COMPONENT = "horizontal-pod-autoscaler"
_QUEUED = 1000
_TRIES = 12
_RETRY_S = 10.0
_NAMESPACES = 1024  # namespaces with refused events that are logged separately


class _Queued(NamedTuple):
    about: EventObject
    event: Event
    at: datetime
    allowed: Allowed | None


class EventRecorder:
    """Queues events, and writes them in `run`. `dropped` counts the events that did not reach the server."""

    def __init__(self, client: Client, *, component: str = COMPONENT) -> None:
        self.dropped = 0
        self._client = client
        self._clock = client.clock
        self._component = component
        self._aggregator = EventAggregator()
        self._queue: asyncio.Queue[_Queued] = asyncio.Queue(_QUEUED)
        self._log = log = structlog.get_logger("hpad.kube", component=component)
        full = "too many events wait for the API server: new ones are dropped"
        self._full = Episode(log, self._clock, full, "new events are accepted again")
        self._refused = Episodes(log, self._clock, "event refused", "events are written again", most=_NAMESPACES)
        self._bugs = Episode(
            log, self._clock, "bug: an event cannot be written", "events can be written again", level="error"
        )

    def record(self, hpa: HorizontalPodAutoscaler, event: Event, allowed: Allowed | None = None) -> None:
        """Queues an event about an HPA; drops it if the queue is full, as client-go does."""
        meta = hpa.metadata
        about = EventObject(hpa.kind, meta.namespace, meta.name, meta.uid, hpa.api_version, meta.resource_version)
        self.record_for(about, event, allowed)

    def record_for(self, about: EventObject, event: Event, allowed: Allowed | None = None) -> None:
        """Queues an event about any object. It is dropped if `allowed` refuses it when it is written."""
        try:
            self._queue.put_nowait(_Queued(about, event, self._clock.now(), allowed))
        except asyncio.QueueFull:
            self.dropped += 1
            self._full.occurred(waiting=_QUEUED)

    async def flush(self, seconds: float) -> None:
        """Waits until every queued event was written or dropped, for so many seconds at most."""
        try:
            async with asyncio.timeout(seconds):
                await self._queue.join()
        except TimeoutError:
            self._log.warning("some events were not written")

    async def run(self) -> None:
        """Writes queued events in order until cancelled."""
        while True:
            queued = await self._queue.get()
            try:
                await self._handle(queued)
            except Exception as error:  # noqa: BLE001  # a bug with one event must not stop the caches
                self.dropped += 1
                self._bugs.occurred(error=f"{type(error).__name__}: {error}", reason=queued.event.reason)
            finally:
                self._queue.task_done()
            if self._queue.empty():  # not earlier: with room for one event, the next would start a new episode
                self._full.ended()

    async def _handle(self, queued: _Queued) -> None:
        event = queued.event
        aggregated = self._aggregator.aggregate(queued.about, event.type, event.reason, event.message, queued.at)
        if aggregated is None:
            self.dropped += 1
            return
        aggregated = msgspec.structs.replace(aggregated, message=with_detail(aggregated.message, event.detail))
        namespace = queued.about.namespace
        for _ in range(_TRIES):
            try:
                await self._write(aggregated, queued.allowed)
                self._refused.ended(subject=namespace, namespace=namespace)
                self._bugs.ended()
                return
            except errors.ApiError as error:
                if error.namespace_ends:  # as in client-go (tools/record/event.go: recordEvent)
                    break
                if error.status:  # any answer is final: other events wait behind this one
                    self._refused.occurred(
                        subject=namespace,
                        cause=error.status,
                        namespace=namespace,
                        error=str(error),
                        reason=event.reason,
                    )
                    break
            except NotAllowed:  # the next owner of the HPA reports what it finds
                break
            await self._clock.sleep(_RETRY_S)
        self.dropped += 1

    async def _write(self, event: CountedEvent, allowed: Allowed | None) -> None:
        send = functools.partial(self._client.request, allowed=allowed)
        key = Key(event.about.namespace, event.name)
        if event.count > 1:
            try:
                patch = {"count": event.count, "lastTimestamp": _seconds(event.last), "message": event.message}
                body = msgspec.json.encode(patch)
                await send("PATCH", paths.EVENTS.object(key), body=body, content_type=MERGE_PATCH)
                return
            except errors.ApiError as error:
                if not error.not_found:  # events expire, by default after an hour (kube-apiserver --event-ttl)
                    raise
        body = msgspec.json.encode(created(event, self._component))
        await send("POST", paths.EVENTS.collection(key.namespace), body=body)


def created(event: CountedEvent, component: str) -> dict[str, Any]:
    """Returns the core/v1 Event to POST. A combined event has no reporting component, as in client-go."""
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": event.name, "namespace": event.about.namespace},
        "involvedObject": msgspec.to_builtins(event.about),
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


def _seconds(moment: datetime) -> str:
    """Returns RFC 3339 text in whole seconds, like metav1.Time."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
