"""A spike of messages over a steady rate, played with the engine and a simulated queue."""

import functools
import math
from datetime import timedelta
from typing import Any, NamedTuple

from support.celery_words import SaidQueue
from support.rabbit_statistics import ReportedQueue
from support.simulations import START, hpa

from hpad.adapter import AdapterError
from hpad.engine.view import Gates, Tunables
from hpad.simulation.queue import CONSTANT, SimulatedQueue
from hpad.simulation.run import simulate
from hpad_adapters.clearing.goal import ClearingGoal

SPIKE_AT = 300
BEHAVIOR = {
    "scaleUp": {"policies": [{"type": "Pods", "value": 1000, "periodSeconds": 15}]},
    "scaleDown": {"stabilizationWindowSeconds": 0},
}


class Spike(NamedTuple):
    """A spike over a steady rate; times in seconds. `known`: the service time in the settings, 0 for none.

    `fetched`: how many messages a consumer holds at once where the settings do not say it, else 0.
    """

    goal: float
    period: float
    service: float
    rate: float
    messages: int
    distribution: str = CONSTANT
    prefetch: int = 1
    startup: float = 8.0
    known: float = 0.0
    fetched: int = 0

    @property
    def parsed(self) -> ClearingGoal:
        """The goal; half a period passes on average until the spike is read."""
        return ClearingGoal(self.goal, self.startup + self.period / 2, self.known, self.prefetch)

    def ideal(self, messages: int) -> float:
        """Returns replica-seconds for a spike of so many messages; `rate` holds apart from it."""
        steady = max(1, math.ceil(self.rate * self.service))
        return math.ceil((messages / self.goal + self.rate) * self.service) * self.goal + steady * 2 * self.goal


class Outcome(NamedTuple):
    """Seconds until the backlog was gone, replica-seconds from the spike on by the ideal, and the counts per turn.

    The backlog is gone when no more messages wait than are published in a second.
    """

    cleared: float
    cost: float
    counts: list[tuple[float, int]]
    failed: list[tuple[float, AdapterError]]


@functools.cache
def played(
    spike: Spike,
    quantity: str = "workers",
    low: int = 1,
    seed: int = 1,
    reported: type[ReportedQueue] | type[SaidQueue] = ReportedQueue,
) -> Outcome:
    """Plays the spike, second by second; its callers share the outcome. `reported` makes the values of the metric."""
    target = {"type": "AverageValue", "averageValue": "1"} if quantity == "workers" else {"type": "Value"}
    if quantity == "seconds":
        target["value"] = str(spike.goal)
    metric = {"type": "External", "external": {"metric": {"name": "clear"}, "target": target}}
    queue = SimulatedQueue(
        service_time=spike.service,
        distribution=spike.distribution,
        prefetch=spike.fetched or spike.prefetch,
        startup=spike.startup,
    )

    def load(at: float) -> float:
        return spike.rate + (spike.messages if SPIKE_AT <= at < SPIKE_AT + 1 else 0)

    model = reported(queue, load, spike.parsed, quantity, start=START, replicas=1, seed=seed)
    seconds: list[tuple[float, int, int]] = []
    arrived: dict[float, int] = {}
    advance = model.advance

    def by_second(now: Any) -> None:
        end = (now - START).total_seconds()
        for at in range(math.floor(model._at) + 1, math.ceil(end)):
            advance(START + timedelta(seconds=at))
            arrived[at - SPIKE_AT] = model.arrived
            seconds.append((at - SPIKE_AT, model.waiting, model.fleet.count))
        advance(now)

    model.advance = by_second  # type: ignore[method-assign]
    turns = list(
        simulate(
            hpa(metric, low=low, high=500, behavior=BEHAVIOR),
            model,
            start=START,
            length=timedelta(seconds=SPIKE_AT + 3 * spike.goal + 2 * spike.period),
            period=timedelta(seconds=spike.period),
            tunables=Tunables(gates=Gates(HPAScaleToZero=True)),
        )
    )
    after = [each for each in seconds if 0 <= each[0] < 3 * spike.goal]
    found = [((turn.done.view.now - START).total_seconds() - SPIKE_AT, turn) for turn in turns]
    return Outcome(
        next(at for at, waiting, _ in after if at > 1 and waiting <= spike.rate),
        sum(replicas for _, _, replicas in after) / spike.ideal(arrived[1] - arrived[0]),
        [(at, turn.after) for at, turn in found],
        [(at, each) for at, turn in found for each in turn.done.answers if isinstance(each, AdapterError)],
    )
