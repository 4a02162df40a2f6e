"""A queue as any of the sources tells of it, and which queues are sought."""

import re
from typing import Annotated, Protocol

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0)]
Number = Annotated[float, msgspec.Meta(ge=0)]


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
    """A field is None where the broker did not give it."""

    name: str
    vhost: str = ""
    type: str = ""
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


class Sought(msgspec.Struct, frozen=True):
    """What is asked of one vhost: queues of these names, and those that a pattern matches as a whole."""

    names: frozenset[str] = frozenset()
    patterns: frozenset[re.Pattern[str]] = frozenset()
    statistics: bool = False

    def holds(self, name: str) -> bool:
        """Whether a queue of that name is sought."""
        return name in self.names or any(pattern.fullmatch(name) for pattern in self.patterns)


class Reader(Protocol):
    """A way to learn of queues."""

    async def read(self, vhost: str, sought: Sought) -> list[Queue]:
        """The queues that exist, those of "*" with their vhost; raises AdapterError."""
        ...

    async def aclose(self) -> None:
        """Let go of everything."""
        ...
