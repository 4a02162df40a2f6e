"""Answers about streams: the lag of a group, and the workers that clear it within a goal.

The messages of a partition are worked on by one consumer of a group at a time: that is the single active consumer of a
super stream, which RabbitMQ chooses by the number of the partition modulo that of consumers
(rabbit_stream_sac_coordinator.erl). Consumers of a group that are not single active ones each read all messages. So the
goal takes the fewest workers of which none has more to do in its partitions than it can:

    needed of a partition = (waiting / (goal - startup) + published per second) * service time

The service time has to be given: RabbitMQ does not say how many consumers share the partitions, so that the offsets of
a group over time do not tell how long a message takes. The publish rate is the median over the last reads: a burst is
backlog. A last offset that fell is a stream that was made anew, of which nothing is remembered.
"""

import asyncio
import itertools
import math
import statistics
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence

from hpad.adapter import AdapterError, Answer, Context, ExternalSample, or_error
from hpad_adapters.clearing.goal import ClearingGoal
from hpad_adapters.clearing.workers import MOST_QUEUES, Due, WaitingMessages
from hpad_adapters.rabbitmq.metric import NoOffset
from hpad_adapters.rabbitmq.queries import StreamQuery
from hpad_adapters.rabbitmq.settings import Settings
from hpad_adapters.rabbitmq.streams import OffsetReader, PartitionOffsets, StreamGroup, StreamOffsets

NO_MEMBERS = (
    "a stream keeps its messages after they were read, so RabbitMQ does not know which pod works on one: leave out "
    "hpad.io/idle-first and hpad.io/keep-busy"
)
_MILLI = 1000
_LARGEST = (2**63 - 1) // _MILLI
_NOTHING = 1e-9
_APART = 1.0
"""Reads that follow each other sooner, in seconds, tell no rate."""
_INTERVALS = 8
"""Reads whose intervals tell the publish rate."""
_FEWEST = 3
"""Intervals without which the rate is unknown: then all that was published is backlog."""


class StreamLags:
    """Answers the queries about streams of one broker; each vhost is read once for all of them."""

    def __init__(self, settings: Settings, context: Context) -> None:
        self._offsets = OffsetReader(settings, context)
        self._clearing = StreamClearing(context.clock.monotonic)
        self._now = context.clock.now

    async def answers(self, queries: Sequence[StreamQuery]) -> list[Answer]:
        """Returns one answer per query."""
        wanted: dict[str, dict[StreamGroup, bool]] = {}
        for query in queries:
            groups, place = wanted.setdefault(query.vhost, {}), (query.stream, query.group)
            groups[place] = groups.get(place, False) or query.goal is not None
        read = await asyncio.gather(*(or_error(self._offsets.read, vhost, each) for vhost, each in wanted.items()))
        found = dict(zip(wanted, read, strict=True))
        return [self._answer(query, found[query.vhost]) for query in queries]

    def _answer(self, query: StreamQuery, found: dict[StreamGroup, StreamOffsets] | AdapterError) -> Answer:
        offsets = found if isinstance(found, AdapterError) else found[query.stream, query.group]
        if isinstance(offsets, AdapterError):
            return offsets
        try:
            waiting = [_waiting(partition, query) for partition in offsets]
        except AdapterError as error:
            return error
        values = waiting if query.goal is None else [self._workers(query, query.goal, offsets, waiting)]
        return ExternalSample(tuple(value * _MILLI for value in values), self._now())

    def _workers(
        self, query: StreamQuery, goal: ClearingGoal, offsets: Sequence[PartitionOffsets], waiting: Sequence[int]
    ) -> int:
        """Returns how many messages have to be worked on at once."""
        needed = [
            self._clearing.needed(query.vhost, query.group, goal, partition, lag)
            for partition, lag in zip(offsets, waiting, strict=True)
        ]
        return fewest_workers(needed, goal.concurrency) * goal.concurrency


def fewest_workers(needed: Sequence[float], concurrency: int) -> int:
    """Returns the fewest workers of which none needs more than `concurrency` for its partitions; at most one for each.

    `needed`: by partition. A partition that needs more gets a worker of its own.
    """
    shares = [min(each, concurrency) for each in needed]
    if not any(shares):
        return 0
    for workers in range(math.ceil(sum(shares) / concurrency - _NOTHING) or 1, len(shares)):
        if all(sum(shares[each::workers]) <= concurrency + _NOTHING for each in range(workers)):
            return workers
    return len(shares)


def _waiting(partition: PartitionOffsets, query: StreamQuery) -> int:
    """Returns the lag; raises AdapterError where it is unknown, or no value can hold it."""
    found = lag(partition, query.group, query.no_offset)
    if found > _LARGEST:
        raise AdapterError(f'the offsets of stream "{partition.stream}" are beyond 64 bits of thousandths')
    return found


def lag(partition: PartitionOffsets, group: str, policy: NoOffset) -> int:
    """Returns the messages that the group has not worked on; raises AdapterError where that is unknown."""
    if partition.last is None:
        return 0
    if partition.stored is None:
        if policy == "error":
            raise AdapterError(
                f'group "{group}" has stored no offset in stream "{partition.stream}", or the message there was '
                "removed (consumers with a name store one by the stream protocol, those by AMQP do not): set "
                "offset_reset_policy to earliest or latest if that is expected",
                "spec",
            )
        return partition.unread if policy == "earliest" else 1
    if partition.stored > partition.last + 1:
        # Without the last offset, which moves on: a text that changes would cost a status write in each period.
        raise AdapterError(
            f'group "{group}" has stored offset {partition.stored} in stream "{partition.stream}", which is beyond its '
            "last message: was the stream created anew?"
        )
    return partition.unread


class StreamClearing:
    """The workers that partitions need for a goal, with what that needs of the past. `monotonic` returns seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: OrderedDict[tuple[str, str, str, ClearingGoal], _Partition] = OrderedDict()

    def needed(self, vhost: str, group: str, goal: ClearingGoal, partition: PartitionOffsets, waiting: int) -> float:
        """Returns how many messages of the partition would have to be worked on at once. `waiting`: the lag."""
        place = vhost, partition.stream, group, goal
        known, last = self._known.get(place), -1 if partition.last is None else partition.last
        if known is None or last < known.last:
            known = self._known[place] = _Partition(goal)
        self._known.move_to_end(place)
        if len(self._known) > MOST_QUEUES:
            self._known.popitem(last=False)
        return known.needed(self._monotonic(), (last, partition.published), waiting, goal.service)


class _Partition:
    """What is remembered of a partition, for a goal."""

    def __init__(self, goal: ClearingGoal) -> None:
        self._due = Due(goal.seconds, goal.startup)
        self._reads: deque[tuple[float, int]] = deque(maxlen=_INTERVALS + 1)
        """Time, and messages published until then."""
        self.last = -1
        """The newest offset that was read."""

    def needed(self, now: float, end: tuple[int, int], waiting: int, service: float) -> float:
        """`end`: the last offset, and the messages published."""
        self.last, published = end
        if not self._reads or now - self._reads[-1][0] >= _APART:
            self._reads.append((now, published))
        rate = self._rate()
        begin = self._due.per_second(WaitingMessages(now, waiting, published, rate))
        return min(waiting, begin * service) + rate * service

    def _rate(self) -> float:
        """Returns messages per second."""
        rates = [max(0, end[1] - begin[1]) / (end[0] - begin[0]) for begin, end in itertools.pairwise(self._reads)]
        return statistics.median(rates) if len(rates) >= _FEWEST else 0.0
