"""What becomes of an event: a new one, a count on an old one, part of a combined one, or nothing.

The rules and figures of Kubernetes' own clients (client-go, tools/record, EventCorrelator with its defaults), so that
`kubectl describe` reads the same. Pure: `now` is an argument.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Generic, TypeVar

V = TypeVar("V")

COMBINED = "(combined from similar events): "
_REMEMBERED = 4096
_SIMILAR = 10  # different messages of one reason, from which on they are combined
_FORGET = timedelta(minutes=10)
_BURST = 25.0
_REFILL = timedelta(minutes=5)  # for one more event of one source about one object
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class About:
    """The object an event is about: the fields of core/v1 ObjectReference."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True)
class Occurrence:
    """One core/v1 Event: about what, which, since when and how often. `name` is its object name."""

    about: About
    type: str
    reason: str
    message: str
    name: str
    first: datetime
    last: datetime
    count: int = 1


@dataclass(frozen=True)
class Verdict:
    """`event` as it is to stand on the server; `exists` where it is there already and only its count changes."""

    event: Occurrence
    exists: bool
    key: Hashable


class _Recent(OrderedDict[Hashable, V], Generic[V]):
    """The entries used last, as many as client-go remembers."""

    def use(self, key: Hashable, value: V) -> None:
        self[key] = value
        self.move_to_end(key)
        if len(self) > _REMEMBERED:
            self.popitem(last=False)


@dataclass
class _Bucket:
    tokens: float
    filled: datetime


class Correlator:
    """Remembers what was recorded; one for all events of one source."""

    def __init__(self) -> None:
        self._similar: _Recent[tuple[dict[str, None], datetime]] = _Recent()
        self._seen: _Recent[Occurrence] = _Recent()
        self._spam: _Recent[_Bucket] = _Recent()
        self._last_name = 0

    def judge(self, about: About, type: str, reason: str, message: str, now: datetime) -> Verdict | None:
        """What to do about an event that happened now; None: drop it, there were too many."""
        key: Hashable = (about, type, reason, message)
        if self._combines(about, type, reason, message, now):
            key, message = (about, type, reason), COMBINED + message
        seen = self._seen.get(key)
        event = Occurrence(about, type, reason, message, "", now, now)
        if seen is None:
            event = replace(event, name=self._name(about.name, now))
        else:
            event = replace(event, name=seen.name, first=seen.first, count=seen.count + 1)
        self._seen.use(key, event)
        return Verdict(event, seen is not None, key) if self._allows(about, type, now) else None

    def _combines(self, about: About, type: str, reason: str, message: str, now: datetime) -> bool:
        """Whether there were so many different messages of one reason lately that they become one event."""
        group = (about, type, reason)
        messages, last = self._similar.get(group, ({}, now))
        if now - last > _FORGET:
            messages = {}
        messages[message] = None
        self._similar.use(group, (messages, now))
        if len(messages) < _SIMILAR:
            return False
        del messages[next(iter(messages))]
        return True

    def _allows(self, about: About, type: str, now: datetime) -> bool:
        bucket = self._spam.get((about, type)) or _Bucket(_BURST, now)
        bucket.tokens = min(_BURST, bucket.tokens + max(timedelta(0), now - bucket.filled) / _REFILL)
        bucket.filled = now
        self._spam.use((about, type), bucket)
        if bucket.tokens < 1.0:
            return False
        bucket.tokens -= 1.0
        return True

    def _name(self, about: str, now: datetime) -> str:
        """`<object>.<nanoseconds in hex>`, never the same twice."""
        nanoseconds = (now - _EPOCH) // timedelta(microseconds=1) * 1000
        self._last_name = max(nanoseconds, self._last_name + 1)
        return f"{about}.{self._last_name:x}"
