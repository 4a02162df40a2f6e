"""What all models of workloads share: their pods, and metrics that are read at intervals and seen late.

| quantity | of | meaning |
| --- | --- | --- |
| `cpu`, `memory` | a pod | usage, as metrics-server shows it: the mean of the last interval |
| `rate` | a pod | units of work that it does per second |
| `load` | all | units of work that arrive per second |
| `served` | all | units of work that are done per second |
| `backlog` | all | units that have arrived and are not done; of a queue: ready and unacknowledged messages |
| `waiting` | all | of these, the ones that nobody works on: ready messages |
"""

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.sample import (
    CONTAINER_RESOURCE,
    EXTERNAL,
    OBJECT,
    PODS,
    RESOURCE,
    AdapterError,
    Answer,
    ExternalSample,
    ObjectSample,
    PodSample,
    PodValue,
    Query,
    Sample,
)
from hpad.api.text import shown
from hpad.engine.spec import compiled_spec
from hpad.simulation.fleet import Container, Fleet, SimulatedReplica
from hpad.simulation.load import Load

_INSTANT: Final = 1e-3
"""Seconds of work that are left to the next interval."""
OF_PODS: Final = ("cpu", "memory", "rate")
OF_ALL: Final = ("load", "served", "backlog", "waiting")


class Scraping(msgspec.Struct, frozen=True, kw_only=True):
    """How metrics are read: a new value each `interval` seconds, seen `lag` seconds later."""

    interval: float = 15.0
    lag: float = 0.0


class Measured(NamedTuple):
    """The values of one scrape: of each pod by quantity and name, and of the whole workload by quantity."""

    at: float
    pods: Mapping[str, Mapping[str, float]]
    totals: Mapping[str, float]


def shows(hpa: HorizontalPodAutoscaler, default: str, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the quantity that each metric of the HPA shows: `given` by name, else the usual one of its type.

    `default` is that of Object and External metrics. Raises ValueError naming the metric and the quantity.
    """
    found: dict[str, str] = {}
    known: tuple[str, ...]
    for metric in compiled_spec(hpa).metrics:
        if metric.type in (RESOURCE, CONTAINER_RESOURCE):
            known, usual = ("cpu", "memory"), metric.name
        elif metric.type == PODS:
            known, usual = OF_PODS, "rate"
        else:
            known, usual = OF_ALL, default
        found[metric.name] = given.get(metric.name, usual)
        if found[metric.name] not in known:
            text = f"the {metric.type} metric {metric.name} cannot show {shown(found[metric.name])}"
            raise ValueError(f"{text}; it can show {', '.join(known)}")
    unknown = [name for name in given if name not in found]
    if unknown:
        raise ValueError(f"the HPA has no metric {shown(unknown[0])}; it has {', '.join(found) or 'none'}")
    return found


class ModelParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of any workload: `startup` is the seconds until a new replica works."""

    startup: float = 10.0
    container: Container = Container(cpu=500)


P = TypeVar("P", bound=ModelParameters)


class Model(ABC, Generic[P]):
    """A workload (`run.Workload`). Subclasses do the work between two scrapes, and measure it."""

    def __init__(
        self,
        parameters: P,
        load: Load,
        *,
        start: datetime,
        replicas: int,
        shown: Mapping[str, str],
        scraping: Scraping = Scraping(),  # noqa: B008 (it is immutable)
        seed: int = 0,
    ) -> None:
        self._parameters = parameters
        self._start = start
        self._load = load
        self._scraping = scraping
        self._shown = shown
        self._chance = random.Random(seed)
        self._window = timedelta(seconds=self._scraping.interval)
        self.fleet = Fleet(replicas, start, parameters.startup, parameters.container)
        self._at = 0.0
        self._next = 0.0
        self._measured: deque[Measured] = deque()
        self._prepare()

    def scale(self, replicas: int) -> None:
        self._leave(self.fleet.scale(replicas, self._at))

    def advance(self, now: datetime) -> None:
        end = (now - self._start).total_seconds()
        while self._next <= end:
            self._step(self._next)
            self._measured.append(self._measure(self._next))
            self._next += self._scraping.interval
        if end - self._at > _INSTANT:
            self._step(end)
        # The newest values that are old enough to be seen; the first ones are seen at once.
        while len(self._measured) > 1 and self._measured[1].at <= end - self._scraping.lag:
            self._measured.popleft()

    def answer(self, queries: Sequence[Query | AdapterError]) -> Sequence[Answer]:
        return [query if isinstance(query, AdapterError) else self._sample(query) for query in queries]

    def _sample(self, query: Query) -> Sample:
        seen, quantity = self._measured[0], self._shown[query.name]
        when = self._start + timedelta(seconds=seen.at)
        if query.type == EXTERNAL:
            return ExternalSample((_milli(seen.totals[quantity]),), when)
        if query.type == OBJECT:
            return ObjectSample(_milli(seen.totals[quantity]), when)
        window = self._window
        values = seen.pods[quantity]
        return PodSample({name: PodValue(_milli(value), when, window) for name, value in values.items()}, when)

    def _step(self, end: float) -> None:
        """Works until `end`, in parts that end where a replica becomes ready."""
        while self._at < end:
            ready = self.fleet.next_ready()
            until = end if ready is None else min(max(ready, self._at), end)
            if until > self._at:
                self._work(self._at, until)
                self._at = until
            if ready is None:
                return
            self._join(self.fleet.advance(self._at))

    @abstractmethod
    def _prepare(self) -> None:
        """Sets the state at the start."""

    @abstractmethod
    def _work(self, begin: float, end: float) -> None:
        """Does the work of an interval in which no replica joins or leaves."""

    @abstractmethod
    def _measure(self, at: float) -> Measured:
        """Returns the values of the interval that ends now."""

    @abstractmethod
    def _join(self, replicas: list[SimulatedReplica]) -> None:
        """Takes replicas in that have become ready."""

    @abstractmethod
    def _leave(self, replicas: list[SimulatedReplica]) -> None:
        """Lets removed replicas go."""


def _milli(value: float) -> int:
    return round(value * 1000)
