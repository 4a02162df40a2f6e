"""A queue with consumers, message by message, with the counts that RabbitMQ gives.

Messages arrive at random times with the rate of the load. A ready consumer holds up to `prefetch` of them
unacknowledged and works on one at a time. A consumer that leaves finishes its message; what it held besides goes back
to the queue.
"""

import functools
import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from hpad.simulation.fleet import SimulatedReplica
from hpad.simulation.load import LoadError, poisson
from hpad.simulation.model import Measured, Model, ModelParameters

CONSTANT: Final = "constant"
EXPONENTIAL: Final = "exponential"
LOGNORMAL: Final = "lognormal"
RANDOM: Final = "random"
EVEN: Final = "even"
DISTRIBUTIONS: Final = (CONSTANT, EXPONENTIAL, LOGNORMAL)
_SLOT: Final = 1.0
"""Seconds for which the load is taken as constant."""
_MOST: Final = 1_000_000
"""Messages per second: each one is simulated."""


class SimulatedQueue(ModelParameters, frozen=True, kw_only=True):
    """The parameters of a queue.

    `service_time`: the mean seconds that a message takes; `distribution`: of these times, one of DISTRIBUTIONS.
    `variation`: the coefficient of variation of LOGNORMAL. `arrivals`: RANDOM, or EVEN: at equal intervals. `startup`:
    seconds until a new consumer takes messages. `backlog`: messages at the start. `cpu`: millicores of a consumer at
    work.
    """

    service_time: float = 1.0
    distribution: str = EXPONENTIAL
    variation: float = 1.0
    prefetch: int = 1
    arrivals: str = RANDOM
    backlog: int = 0
    cpu: float = 500.0


class _Consumer(msgspec.Struct, eq=False):
    """One consumer. `held`: unacknowledged messages, with the one it works on."""

    name: str
    held: int = 0
    working: bool = False
    leaving: bool = False


class QueueModel(Model[SimulatedQueue]):
    """A workload (`run.Workload`) of the consumers of one queue.

    `arrived` and `done` count messages since the start. Every message is done, waits, or is held by a consumer.
    """

    def _prepare(self) -> None:
        queue = self._parameters
        self._draw = _draws(queue, self._chance)
        self._arrivals: deque[float] = deque()
        self._drawn = 0.0
        """Until when arrivals are drawn."""
        self._owed = 0.0
        self._finishing: list[tuple[float, int, _Consumer]] = []
        self._sequence = 0
        self._free: deque[_Consumer] = deque()
        """Consumers that may take a message, in the order in which RabbitMQ serves them: in turn."""
        self._consumers: dict[str, _Consumer] = {}
        self._scraped = (0, 0, 0.0)
        """Arrived and done messages, and the time of the last scrape."""
        self.waiting = queue.backlog
        self.held = 0
        self.arrived = queue.backlog
        self.done = 0
        self._join([replica for replica in self.fleet.replicas if replica.is_ready])

    def _work(self, begin: float, end: float) -> None:
        arrivals, finishing = self._arrivals, self._finishing
        while True:
            if not arrivals:
                self._draw_arrivals(end)
            arrival = arrivals[0] if arrivals else math.inf
            finish = finishing[0][0] if finishing else math.inf
            if finish <= arrival:
                if finish >= end:
                    return
                self._finish(heapq.heappop(finishing)[2], finish)
            else:
                if arrival >= end:
                    return
                arrivals.popleft()
                self.arrived += 1
                self.waiting += 1
                if self._free:
                    self._deliver(arrival)

    def _draw_arrivals(self, end: float) -> None:
        """Draws the messages of the next seconds, until there is one or `end` is reached."""
        uniform = self._chance.random
        while not self._arrivals and self._drawn < end:
            slot, rate = self._drawn, self._load(self._drawn + _SLOT / 2)
            if rate > _MOST:
                raise LoadError(f"--load: {rate:g} messages per second; each is simulated, {_MOST} at most")
            if self._parameters.arrivals == EVEN:
                self._owed += rate * _SLOT
                count = int(self._owed)
                self._owed -= count
                self._arrivals.extend(slot + (index + 0.5) / count * _SLOT for index in range(count))
            else:
                count = poisson(self._chance, rate * _SLOT)
                self._arrivals.extend(sorted([slot + uniform() * _SLOT for _ in range(count)]))
            self._drawn += _SLOT

    def _deliver(self, at: float) -> None:
        while self.waiting and self._free:
            consumer = self._free.popleft()
            if consumer.leaving:
                continue
            self.waiting -= 1
            self.held += 1
            consumer.held += 1
            if consumer.held < self._parameters.prefetch:
                self._free.append(consumer)
            if not consumer.working:
                self._begin(consumer, at)

    def _begin(self, consumer: _Consumer, at: float) -> None:
        consumer.working = True
        self._sequence += 1  # so that consumers are never compared
        heapq.heappush(self._finishing, (at + self._draw(), self._sequence, consumer))

    def _finish(self, consumer: _Consumer, at: float) -> None:
        self.done += 1
        self.held -= 1
        was_full = consumer.held >= self._parameters.prefetch
        consumer.held -= 1
        consumer.working = False
        if consumer.leaving:
            return
        if consumer.held:
            self._begin(consumer, at)
        if was_full:
            self._free.append(consumer)
        if self.waiting:
            self._deliver(at)

    def _join(self, replicas: list[SimulatedReplica]) -> None:
        for replica in replicas:
            consumer = self._consumers[replica.pod.name] = _Consumer(replica.pod.name)
            self._free.append(consumer)
        self._deliver(self._at)

    def _leave(self, replicas: list[SimulatedReplica]) -> None:
        for replica in replicas:
            consumer = self._consumers.pop(replica.pod.name, None)
            if consumer is None:  # it had not begun
                continue
            consumer.leaving = True
            back = consumer.held - consumer.working
            consumer.held -= back
            self.held -= back
            self.waiting += back
        self._deliver(self._at)

    def _measure(self, at: float) -> Measured:
        arrived, done, before = self._scraped
        seconds = at - before
        rate = (self.arrived - arrived) / seconds if seconds else self._load(at)
        served = (self.done - done) / seconds if seconds else 0.0
        working = len(self._finishing)
        self._scraped = self.arrived, self.done, at
        totals = {
            "load": rate,
            "served": served,
            "backlog": float(self.waiting + self.held),
            "waiting": float(self.waiting),
        }
        names = [replica.pod.name for replica in self.fleet.replicas if replica.is_ready]
        each = min(1.0, working / len(names)) if names else 0.0
        return Measured(
            at,
            {
                "cpu": dict.fromkeys(names, each * self._parameters.cpu / 1000),
                "memory": dict.fromkeys(names, 0.0),
                "rate": dict.fromkeys(names, served / len(names) if names else 0.0),
            },
            totals,
        )


def _draws(queue: SimulatedQueue, chance: random.Random) -> Callable[[], float]:
    """Returns the draw of one service time."""
    mean = queue.service_time
    if queue.distribution == CONSTANT:
        return lambda: mean
    if queue.distribution == EXPONENTIAL:
        return functools.partial(chance.expovariate, 1 / mean)
    deviation = math.sqrt(math.log1p(queue.variation**2))
    location = math.log(mean) - deviation**2 / 2
    return functools.partial(chance.lognormvariate, location, deviation)
