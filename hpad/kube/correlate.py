"""What becomes of an event: a new one, a count on an old one, part of a combined one, or nothing.

The rules and figures of Kubernetes' own clients (client-go, tools/record, EventCorrelator with its defaults), so that
`kubectl describe` reads the same. Pure: `now` is an argument.

What is remembered, thousands of times, may outlive what it is about: so objects and messages are known by digests
alone, and what was remembered of an object that is gone is let go of (client-go keeps it until others take its place).
"""

import hashlib
import uuid
from array import array
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, Generic, TypeVar

import msgspec

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
class About:
    """The object an event is about: the fields of core/v1 ObjectReference."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str
    resource_version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """`event` as it is to stand on the server; `exists` where it is there already and only its count changes."""

    event: Occurrence
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


class Correlator:
    """Remembers what was recorded; one for all events of one source."""

    def __init__(self) -> None:
        self._similar: _Recent[_Similar] = _Recent()
        self._seen: _Recent[_Seen] = _Recent()
        self._spam: _Recent[_Bucket] = _Recent()
        self._gone: set[bytes] = set()
        self._last_name = 0

    def judge(self, about: About, type: str, reason: str, message: str, now: datetime) -> Verdict | None:
        """What to do about an event that happened now; None: drop it, there were too many."""
        whose = _whose(about)
        key = whose + _mark(type, reason, message)
        if self._combines(whose, type, reason, message, now):
            key, message = whose + _mark(type, reason), COMBINED + message
        before = self._seen.get(key)
        if before is None:
            seen = _Seen(self._name(about.name, now), now, 1)
        else:
            seen = _Seen(before.name, before.first, before.count + 1)
        self._seen.use(key, seen)
        if not self._allows(whose + _mark(type), now):
            return None
        event = Occurrence(about, type, reason, message, seen.name, seen.first, now, seen.count)
        return Verdict(event, before is not None)

    def forget(self, about: About) -> None:
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


def _whose(about: About) -> bytes:
    """What tells the object, in whatever version, from all others."""
    return _digest((about.kind, about.namespace, about.name, about.uid, about.api_version), _DIGEST)


def _mark(*texts: str) -> bytes:
    return _digest(texts, _MARK)


def _digest(texts: tuple[str, ...], size: int) -> bytes:
    return hashlib.blake2b(msgspec.msgpack.encode(texts), digest_size=size).digest()
