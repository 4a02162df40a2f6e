"""The simulated queue with what RabbitMQ reports of it, for the values that the rabbitmq adapter makes of that.

Counts are as of now. Statistics are samples, one each five seconds, and up to five seconds old. Consumers and rates of
messages come from other processes of the broker than lengths, so they are an interval older still. The newest sample of
a length repeats the one before until it is collected.
"""

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from hpad.adapter import AdapterError, ExternalSample, Query, Sample
from hpad.simulation.load import Load
from hpad.simulation.model import Scraping
from hpad.simulation.queue import QueueModel, SimulatedQueue
from hpad_adapters.clearing.goal import ClearingGoal, CounterPoint
from hpad_adapters.clearing.workers import Clearing
from hpad_adapters.rabbitmq.queues import Details, Lengths, Statistics, measured
from hpad_adapters.rabbitmq.queues import RabbitmqQueue as Reported

SPACING = 5.0
LATE = 5_000
"""Milliseconds by which lengths are dated later than rates, as in RabbitMQ 3.10."""
SAMPLES = 13
"""Of a rate_window of 60 s."""


class ReportedQueue(QueueModel):
    """A QueueModel whose External metrics are `workers` or `seconds` of Clearing, for a goal."""

    def __init__(self, queue: SimulatedQueue, load: Load, goal: ClearingGoal, quantity: str, **options: Any) -> None:
        self._points: deque[tuple[int, int, int, int, int, int]] = deque(maxlen=SAMPLES + 1)
        self._clearing, self._goal, self._quantity = Clearing(lambda: self._at), goal, quantity
        super().__init__(queue, load, scraping=Scraping(interval=SPACING), shown={}, **options)

    def _measure(self, at: float) -> Any:
        published, done = self.arrived - self._parameters.backlog, self.done
        stamp = round(at * 1000)
        self._points.append((stamp, published, done, self.waiting, self.held, self.fleet.ready))
        return super()._measure(at)

    def answer(self, queries: Sequence[Query | AdapterError]) -> Sequence[Sample | AdapterError]:
        return [query if isinstance(query, AdapterError) else self._value() for query in queries]

    def _value(self) -> Sample | AdapterError:
        now = self._start.timestamp() + self._at
        try:
            found = measured(self.reported(), self._goal.concurrency, "the model")
            value = getattr(self._clearing, self._quantity)(found, self._goal)
        except AdapterError as error:
            return error
        return ExternalSample((round(value * 1000),), datetime.fromtimestamp(now, self._start.tzinfo))

    def reported(self) -> Reported:
        """Returns the queue as the management API shows it now."""
        newest = list(self._points)
        older = newest[:-1] or newest
        held = [CounterPoint(each[4], each[0] + LATE) for each in older]
        held[-1:] = [CounterPoint(held[-2:][0].sample, held[-1].timestamp)]
        return Reported(
            "tasks",
            "/",
            "classic",
            "running",
            messages=self.waiting + self.held,
            messages_ready=self.waiting,
            messages_unacknowledged=self.held,
            consumers=older[-1][5],
            message_stats=Statistics(
                publish_details=Details(samples=[CounterPoint(each[1], each[0]) for each in older]),
                ack_details=Details(samples=[CounterPoint(each[2], each[0]) for each in older]),
            ),
            messages_unacknowledged_details=Lengths(samples=held),
        )
