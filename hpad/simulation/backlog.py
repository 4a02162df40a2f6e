"""The backlog of a queue under another count than the recorded one, from the rates of its messages.

Messages arrive at the rate that was published. A consumer with a message does as many per second as a recorded one did
while it was busy; as long as there are fewer messages than consumers, only so many consumers have one. The model is the
fluid limit of a queue with several servers: it knows no single message, no prefetch and no random times. What was
published is taken as given, also where publishers would have waited for a shorter queue.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from hpad.simulation.history import REPLICAS, HistoryError, LoadHistory


class Rates(NamedTuple):
    """The columns of a queue: messages published and acknowledged per second, each over the time before its sample.

    `per_replica`: messages per second of one consumer, where the history is not to be asked for it.
    """

    published: str
    acked: str
    per_replica: float | None = None


class Backlog:
    """The messages of a queue, ready and unacknowledged; `column` has the recorded ones. Times are seconds since 1970.

    `busy` is the number of samples that show how much a consumer does, `per_replica` their median in messages per
    second, which holds for all other times. `begins_empty`: the history has no lengths of the queue.

    Raises HistoryError for a column of rates that is missing or has one below zero, and where no sample shows what a
    consumer does.
    """

    def __init__(self, history: LoadHistory, column: str, rates: Rates) -> None:
        for name in (rates.published, rates.acked):
            if name not in history.columns:
                known = ", ".join(history.columns)
                raise HistoryError(f"the history has no column {name} of the queue {column}; it has {known}")
            lowest = min((rate for rate in history.columns[name] if rate is not None), default=0.0)
            if lowest < 0:
                raise HistoryError(f"{name}: a queue cannot have {lowest:g} messages per second; 0 or more are needed")
        self._times = history.times
        self._published = history.columns[rates.published]
        self._recorded = history.columns.get(column, [None] * len(history.times))
        self._measured = {} if rates.per_replica is not None else _measured(history, column, rates.acked)
        self.busy = len(self._measured)
        if rates.per_replica is None and not self._measured:
            text = f"no sample shows {column} with a message or more for each replica, and what they acknowledged"
            raise HistoryError(f"{text}; give the messages per second of a replica")
        self.per_replica = median(self._measured.values()) if rates.per_replica is None else rates.per_replica
        self._longest = 2.5 * history.step
        self._at = self._times[0]
        self.begins_empty = column not in history.columns
        self._value: float | None = 0.0 if self.begins_empty else self._recorded[0]
        self._seen: list[tuple[float, float | None]] = [(self._at, self._value)]

    @property
    def assumption(self) -> str:
        """What the model assumes, in one sentence."""
        samples = f"{self.busy} sample{'' if self.busy == 1 else 's'}"
        source = f", the median of {samples} with all replicas busy" if self.busy else ""
        begins = "the history has no lengths of it, so it begins empty; " if self.begins_empty else ""
        return (
            f"modelled from what was published and {self.per_replica:.4g} messages per second of each ready replica"
            f"{source}; {begins}publishers are taken not to wait for the queue"
        )

    def advance(self, to: float, consumers: int) -> None:
        """Lets messages arrive and be done up to a time, with this number of ready consumers."""
        while self._at < to:
            index = bisect_right(self._times, self._at)  # the next sample describes the time up to it
            end = min(to, self._times[index]) if index < len(self._times) else to
            self._flow(index, end - self._at, consumers)
            self._at = end
            self._seen.append((end, self._value))

    @property
    def seen(self) -> Sequence[tuple[float, float | None]]:
        """The times up to now in which the rates were taken as constant, and the messages at their end."""
        return self._seen

    def at(self, time: float) -> float | None:
        """Returns the messages at a time up to now; None in a gap."""
        index = bisect_right(self._seen, time, key=lambda each: each[0]) - 1
        return self._seen[max(0, index)][1]

    def _flow(self, index: int, seconds: float, consumers: int) -> None:
        index = min(index, len(self._times) - 1)
        arriving = self._published[index]
        if arriving is None or self._times[index] - self._times[index - 1] > self._longest:
            self._value = None  # how many have come in a gap is not known
            return
        if self._value is None:
            sample = bisect_right(self._times, self._at) - 1
            self._value = self._recorded[sample] if self._times[sample] == self._at else None
        if self._value is None:
            return
        self._value = flowed(self._value, arriving, self._measured.get(index, self.per_replica), consumers, seconds)


def flowed(messages: float, arriving: float, each: float, consumers: int, seconds: float) -> float:
    """Returns the messages after some seconds: d/dt = arriving - each * min(consumers, messages).

    `arriving` messages per second come, and a consumer that has one does `each` per second.
    """
    if messages < consumers and each > 0:
        rest = arriving / each  # the number of busy consumers that keeps up
        after = rest + (messages - rest) * math.exp(-each * seconds)
        if after <= consumers:
            return after
        seconds -= math.log((rest - messages) / (rest - consumers)) / each
        messages = consumers
    slope = arriving - each * consumers
    after = messages + slope * seconds
    if after >= consumers or not each:
        return after
    if messages > consumers:
        seconds -= (consumers - messages) / slope
    rest = arriving / each
    return rest + (consumers - rest) * math.exp(-each * seconds)


def _measured(history: LoadHistory, column: str, acked: str) -> dict[int, float]:
    """Returns by sample what one replica did per second, where each had work all the time since the sample before."""
    waiting, replicas = history.columns.get(column), history.columns.get(REPLICAS)
    if waiting is None or replicas is None:
        missing = column if waiting is None else REPLICAS
        raise HistoryError(f"the history needs a column {missing}, or give the messages per second of a replica")
    found = {}
    for index in range(1, len(history.times)):
        done, count = history.columns[acked][index], replicas[index]
        messages = waiting[index - 1], waiting[index]
        if done is None or not count or replicas[index - 1] != count:
            continue
        if all(each is not None and each >= count for each in messages):
            found[index] = done / count
    return found
