"""Queues as the broker reports them, what a goal in seconds measures of them, and queues that no consumer serves.

A field that the broker does not report is None.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from hpad.adapter import AdapterError
from hpad_adapters.clearing.goal import Count, CounterPoint, MeasuredQueue
from hpad_adapters.clearing.workers import MOST_QUEUES

Number = Annotated[float, msgspec.Meta(ge=0)]
CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"
_SINGLE_ACTIVE = "x-single-active-consumer"
LONGEST_NAME = 255
"""Bytes of a name in AMQP; no queue has a longer one."""
_UNAVAILABLE = ("down", "stopped", "crashed", "minority", "noproc")


class Details(msgspec.Struct, frozen=True):
    """One kind of event: the average rate per second, and samples of its counter, newest first."""

    avg_rate: Number | None = None
    samples: list[CounterPoint] | None = None


class Lengths(msgspec.Struct, frozen=True):
    """A count over time: its growth per second, below zero while it shrinks, and its samples, newest first.

    `aligned`: the samples have the times of those of events. The management API dates them later (`_held`).
    """

    avg_rate: float | None = None
    samples: list[CounterPoint] | None = None
    aligned: bool = False


def ascending(details: Details | Lengths | None) -> list[CounterPoint]:
    """Returns the samples in the order of their times, one for each time."""
    samples = None if details is None else details.samples
    return sorted({point.timestamp: point for point in samples or ()}.values(), key=lambda point: point.timestamp)


class Statistics(msgspec.Struct, frozen=True):
    """The rates of a queue, each absent before the first event of its kind."""

    publish_details: Details | None = None
    deliver_get_details: Details | None = None
    ack_details: Details | None = None


class RabbitmqQueue(msgspec.Struct, frozen=True):
    """A queue as a reader reports it. Fields that the broker does not report are None, `state` and `type` empty.

    `message_stats` is None before the first event, and where the broker keeps no rates. `head_message_timestamp`: the
    timestamp property of the oldest message, as its publisher set it. `arguments` are those of the declaration.
    `leader`: the node of a quorum queue's leader.
    `fault` says why the queue, or a part of what the broker reports of it, cannot be read; "" if nothing is wrong.
    `lacking` says why a reader that makes rates itself has none yet.
    """

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
    messages_details: Lengths | None = None
    messages_unacknowledged_details: Lengths | None = None
    head_message_timestamp: int | str | None = None
    arguments: Any = None
    leader: str = ""
    fault: str = ""
    lacking: str = ""

    @property
    def single_active(self) -> bool:
        """Whether the broker gives messages to one consumer at a time, while the others stand by."""
        return isinstance(self.arguments, dict) and self.arguments.get(_SINGLE_ACTIVE) is True

    @property
    def served(self) -> int | None:
        """How many consumers get messages, None if unreported."""
        return min(self.consumers, 1) if self.single_active and self.consumers is not None else self.consumers

    @property
    def complete(self) -> bool:
        """Whether the broker reported all counts."""
        return None not in (self.messages, self.messages_ready, self.messages_unacknowledged)

    @property
    def unavailable(self) -> bool:
        """Whether the queue exists but does not work, for example because its node is down: its counts are unknown."""
        return self.state in _UNAVAILABLE

    @property
    def seems_empty(self) -> bool:
        """Whether it is reported as empty, but may be a quorum queue: most nodes do not know the counts of those."""
        return self.type not in (CLASSIC, STREAM) and self.complete and self.tasks == 0

    @property
    def tasks(self) -> int:
        """The messages that consumers can get or have got, as far as they are known."""
        return (self.messages_ready or 0) + (self.messages_unacknowledged or 0)

    def without_counts(self) -> "RabbitmqQueue":
        """Returns the same queue with unknown counts."""
        return RabbitmqQueue(self.name, self.vhost, self.type, self.state, fault=self.fault)

    def with_counts(self, newer: "RabbitmqQueue") -> "RabbitmqQueue":
        """Returns the same queue with the counts of a newer reading."""
        return msgspec.structs.replace(
            self,
            messages=newer.messages,
            messages_ready=newer.messages_ready,
            messages_unacknowledged=newer.messages_unacknowledged,
            fault=self.fault or newer.fault,
        )

    def with_statistics(self) -> "RabbitmqQueue":
        """Returns the same queue, with no event where it has no rates: the broker keeps rates."""
        if self.message_stats is not None or self.fault:
            return self
        return msgspec.structs.replace(self, message_stats=Statistics())


def field(queue: RabbitmqQueue, field: str, where: str) -> float:
    """Returns a number of the queue; raises AdapterError, with the reason, if the broker does not report it."""
    value: float | None = getattr(queue, field)
    if value is None:
        why = ": its leader has not counted yet" if queue.type == QUORUM else ""
        why = f": the queue is {queue.state}" if queue.unavailable else why
        raise AdapterError(f"the answer about {named(queue, where)} has no {field}{why}", lasting=True)
    return value


def tasks(queue: RabbitmqQueue, where: str) -> float:
    """Returns the ready and the unacknowledged messages; raises AdapterError if the broker does not report them.

    `messages` may be more: a quorum queue adds messages that no consumer can get, such as dead letters that wait for a
    target (x-dead-letter-strategy: at-least-once), and from RabbitMQ 4.3 on those whose retry is delayed.
    """
    field(queue, "messages", where)
    return field(queue, "messages_ready", where) + field(queue, "messages_unacknowledged", where)


def named(queue: RabbitmqQueue, where: str) -> str:
    """Returns the queue's name in a sentence."""
    return f'queue "{queue.name}" in {where}'


def possible(name: str) -> bool:
    """Returns whether a queue can have this name; a request with a longer one may be refused."""
    return len(name.encode()) <= LONGEST_NAME


# What the goal in seconds needs to know of a queue: its messages, consumers, and samples.

_LATE = 5_000
"""Milliseconds by which the samples of lengths are dated later than those of rates. Observed in RabbitMQ 3.10."""


def measured(queue: RabbitmqQueue, concurrency: int, where: str) -> MeasuredQueue:
    """Returns what the broker reports of a queue; raises AdapterError for counts or rates that it does not report."""
    tasks(queue, where)
    stats, name = queue.message_stats, named(queue, where)
    if stats is None:
        raise AdapterError(
            f"the answer about {name} has no message_stats: the broker keeps no rates "
            "(rates_mode, disable_metrics_collector); source: auto makes them from counters of its plugin",
            "spec",
        )
    return MeasuredQueue(
        place=(queue.vhost, queue.name),
        name=name,
        ready=field(queue, "messages_ready", where),
        held=field(queue, "messages_unacknowledged", where),
        capacity=None if queue.served is None else float(queue.served * concurrency),
        no_capacity=f"the answer about {name} has no consumers: "
        "the broker collects its statistics for the first time some seconds after it was made",
        single=queue.single_active,
        published=ascending(stats.publish_details),
        done=ascending(stats.ack_details),
        working=_held(queue),
    )


def _held(queue: RabbitmqQueue) -> dict[int, int]:
    """Returns the unacknowledged messages by the time of the sample of events that they belong to."""
    lengths = queue.messages_unacknowledged_details
    points = ascending(lengths)
    if lengths is not None and lengths.aligned:
        return {point.timestamp: point.sample for point in points}
    # Of the management API, the newest one repeats the one before, for seconds.
    return {point.timestamp - _LATE: point.sample for point in points[:-1]}


# Notices queues whose messages no consumer takes, from the counts that are read for the values.

_LASTING = 5.0
"""Seconds between two counts of one queue: the broker itself counts some queues every five seconds."""
_MOST_NAMED = 2
_NOTED_CHARACTERS = 80


class _Waiting(NamedTuple):
    """The ready messages at the last read, and the monotonic time since which none was held, and none taken."""

    since: float
    ready: int


class Unconsumed:
    """Remembers of each queue since when its messages have waited while no consumer held any.

    A consumer with acknowledgements holds a message as long as one waits. Of others the broker tells nothing but that
    messages get fewer, so that counts.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._waiting: dict[tuple[str, str], _Waiting] = {}

    def note(self, queues: Sequence[RabbitmqQueue]) -> str:
        """Returns the note of a sample that was made from a read of these queues; "" where consumers take messages."""
        names = sorted({queue.name for queue in queues if self._stays(queue)})
        if not names:
            return ""
        first = ", ".join(f'"{name[:_NOTED_CHARACTERS]}"' for name in names[:_MOST_NAMED])
        others = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"no consumer holds a message of the queue{'s' if len(names) > 1 else ''} {first}{others}"

    def _stays(self, queue: RabbitmqQueue) -> bool:
        """Whether messages wait, and no consumer takes any."""
        place, ready, held = (queue.vhost, queue.name), queue.messages_ready, queue.messages_unacknowledged
        if not ready or held or queue.consumers or (held is None and queue.consumers is None):
            self._waiting.pop(place, None)
            return False
        return queue.consumers == 0 or self._lasts(place, ready)

    def _lasts(self, place: tuple[str, str], ready: int) -> bool:
        now = self._monotonic()
        before = self._waiting.get(place)
        since = now if before is None or ready < before.ready else before.since
        if before is None and len(self._waiting) >= MOST_QUEUES:
            self._waiting.clear()
        self._waiting[place] = _Waiting(since, ready)
        return now - since >= _LASTING
