"""Measures a controller over a steady window."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from statistics import fmean
from typing import Final, NamedTuple

import msgspec

from hpad.controller.planning import IN_TIME
from tools.bench.cluster import pace, population, processes
from tools.bench.cluster.controllers import DURATIONS, HPAD, LATENESS, QUEUE, RECONCILES, STALLS, WAITS, Controller
from tools.bench.cluster.population import Population
from tools.bench.cluster.probe import longest_wait
from tools.bench.cluster.processes import MachineTime, Watcher
from tools.bench.cluster.scraped import Histogram, Scrape, fetch, quantile
from tools.bench.cluster.worlds import World
from tools.soak.slopes import fitted

METRICS_LIST: Final = "list pods.metrics.k8s.io"
_POLL_SECONDS: Final = 0.2
_MOST_TRACES: Final = 400


class Plan(NamedTuple):
    """The period, the time until the window after the first round, and the window, in seconds."""

    period: float
    warm: float
    window: float

    @property
    def patience(self) -> float:
        """How long the first round may take."""
        return 60.0 + 4 * self.period


class Late(msgspec.Struct, frozen=True):
    """Seconds from the planned time; None if unknown."""

    p50: float | None = None
    p99: float | None = None
    most: float | None = None


class Figures(msgspec.Struct, frozen=True):
    """What was measured of one controller in one world. Times in seconds, memory in MiB.

    - `late`: from the planned time of a reconcile to its decision, of a sample of HPAs, by their traces. hpad dates a
      reconcile that is very late anew, so that its trace does not show it: then it is `started`, if that is more.
    - `started`: from the planned time to the start of the reconcile, of all HPAs, by the series of hpad.
    - `took`: the duration of a reconcile; `waited`: the time of a key in the workqueue. Both by the series.
    - `cpu`: CPU-seconds per 1,000 reconciles of each process.
    - `requests`: per reconcile, by verb and resource; `lists`: lists of metrics per namespace and period.
    - `slope`: MiB per hour, with half the width of its 95 % confidence interval.
    - `stretch`: the longest time for which the thread of the event loop did not pause (see `Watcher`), of hpad alone.
    - `wait`: the longest time that the event loop of hpad kept an event waiting, in a period after the window
      (`probe.longest_wait`).
    - `stalls`: stalls of at least half a second that hpad itself noticed.
    - `first_round`: from the start of the process until each HPA had a status.
    - `busy`: the part of the CPUs that was in use; `others`: CPUs that other processes used.
    - `pace`: CPU-seconds of a fixed piece of work, the mean of before and after the window (`pace`).
    """

    server: str
    controller: str
    hpas: int
    pods: int
    metrics: int
    namespaces: int
    wanted_period: float
    window: float
    reconciles: float
    rate: float
    period: float | None
    late: Late
    started: Late
    took: Late
    waited: Late
    cpu: dict[str, float]
    requests: dict[str, float]
    requests_each: float
    lists: float
    resident: dict[str, float]
    slope: float | None
    slope_margin: float | None
    stretch: float | None
    wait: float | None
    stalls: float | None
    first_round: float | None
    busy: float
    others: float
    pace: float


class Moment(NamedTuple):
    """What the system and the server say at the begin and at the end of a window."""

    time: float
    requests: Mapping[str, float]
    cpu: Mapping[str, float]
    machine: MachineTime


class Trial(NamedTuple):
    """A controller at work in a world, and what is to be measured."""

    server: str
    world: World
    controller: Controller
    population: Population
    plan: Plan

    @property
    def pids(self) -> dict[str, int]:
        return {self.controller.name: self.controller.pid, **self.world.processes}


def measured(trial: Trial, first_round: float | None, at_window: Callable[[], None] = lambda: None) -> Figures:
    """Measures after the warm-up. `at_window` is called at both ends of the window.

    The series are read outside the window, because they cost hpad CPU; a rate counts the time between the readings.
    """
    time.sleep(trial.plan.warm)
    paces = [pace.measured(trial.controller.python)]
    before = trial.controller.scrape()
    at_window()
    with Watcher(trial.controller.pid) as watcher:
        begin = _moment(trial)
        time.sleep(trial.plan.window)
        end = _moment(trial)
    at_window()
    ended = datetime.now(UTC)
    after = trial.controller.scrape()  # first, so that the time between the scrapes is close to whole periods
    late = _traced(trial, ended)
    paces.append(pace.measured(trial.controller.python))
    wait = longest_wait(trial.controller.url, trial.plan.period) if trial.controller.name == HPAD else None
    return _Window(trial, begin, end, before, after, fmean(paces)).figures(watcher, late, wait, first_round)


def _moment(trial: Trial) -> Moment:
    cpu = {name: processes.cpu_seconds(pid) for name, pid in trial.pids.items()}
    return Moment(time.monotonic(), trial.world.counts(), cpu, MachineTime.now())


def wait_for_first_round(trial: Trial) -> float | None:
    """Waits until each HPA has a status; returns the seconds since the start of the controller, None if it failed."""
    deadline = time.monotonic() + trial.plan.patience
    while time.monotonic() < deadline:
        if trial.world.reconciled() >= trial.population.hpas:
            return time.monotonic() - trial.controller.started
        time.sleep(_POLL_SECONDS)
    return None


def _traced(trial: Trial, ended: datetime) -> list[float]:
    """Returns how late decisions of hpad were, by the traces of HPAs that were decided last before `ended`.

    Stops when all others may have had their next decision.
    """
    if trial.controller.name != HPAD:
        return []
    found, numbers = [], trial.population.hpas
    deadline = time.monotonic() + trial.plan.period / 2
    for number in range(0, numbers, max(1, numbers // _MOST_TRACES)):
        if time.monotonic() > deadline:
            break
        path = f"{trial.population.namespace(number)}/{population.name(number)}"
        with suppress(OSError):
            trace = json.loads(fetch(f"{trial.controller.url}/api/v1/hpas/{path}")).get("trace") or {}
            if trace.get("timing") and datetime.fromisoformat(trace["time"]) < ended:
                timing = trace["timing"]
                found.append(sum(timing[stage] for stage in ("late", "observe", "gather", "act")))
    return found


def late_of(found: Histogram) -> Late:
    """Returns quantiles of a histogram, and the upper bound of its highest bucket with an observation."""
    return Late(found.quantile(0.5), found.quantile(0.99), found.largest())


def later(traced: Late, started: Late, limit: float) -> Late:
    """Returns the traced times, but those of `started` that are longer and beyond `limit` seconds."""
    pairs = zip(msgspec.structs.astuple(traced), msgspec.structs.astuple(started), strict=True)
    return Late(*(two if two is not None and two > max(limit, one or 0.0) else one for one, two in pairs))


class _Window(NamedTuple):
    """A window between two moments, the series read around it, and the pace."""

    trial: Trial
    begin: Moment
    end: Moment
    before: Scrape
    after: Scrape
    pace: float

    def figures(self, watcher: Watcher, late: list[float], wait: float | None, first_round: float | None) -> Figures:
        trial, seconds = self.trial, self.end.time - self.begin.time
        reconciles = sum(self.after.increase(self.before, RECONCILES).values())
        rate = reconciles / (self.after.time - self.before.time)
        each = 1 / (rate * seconds) if rate else 0.0
        requests = self._requests(each)
        lists = self._requests(trial.plan.period / seconds / trial.population.namespaces).get(METRICS_LIST, 0.0)
        slope = fitted(watcher.memory) if len(watcher.memory) >= 3 else None
        ours = {name: self.end.cpu[name] - self.begin.cpu[name] for name in self.end.cpu}
        traced = Late(quantile(late, 0.5), quantile(late, 0.99), max(late, default=None))
        started = late_of(self.after.histogram(self.before, LATENESS))
        total, idle = (end - begin for begin, end in zip(self.begin.machine, self.end.machine, strict=True))
        return Figures(
            server=trial.server,
            controller=trial.controller.name,
            hpas=trial.population.hpas,
            pods=trial.population.pods,
            metrics=trial.population.metrics,
            namespaces=trial.population.namespaces,
            wanted_period=trial.plan.period,
            window=seconds,
            reconciles=reconciles,
            rate=rate,
            period=trial.population.hpas / rate if rate else None,
            late=later(traced, started, IN_TIME * trial.plan.period),
            started=started,
            took=late_of(self.after.histogram(self.before, DURATIONS)),
            waited=late_of(self.after.histogram(self.before, WAITS, name=QUEUE)),
            cpu={name: 1000 * each * spent for name, spent in ours.items()},
            requests=requests,
            requests_each=sum(count for name, count in requests.items() if not name.startswith("watch ")),
            lists=lists,
            resident={name: processes.resident(pid) / 2**20 for name, pid in trial.pids.items()},
            slope=slope and slope.per_hour,
            slope_margin=slope and slope.margin,
            stretch=watcher.longest_stretch if trial.controller.name == HPAD else None,
            wait=wait,
            stalls=self.after.histogram(self.before, STALLS).count if trial.controller.name == HPAD else None,
            first_round=first_round,
            busy=1 - idle / total if total else 0.0,
            others=max(0.0, (total - idle - sum(ours.values())) / seconds),
            pace=self.pace,
        )

    def _requests(self, scale: float) -> dict[str, float]:
        """Returns the requests of the window by verb and resource, the most frequent first, times `scale`."""
        before, after = self.begin.requests, self.end.requests
        grown = {name: (count - before.get(name, 0)) * scale for name, count in after.items()}
        return {name: count for name, count in sorted(grown.items(), key=lambda item: -item[1]) if count > 0}
