"""A queue as any of the sources tells of it, and which queues are sought."""

import re
from typing import Annotated, Protocol

import msgspec

from hpad.adapter import AdapterError

Count = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[float, msgspec.Meta(ge=0)]
QUORUM = "quorum"
_AWAY = ("down", "stopped", "crashed", "minority", "noproc")


class Point(msgspec.Struct, frozen=True):
    """A counter at a time (milliseconds since 1970)."""

    sample: Count
    timestamp: int


class Details(msgspec.Struct, frozen=True):
    """How often something happened: a second on average, and the counter itself, newest first."""

    avg_rate: Number | None = None
    samples: list[Point] | None = None


class Statistics(msgspec.Struct, frozen=True):
    """What the broker counted; nothing is there before the first event of its kind."""

    publish_details: Details | None = None
    deliver_get_details: Details | None = None
    ack_details: Details | None = None


class Queue(msgspec.Struct, frozen=True):
    """A field is None where the broker did not give it, `state` empty: "running", "idle", "down", and others."""

    name: str
    vhost: str = ""
    type: str = ""
    state: str = ""
    messages: Count | None = None
    messages_ready: Count | None = None
    messages_unacknowledged: Count | None = None
    consumers: Count | None = None
    consumer_capacity: Number | None = None
    message_stats: Statistics | None = None

    @property
    def complete(self) -> bool:
        """Whether all counts are there."""
        return None not in (self.messages, self.messages_ready, self.messages_unacknowledged)

    @property
    def away(self) -> bool:
        """Whether the queue is there, but not at work, as where its node is down: then nobody knows its counts."""
        return self.state in _AWAY

    def without_counts(self) -> "Queue":
        """The same queue, of which nothing is known."""
        return Queue(self.name, self.vhost, self.type, self.state)


class Sought(msgspec.Struct, frozen=True):
    """What is asked of one vhost: queues of these names, and those that a pattern matches as a whole."""

    names: frozenset[str] = frozenset()
    patterns: frozenset[re.Pattern[str]] = frozenset()
    statistics: bool = False

    @property
    def parts(self) -> "dict[re.Pattern[str] | None, Sought]":
        """The names (None) and each pattern by itself."""
        found: dict[re.Pattern[str] | None, Sought] = {
            each: Sought(frozenset(), frozenset({each}), self.statistics) for each in self.patterns
        }
        return {None: Sought(self.names, frozenset(), self.statistics), **found} if self.names else found

    def holds(self, name: str) -> bool:
        """Whether a queue of that name is sought."""
        return name in self.names or any(pattern.fullmatch(name) for pattern in self.patterns)


class NotAsAWhole(AdapterError):
    """All that is sought cannot be told, as there are too many queues, say; each part of it may be."""


class Reader(Protocol):
    """A way to learn of queues."""

    async def read(self, vhost: str, sought: Sought) -> list[Queue]:
        """The queues that exist, those of "*" with their vhost; raises AdapterError."""
        ...

    async def aclose(self) -> None:
        """Let go of everything."""
        ...
