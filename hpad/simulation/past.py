"""A workload whose load is that of a history.

A metric of pods is shared: its total over all replicas is that of the history, and the simulated replicas share it
evenly. So is another metric with a target of type Value (`hpad.engine.shadow`). With an AverageValue it is a total that
does not depend on the count, unless it is said to be shared, or to be the backlog of a queue
(`hpad.simulation.backlog`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.sample import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    RESOURCE,
    AdapterError,
    Answer,
    ExternalSample,
    ObjectSample,
    PodSample,
    PodValue,
    Query,
)
from hpad.engine.examine import MOST_VALUES
from hpad.engine.spec import UTILIZATION, CompiledMetric, compiled_spec
from hpad.simulation.backlog import Backlog, Rates
from hpad.simulation.fleet import Container, Fleet
from hpad.simulation.history import REPLICAS, HistoryError, LoadHistory, is_total, metrics_of

SPAN: Final = timedelta(seconds=30)
"""The time that a value of a pod covers."""
_REQUEST: Final = 1000
"""The request of each pod in milli-units, so that a percent of it is ten of them."""


class PastLoad(NamedTuple):
    """How a history is used: `startup` until a replica is ready, `lag` until a value is seen, both in seconds.

    `shared` are the columns of metrics with an AverageValue that fall as replicas grow; `queues` are those that are
    backlogs, with their rates.
    """

    startup: float = 10.0
    lag: float = 0.0
    shared: Collection[str] = ()
    queues: Mapping[str, Rates] = {}


class PastModel:
    """A workload (`run.Workload`) under the load of a history. Raises HistoryError for a missing column."""

    def __init__(self, hpa: HorizontalPodAutoscaler, history: LoadHistory, past: PastLoad) -> None:
        self._history = history
        self._past = past
        self._start = history.start
        self._metrics = metrics_of(hpa)
        self.backlogs = {name: Backlog(history, name, rates) for name, rates in past.queues.items()}
        self._check()
        count = history.at(REPLICAS, history.times[0]) if REPLICAS in history.columns else None
        container = next((each.query.container for each in self._metrics.values() if each.query.container), "app")
        requests = Container(name=container, cpu=_REQUEST, memory=_REQUEST)
        self.fleet = Fleet(
            round(count) if count else max(1, compiled_spec(hpa).min_replicas), self._start, past.startup, requests
        )
        self._now = self._start

    def _check(self) -> None:
        known = self._history.columns
        for kind, named in (("shared", self._past.shared), ("queue", self.backlogs)):
            for column in {*named} - self._metrics.keys():
                raise HistoryError(f"the {kind} {column} is no metric of the HPA; it has {', '.join(self._metrics)}")
        for time, count in zip(self._history.times, known.get(REPLICAS, ()), strict=False):
            if count is not None and not 0 <= count <= MOST_VALUES:
                at = f"{datetime.fromtimestamp(time, UTC):%Y-%m-%dT%H:%M:%SZ}"
                raise HistoryError(f"the history has {count:g} {REPLICAS} at {at}; 0 to {MOST_VALUES} are simulated")
        for column, metric in self._metrics.items():
            if column in self.backlogs and metric.of_pods:
                raise HistoryError(f"the queue {column} is a metric of pods; an Object or External metric is needed")
            if column not in known and column not in self.backlogs:
                raise HistoryError(f"the history has no column {column}; it has {', '.join(known)}")
            if self._is_shared(column, metric) and REPLICAS not in known:
                text = f"{column} is shared by the replicas, so the history needs a column {REPLICAS}"
                raise HistoryError(f"{text}; it has {', '.join(known)}")

    def _is_shared(self, column: str, metric: CompiledMetric) -> bool:
        falls = not is_total(metric) or column in self._past.shared
        return falls and column not in self.backlogs

    def advance(self, now: datetime) -> None:
        self._now, end = now, (now - self._start).total_seconds()
        while self.backlogs and (ready_at := self.fleet.next_ready()) is not None and ready_at < end:
            self._flow(ready_at)
            self.fleet.advance(ready_at)
        self._flow(end)
        self.fleet.advance(end)

    def _flow(self, end: float) -> None:
        for backlog in self.backlogs.values():
            backlog.advance(self._start.timestamp() + end, self.fleet.ready)

    def scale(self, replicas: int) -> None:
        self.fleet.scale(replicas, (self._now - self._start).total_seconds())

    def answer(self, queries: Sequence[Query | AdapterError]) -> Sequence[Answer]:
        if not queries:  # the count is outside the bounds, which decide without metrics
            return []
        return [
            query if isinstance(query, AdapterError) else self._answer(column, metric, query)
            for (column, metric), query in zip(self._metrics.items(), queries, strict=True)
        ]

    def _answer(self, column: str, metric: CompiledMetric, query: Query) -> Answer:
        when = self._now - timedelta(seconds=self._past.lag)
        value = self._value(column, metric, max(when, self._start).timestamp())
        if value is None:
            return AdapterError(f"the history has no value of {column} at {when:%Y-%m-%dT%H:%M:%SZ}")
        milli = round(value * 1000)
        if query.type == EXTERNAL:
            return ExternalSample((milli,), when)
        if not metric.of_pods:
            return ObjectSample(milli, when)
        if metric.kind == UTILIZATION:
            milli = round(value * _REQUEST / 100)
        # A starting replica does no work yet, but has its memory.
        idle = milli if query.type in (RESOURCE, CONTAINER_RESOURCE) and query.name == "memory" else 0
        busy, starting = PodValue(milli, when, SPAN), PodValue(idle, when, SPAN)
        values = {each.pod.name: busy if each.is_ready else starting for each in self.fleet.replicas}
        return PodSample(values, when)

    def _value(self, column: str, metric: CompiledMetric, time: float) -> float | None:
        """Returns the value that the simulated replicas would show; None in a gap."""
        if column in self.backlogs:
            return self.backlogs[column].at(time)
        value = self._history.at(column, time)
        if value is None or not self._is_shared(column, metric):
            return value
        count = self._history.at(REPLICAS, time)
        if not count or not self.fleet.ready:  # of no replica there is no total
            return None
        return value * count / self.fleet.ready


def assumptions(
    hpa: HorizontalPodAutoscaler, backlogs: Mapping[str, Backlog], shared: Collection[str] = ()
) -> Iterator[str]:
    """Yields how the model takes each metric of the HPA, a sentence each; `shared` as in PastLoad."""
    for name, metric in metrics_of(hpa).items():
        if name in backlogs:
            yield f"{name}: {backlogs[name].assumption}"
        elif not is_total(metric) or name in shared:
            yield f"{name}: its total over the recorded replicas is the load, which the simulated ones share evenly"
        else:
            yield f"{name}: does not depend on the replica count"
