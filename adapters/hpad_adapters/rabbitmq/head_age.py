"""The age of the oldest message of a queue, by the property `timestamp` that its publisher set.

Only classic queues report it: of the oldest ready message and the oldest unacknowledged one, as far as they are in
memory, the smaller timestamp (rabbit_variable_queue.erl: head_message_timestamp). A queue with priorities reports that
of the highest priority which has messages, although older ones may wait behind it (rabbit_priority_queue.erl:
find_head_message_timestamp).
"""

from datetime import UTC, datetime

from hpad.adapter import AdapterError
from hpad_adapters.rabbitmq.queues import CLASSIC, Queue, named, tasks

_AHEAD_SECONDS = 300.0
"""How far clocks may differ. What is further ahead is no time of publication."""
_UNITS = ((10**11, 1), (10**14, 10**3), (10**17, 10**6))
"""Timestamps below -> how many make a second; beyond, nanoseconds. AMQP 0-9-1 says seconds, but clients send others.

Each unit covers the years 2001 (10**9 seconds) to 5138, and no two of them overlap.
"""
_FINEST = 10**9
_EARLIEST = 10**9
_PRIORITIES = "x-max-priority"


def head_age(queue: Queue, now: datetime, where: str) -> float:
    """Returns seconds since the oldest message was published, 0.0 for an empty queue; raises AdapterError."""
    if queue.type not in (CLASSIC, ""):
        raise _unknown(queue, where, f"only classic queues report it, and this is a {queue.type} queue")
    if isinstance(queue.arguments, dict) and queue.arguments.get(_PRIORITIES):
        reason = f"it has priorities ({_PRIORITIES}), of which the broker looks at the highest with messages only"
        raise AdapterError(f"{named(queue, where)} has no age of its oldest message: {reason}", "spec")
    if not tasks(queue, where):
        return 0.0
    stamp = queue.head_message_timestamp
    if not isinstance(stamp, int):
        reason = "either the publisher of the oldest message did not set the property timestamp, or the broker holds"
        raise _unknown(queue, where, f"{reason} that message on disk only, as lazy queues do")
    # A publisher's clock that is somewhat ahead gives no age below zero.
    return max(0.0, now.timestamp() - _seconds(stamp, queue, now, where))


def _seconds(stamp: int, queue: Queue, now: datetime, where: str) -> float:
    """Returns the timestamp in seconds since 1970, whatever its unit; raises AdapterError for one that is no time."""
    seconds = stamp / next((unit for below, unit in _UNITS if stamp < below), _FINEST)
    if seconds < _EARLIEST:
        reason = "is no time since 2001 in seconds, milliseconds, microseconds or nanoseconds"
    elif (ahead := seconds - now.timestamp()) > _AHEAD_SECONDS:
        reason = f"{_ahead(seconds, ahead)}: check the clock and the time zone of its publisher"
    else:
        return seconds
    raise AdapterError(f"{named(queue, where)}: the timestamp {stamp} of the oldest message {reason}", "spec")


def _ahead(seconds: float, ahead: float) -> str:
    return f"({datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}) is {ahead:.0f}s ahead of hpad's clock"


def _unknown(queue: Queue, where: str, reason: str) -> AdapterError:
    return AdapterError(f"the answer about {named(queue, where)} has no head_message_timestamp: {reason}", "spec")
