"""How long a message occupies a worker, from samples of counters and of the messages in work.

The time is measured by Little's law: the messages that consumers work on, summed over time, divided by the messages
that they began in that time. Both come from the same samples, so that it also holds while consumers start or are idle.
Source: J. D. C. Little, "A Proof for the Queuing Formula: L = λW", 1961; HTTP API reference of the
rabbitmq_management plugin (`msg_rates_age`, `lengths_age`).

Evidence is counted in messages, not in seconds:

- A measurement counts once each worker has finished two messages in it. Before, those in work weigh too much: they
  seem short where workers have just started, and long while their acknowledgements are not collected yet.
- An unfinished measurement counts where its messages have taken longer already than they should.
- A given time counts as GIVEN_MESSAGES messages: a few measured ones change it a little, and many outweigh it.
- A message counts for at most the goal. A longer one occupies its worker all that time, and no other.
- Before the first measurement, messages take at least as long as those in work have been in work already.
"""

import itertools
import math

import msgspec

from hpad_adapters.clearing.goal import CounterPoint, MeasuredQueue

HALF_LIFE = 600.0
"""Seconds of the broker's time after which what was measured has half its weight."""
GIVEN_MESSAGES = 10
"""The weight of a given time, and the weight below which what was measured does not fade."""
_ROUNDS = 2
"""Messages that each worker finishes in a measurement."""
_FEWEST = 5
"""Messages that all of them finish in it."""
_YOUNG = 2
"""Intervals with work that it has at least: the counts of one are up to an interval apart."""
_SURE = 30
"""Finished messages of which one that is odd does not make the mean ten times too long."""
_UNSEEN = 10.0
"""Seconds until an acknowledgement is collected: messages may seem to be in work for so much longer."""
_UNCLEAR = 0.25
"""The number of messages in work is unclear where it may be smaller by more than this part."""
_SET_BACK = 600_000
"""Milliseconds by which samples are older than the newest one that was read if the broker's clock was set back.

The clocks of its nodes, one of which answers, differ by less.
"""


class _Measurement(msgspec.Struct):
    """`busy`: messages worked on, times seconds; `begun`: messages that were begun, `done`: those acknowledged.

    `present`: messages in work when it began. `intervals`: with work. `most`: the most messages in work at once.
    """

    busy: float = 0.0
    begun: float = 0.0
    done: float = 0.0
    present: float = 0.0
    intervals: int = 0
    most: float = 0.0

    def add(self, seconds: float, done: float, working: tuple[float, float]) -> None:
        """Adds an interval; `working`: messages in work at its begin and end.

        Messages count when they are begun. If they counted when they are acknowledged, the first ones of many new
        consumers would seem to take very long.
        """
        self.busy += sum(working) / 2 * seconds
        self.begun += done + working[1] - working[0]
        self.done += done
        self.intervals += max(working) > 0
        self.most = max(self.most, *working)

    @property
    def enough(self) -> bool:
        """Whether enough messages are done."""
        return self.done >= max(_ROUNDS * self.most, _FEWEST)

    @property
    def seen(self) -> float:
        """Messages that were in work at any time."""
        return self.begun + self.present

    def at_least(self, limit: float) -> float | None:
        """Returns the seconds that a message takes at least, up to `limit`; None as long as nothing tells.

        While few messages are finished, all that were in work count: the unfinished ones take longer than they have
        taken. Messages that are finished in one interval may have been collected in another.
        """
        if self.busy <= 0 or self.seen <= 0 or not (self.enough or self.intervals >= _YOUNG or not self.done):
            return None
        messages = self.begun if self.done >= _FEWEST and self.begun > 0 else self.seen
        return min(limit, self.busy / messages)


class ServiceTime:
    """The mean time of the messages of one queue, over about the last ten minutes of work.

    `given`: the time in the settings, 0 for none. `limit`: the goal. Seconds.
    """

    def __init__(self, given: float, limit: float) -> None:
        self._limit = limit
        self._given, self._done = given > 0, 0.0
        """Whether a time is given, and how many finished messages were measured."""
        self._busy, self._begun = min(given, limit) * GIVEN_MESSAGES, float(GIVEN_MESSAGES if given else 0)
        """As in a measurement, of all that count."""
        self._until = self._faded = 0
        """The newest sample that was read, and that of the end of the last measurement (milliseconds since 1970)."""
        self._current = _Measurement()
        self._open = False
        """Whether the interval before the newest sample is a part of the measurement."""
        self._left = False
        """Whether messages left work without an acknowledgement, which may be collected in the next interval."""
        self.given_back = False
        """Whether messages went back to the queue, and none was finished since."""
        self.long = 0.0
        """Messages that have been in work for longer than the goal, and as far as is known still are."""

    @property
    def seconds(self) -> float | None:
        """The seconds of a message, None as long as they are unknown."""
        current = self._current
        if not self._begun:
            return current.at_least(self._limit)
        usual = self._busy / self._begun
        if current.busy > current.seen * (usual + _UNSEEN):
            return (self._busy + current.busy) / (self._begun + current.seen)
        return usual

    @property
    def sure(self) -> bool:
        """Whether the time is given, or that of many messages."""
        return self._given or self._done >= _SURE

    def learn(self, queue: MeasuredQueue, prefetch: int, capacity: tuple[float, float]) -> None:
        """Adds what is new in the queue's samples. Reading the same samples twice changes nothing.

        `capacity`: the fewest and the most messages that all consumers worked on at once at the time of the samples.
        """
        done = queue.done
        if done and done[-1].timestamp < self._until - _SET_BACK:
            self._until = self._faded = 0
        if queue.at_work is not None:
            capacity = math.inf, math.inf
        least, most = capacity if self._begun else (capacity[1], capacity[1])  # any time is better than none
        working = {at: _clear(held, prefetch, (least, most)) for at, held in queue.working.items()}
        for earlier, later in itertools.pairwise(done):
            if earlier.timestamp >= self._until and earlier.timestamp in working and later.timestamp in working:
                ends = working[earlier.timestamp], working[later.timestamp]
                seen = capacity[0] or ends[0] or not self._begun
                self._add(earlier, later, ends if seen else (None, ends[1]))
                self._until = later.timestamp

    def _add(self, earlier: CounterPoint, later: CounterPoint, working: tuple[float | None, float | None]) -> None:
        done, seconds = later.sample - earlier.sample, (later.timestamp - earlier.timestamp) / 1000
        begin, end = working
        if done < 0:  # the broker was restarted, and its counter with it
            self._current, self.long, self._open = _Measurement(), 0.0, False
            return
        if begin is None or end is None:
            self._open = False
            return
        if self._left and not done and not self._current.done:
            # They went back to the queue, such as those of a worker that crashed: their time says nothing.
            self._current, self._open, self.given_back = _Measurement(), False, True
        self._left = not done and end < begin
        self.given_back = self.given_back and not done
        before = min(self.long, begin)
        # Acknowledgements are those of long messages by their share of all messages in work.
        self.long = min(before * end / ((done + end) or 1.0), end)
        if not self._open or earlier.timestamp != self._until:
            self._current.present += begin - before
        self._current.add(seconds, max(0.0, done - (before - self.long)), (begin - before, end - self.long))
        self._done += done
        self._open = True
        self._judge(end, later.timestamp)

    def _judge(self, working: float, now: int) -> None:
        """Ends the measurement if it is finished, or if its messages have been in work for the goal."""
        current = self._current
        long = current.seen > 0 and current.busy >= self._limit * current.seen
        if not long and not (current.enough and current.intervals >= _YOUNG):
            return
        if long:
            current.busy, current.begun = self._limit * current.seen, current.seen
            self.long = working
        self._fade(now)
        self._busy += current.busy
        self._begun += current.begun
        self._current = _Measurement(present=working - self.long)

    def _fade(self, now: int) -> None:
        age = (now - (self._faded or now)) / 1000
        self._faded = now
        if self._begun > GIVEN_MESSAGES:
            kept = max(0.5 ** (age / HALF_LIFE), GIVEN_MESSAGES / self._begun)
            self._busy *= kept
            self._begun *= kept


def at_work(unacknowledged: float, prefetch: int, capacity: float) -> float:
    """Returns how many of the unacknowledged messages are worked on: the others wait in consumers.

    Consumers work on as many as they can. A capacity of 0 is unknown; then full consumers hold `prefetch` messages for
    each that they work on.
    """
    return min(unacknowledged, capacity or unacknowledged / prefetch)


def _clear(unacknowledged: int, prefetch: int, capacity: tuple[float, float]) -> float | None:
    """Returns how many of them are worked on, None where that depends on which consumers were there already."""
    least, most = (min(unacknowledged, each) for each in capacity)
    if most - least > _UNCLEAR * most:
        return None
    return at_work(unacknowledged, prefetch, capacity[1])
