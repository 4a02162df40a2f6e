"""A goal in seconds over Redis: what came and what was done, from the lengths of lists and the workers' own counters.

Redis keeps no counters. A list that gets shorter says that tasks were fetched, and one of constant length may stand
still, or take in as many tasks as it gives out. The workers say how many tasks they have begun, so that

    came = tasks in the lists + tasks that wait in workers + tasks begun
    done = tasks begun - tasks in work

but for a constant. Both are added up worker by worker, from one read to the next:

| a worker | counts |
| --- | --- |
| has answered before | what its counter has grown by |
| has started since the last read, maybe again: its uptime is short, or its counter fell | all of its counter |
| is older, but was not heard before | from now on |
| is silent | as it was, for SILENT_SECONDS |
| is gone | no more; its tasks in work were given back, or end without being seen: they are not done |

The lists and the workers are not read at the same instant, so that a task may be in neither or in both for a moment.
The counters are therefore the largest that were seen in the window. Tasks that are dropped (revoked, expired, purged)
make them stand still until as many have come.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

from hpad.adapter import AdapterError, Context, shown
from hpad_adapters.celery.workers import SILENT_SECONDS, Said, WorkerReport
from hpad_adapters.clearing.goal import GOAL, ClearingGoal, CounterPoint, MeasuredQueue, parsed_goal
from hpad_adapters.clearing.workers import MOST_QUEUES, Clearing

APART_SECONDS = 0.9
"""Reads that follow each other sooner add no sample."""
_SPAN = 60.0
"""Seconds of samples that are kept at least, as by RabbitMQ."""
_FEWEST = 13
"""Samples that are kept at least: the usual rate leaves out the highest and the lowest ones."""
_LONGEST = 300.0
"""Seconds between two samples after which what happened between them is unknown."""
_BOOT = 15.0
"""Seconds from the start of a worker, from which its uptime counts, until it answers."""
_NAMED = 3


class _Seen(msgspec.Struct):
    """The last report of a worker, and when it was read."""

    report: WorkerReport
    at: float

    @property
    def done(self) -> int:
        return _done(self.report)


class _Point(msgspec.Struct, frozen=True):
    """Counters at a time (seconds of a monotonic clock), and how many tasks were worked on."""

    at: float
    came: int
    done: int
    working: int


class TaskCounters:
    """What is remembered of the tasks of some queues, and of their workers."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = frozenset(queues)
        self._workers: dict[str, _Seen] = {}
        self._begun = self._done = 0
        self._points: deque[_Point] = deque()

    def measured(self, name: str, waiting: int, said: Said, now: float) -> MeasuredQueue:
        """Adds a read: tasks in the lists, and what the workers said, at `now` (seconds of a monotonic clock).

        `name` stands for the queues in sentences. Raises AdapterError for workers whose tasks cannot be told apart.
        """
        reports = self._serving(said)
        last = self._points[-1].at if self._points else None
        if last is None or now >= last + APART_SECONDS:
            if last is not None and now > last + _LONGEST:
                self._points.clear()
            self._read(reports, said, now, None if last is None else now - last)
            self._add(now, waiting)
        seen = [each.report for each in self._workers.values()]
        points = list(self._points)
        return MeasuredQueue(
            place=self._queues,
            name=name,
            ready=waiting,
            held=sum(len(each.reserved) + len(each.active) for each in seen),
            at_work=sum(len(each.active) for each in seen),
            capacity=sum(each.concurrency for each in seen),
            published=_counter(points, [point.came for point in points]),
            done=_counter(points, [point.done for point in points]),
            working={_stamp(point): point.working for point in points},
        )

    def _serving(self, said: Said) -> list[WorkerReport]:
        """Returns the reports of the workers of these queues; raises AdapterError."""
        if said.faults:
            raise AdapterError(f"the workers cannot be counted: {said.faults[0]}", "spec")
        found = []
        for report in said.reports:
            if self._queues.isdisjoint(report.queues):
                continue
            if others := sorted(set(report.queues) - self._queues):
                every = ",".join(sorted(self._queues | set(others)))
                raise AdapterError(
                    f"worker {report.name} works for {', '.join(map(shown, others[:_NAMED]))} as well, and does not "
                    f"tell how many tasks of each queue it has begun: ask for all its queues, queue in ({every})",
                    "spec",
                )
            if report.solo:
                raise AdapterError(
                    f"worker {report.name} has a solo pool, which says nothing while it works: "
                    "start it with --pool=prefork or --pool=threads",
                    "spec",
                )
            found.append(report)
        return found

    def _read(self, reports: Sequence[WorkerReport], said: Said, now: float, since: float | None) -> None:
        """Adds what the workers have begun and done. `since`: seconds since the last read, None for the first."""
        at = said.at.timestamp()
        for report in reports:
            before = self._workers.get(report.name)
            uptime = None if report.started is None else max(0.0, at - report.started)
            if before is not None and not _restarted(before, report, uptime, now):
                self._begun += report.finished - before.report.finished
                self._done += _done(report) - before.done
            elif before is not None or (since is not None and uptime is not None and uptime <= since + _BOOT):
                self._begun += report.finished
                self._done += _done(report)
            self._workers[report.name] = _Seen(report, now)
        present = {report.name for report in reports}
        for name, seen in list(self._workers.items()):
            if name not in present and (name not in said.silent or now > seen.at + SILENT_SECONDS):
                del self._workers[name]

    def _add(self, now: float, waiting: int) -> None:
        seen = [each.report for each in self._workers.values()]
        reserved, working = sum(len(each.reserved) for each in seen), sum(len(each.active) for each in seen)
        self._points.append(_Point(now, waiting + reserved + self._begun, self._done, working))
        while len(self._points) > _FEWEST and self._points[1].at <= now - _SPAN:
            self._points.popleft()


def _restarted(before: _Seen, report: WorkerReport, uptime: float | None, now: float) -> bool:
    """Returns whether the worker has started again since it was heard. Celery rounds its uptime down to seconds."""
    return report.finished < before.report.finished or (uptime is not None and uptime + 1 <= now - before.at)


def _done(report: WorkerReport) -> int:
    return report.finished - len(report.active)


def _counter(points: Sequence[_Point], values: Sequence[int]) -> list[CounterPoint]:
    """Returns samples that never fall, and are not below zero."""
    rising = accumulate(values, max, initial=0)
    next(rising)
    return [CounterPoint(value, _stamp(point)) for point, value in zip(points, rising, strict=True)]


def _stamp(point: _Point) -> int:
    return int(point.at * 1000)


def goal_of(parameters: Mapping[str, str]) -> ClearingGoal:
    """Returns the goal of a selector; raises ValueError, "field: text"."""
    return parsed_goal({name: parameters.get(name, "") for name in GOAL})


class GoalsOverRedis:
    """The values of all goals of a source. Queues that are asked for together are one backlog of the same workers."""

    def __init__(self, context: Context) -> None:
        self._monotonic = context.clock.monotonic
        self._clearing = Clearing(self._monotonic)
        self._counters: OrderedDict[frozenset[str], TaskCounters] = OrderedDict()

    def workers(self, queues: tuple[str, ...], goal: ClearingGoal, name: str, waiting: int, said: Said) -> float:
        """Returns how many tasks have to be worked on at once; raises AdapterError where that is unknown.

        `waiting` tasks are in the lists of these queues, for which `name` stands in sentences.
        """
        place = frozenset(queues)
        counters = self._counters.setdefault(place, TaskCounters(queues))
        self._counters.move_to_end(place)
        if len(self._counters) > MOST_QUEUES:
            self._counters.popitem(last=False)
        return self._clearing.workers(counters.measured(name, waiting, said, self._monotonic()), goal)
