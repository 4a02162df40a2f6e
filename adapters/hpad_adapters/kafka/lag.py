"""Computes a lag from offsets: no connections, no clock.

Source: KEDA 2.21, "Apache Kafka" and kafka_scaler.go, for what counts without a committed offset and for the limits.
"""

from collections.abc import Mapping
from typing import NamedTuple

from hpad.adapter import AdapterError
from hpad_adapters.kafka.settings import Policy

Partition = tuple[str, int]
"""Topic and number."""
NONE = -1
"""The committed offset of a partition without one."""


class LagRules(NamedTuple):
    """What counts: the policies of the metric and, of a limit, the threshold (0: no limit)."""

    policy: Policy
    zero_on_invalid: bool
    threshold: float
    only_with_lag: bool


class Offsets(NamedTuple):
    """The offsets of one partition: committed by the group (NONE without one), its first and its end."""

    committed: int
    first: int
    end: int


def of_partition(group: str, partition: Partition, offsets: Offsets, rules: LagRules) -> int:
    """Returns the messages of a partition that count; raises AdapterError."""
    topic, number = partition
    if offsets.committed == NONE:
        if rules.policy == "error":
            raise AdapterError(
                f'group "{group}" has no committed offset for partition {number} of topic "{topic}": set'
                " offset_reset_policy to earliest or latest if that is expected",
                "spec",
            )
        unread = offsets.end - offsets.first if rules.policy == "earliest" else 1
        return 0 if rules.zero_on_invalid else unread
    if offsets.committed > offsets.end:
        raise AdapterError(
            f'group "{group}" has committed offset {offsets.committed} for partition {number} of topic "{topic}", which'
            f" ends at {offsets.end}: was the topic created anew?"
        )
    return offsets.end - max(offsets.committed, offsets.first)


def total(lags: Mapping[Partition, int], rules: LagRules) -> float:
    """Returns the sum, at most the threshold for each partition that counts for the limit."""
    summed = sum(lags.values())
    if not rules.threshold:
        return summed
    consumers = sum(1 for lag in lags.values() if lag > 0) if rules.only_with_lag else len(lags)
    return min(summed, consumers * rules.threshold)


class Persistent:
    """Remembers since when committed offsets stand still, of at most `limit` partitions."""

    def __init__(self, limit: int = 1 << 16) -> None:
        self._limit = limit
        self._seen: dict[tuple[str, Partition], tuple[int, float]] = {}

    def age(self, group: str, partition: Partition, committed: int, now: float) -> float:
        """Returns for how many seconds the offset has stood still. What was asked for longest ago is forgotten."""
        key = (group, partition)
        offset, since = self._seen.pop(key, (committed, now))
        if offset != committed:
            since = now
        while len(self._seen) >= self._limit:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = (committed, since)
        return now - since
