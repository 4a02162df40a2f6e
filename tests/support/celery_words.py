"""The simulated queue as a list of Redis, with what Celery workers say of themselves, for a goal in seconds."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from hpad.adapter import AdapterError, ExternalSample, Query, Sample
from hpad.simulation.load import Load
from hpad.simulation.queue import QueueModel, SimulatedQueue, _Consumer
from hpad_adapters.celery.measuring import TaskCounters
from hpad_adapters.celery.workers import HeldTask, Said, WorkerReport
from hpad_adapters.clearing.goal import ClearingGoal
from hpad_adapters.clearing.workers import Clearing

TASK = HeldTask("", "mail", "mail.send")


def worker(name: str, finished: int, active: int = 0, reserved: int = 0, **fields: Any) -> WorkerReport:
    """A worker of the queue mail; `started` is in seconds since the epoch."""
    fields = {"queues": ("mail",), "concurrency": 1, "started": 0.0} | fields
    return WorkerReport(name, active=(TASK,) * active, reserved=(TASK,) * reserved, finished=finished, **fields)


class SaidQueue(QueueModel):
    """A QueueModel whose External metrics are `workers` of Clearing, for a goal."""

    def __init__(self, queue: SimulatedQueue, load: Load, goal: ClearingGoal, quantity: str, **options: Any) -> None:
        self._counters, self._clearing = TaskCounters(["mail"]), Clearing(lambda: self._at)
        self._goal, self._quantity = goal, quantity
        self._begun = Counter[str]()
        self._since: dict[str, float] = {}
        super().__init__(queue, load, shown={}, **options)

    def _begin(self, consumer: _Consumer, at: float) -> None:
        self._begun[consumer.name] += 1
        super()._begin(consumer, at)

    def answer(self, queries: Sequence[Query | AdapterError]) -> Sequence[Sample | AdapterError]:
        return [query if isinstance(query, AdapterError) else self._value() for query in queries]

    def said(self) -> Said:
        """Returns what the workers say now; those that are leaving say nothing."""
        now = self._start.timestamp() + self._at
        reports = tuple(
            worker(
                each.name,
                self._begun[each.name],
                active=int(each.working),
                reserved=each.held - each.working,
                started=self._since.setdefault(each.name, now),
            )
            for each in self._consumers.values()
        )
        return Said(datetime.fromtimestamp(now, self._start.tzinfo), reports)

    def _value(self) -> Sample | AdapterError:
        said = self.said()
        queue = self._counters.measured("the queue mail", self.waiting, said, self._at)
        try:
            value = getattr(self._clearing, self._quantity)(queue, self._goal)
        except AdapterError as error:
            return error
        return ExternalSample((round(value * 1000),), said.at)


class RestlessQueue(SaidQueue):
    """Of the workers, one in twenty is silent at a read, and one in fifty has started again since the read before."""

    def said(self) -> Said:
        now = self._start.timestamp() + self._at
        for name in list(self._consumers):
            if self._chance.random() < 0.02:
                self._begun[name], self._since[name] = int(self._consumers[name].working), now
        said = super().said()
        quiet = {report.name for report in said.reports if self._chance.random() < 0.05}
        reports = tuple(report for report in said.reports if report.name not in quiet)
        return Said(said.at, reports, tuple(sorted(quiet)))
