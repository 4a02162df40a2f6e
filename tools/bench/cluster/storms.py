"""Storms: what happens all at once in a cluster, and what hpad does until all HPAs were reconciled once more.

hpad runs with leader election and keeps its state in ConfigMaps, so that a second instance can take over.
"""

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from tools.bench.cluster import controllers, measure
from tools.bench.cluster.controllers import HPAD, Program
from tools.bench.cluster.measure import Figures, Plan, Trial
from tools.bench.cluster.population import Population
from tools.bench.cluster.processes import Watcher
from tools.bench.cluster.storm import AGAIN, Steady, Storm, Watch, compared
from tools.bench.cluster.worlds import ChildWorld

FLAGS: Final = ("--leader-elect", "--store", "cluster")
NAMES: Final = (
    "start", "namespace deleted", "pods restarted", "metrics outage", "disconnected", "second outage", "new leader",
)  # fmt: skip
START, NAMESPACE, PODS, OUTAGE, DISCONNECT, OUTAGE_AGAIN, LEADER = NAMES
_POLL_SECONDS: Final = 0.1


class Site(NamedTuple):
    """Where storms are measured: the stub server, and how hpad is run. `outage`: the seconds of one."""

    world: ChildWorld
    population: Population
    plan: Plan
    program: Program
    folder: Path
    outage: float

    def start(self, stack: ExitStack, name: str) -> Trial:
        """Starts an instance of hpad, which ends with the stack."""
        folder = self.folder / name.replace(" ", "-")
        folder.mkdir()
        program = self.program._replace(flags=(*FLAGS, *self.program.flags))
        controller = stack.enter_context(controllers.started(HPAD, folder, self.world, program))
        return Trial("stub", self.world, controller, self.population, self.plan)


def measured(site: Site) -> tuple[Figures, list[Storm]]:
    """Measures a steady window, and each storm once."""
    with ExitStack() as second, ExitStack() as first:
        trial = site.start(first, "first leader")
        start = _start(trial)
        figures, steady = _steady(trial, start.recovered)
        found = [start]
        for each in _storms(site, trial, first, second):
            print(f"{each.name} at {each.hpas:,} HPAs: recovered after {each.recovered} s", file=sys.stderr)
            found.append(each)
    return figures, [compared(each, steady) for each in found]


def _start(trial: Trial) -> Storm:
    """Measures the first round, which has begun already."""
    watch = Watch.since_start(trial)
    with Watcher(trial.controller.pid) as watcher:
        first_round = measure.wait_for_first_round(trial)
    return msgspec.structs.replace(watch.figures(START, watcher, first_round), gap=None)


def _steady(trial: Trial, first_round: float | None) -> tuple[Figures, Steady]:
    """Measures the window without a storm."""
    busiest: list[int] = []

    def at_window() -> None:
        assert isinstance(trial.world, ChildWorld)
        busiest.append(sum(trial.world.asked("counts")["busiest"].values()))
        trial.world.mark()

    figures = measure.measured(trial, first_round, at_window)
    return figures, Steady(busiest[-1], figures.resident[HPAD])


def _storms(site: Site, trial: Trial, first: ExitStack, second: ExitStack) -> Iterator[Storm]:
    """Yields the storms after the start. `first` ends the leader; the next one is put on `second`."""
    strike = functools.partial(_at_once, site.world)
    smaller = site.population.numbers(site.population.namespaces - 1).start
    trial = trial._replace(population=site.population._replace(hpas=smaller))
    yield _endured(NAMESPACE, trial, lambda: strike("delete-namespace"))
    yield _endured(PODS, trial, lambda: strike("restart-pods"))
    outage = _outage(site, OUTAGE, trial)
    yield outage
    yield _endured(DISCONNECT, trial, lambda: strike("disconnect"))
    yield msgspec.structs.replace(_outage(site, OUTAGE_AGAIN, trial), most=AGAIN * outage.peak)
    other = site.start(second, LEADER)._replace(population=trial.population)
    # It has reconciled nothing before: compared with a leader at work.
    yield msgspec.structs.replace(_endured(LEADER, other, lambda: _end(first)), before=0.0)


def _endured(name: str, trial: Trial, strike: Callable[[], float]) -> Storm:
    """Measures a storm. `strike` lets it begin, and returns the time from which on the recovery counts."""
    watch = Watch.begin(trial)
    with Watcher(trial.controller.pid) as watcher:
        since = strike()
        recovered = _recovered(watch, since)
    return watch.figures(name, watcher, recovered)


def _recovered(watch: Watch, since: float) -> float | None:
    """Waits until each HPA was reconciled with valid metrics; returns the seconds, None if it takes too long."""
    deadline = time.monotonic() + watch.trial.plan.patience
    while time.monotonic() < deadline:
        if watch.world.asked("counts")["measured"] >= watch.trial.population.hpas:
            return time.monotonic() - since
        time.sleep(_POLL_SECONDS)
    return None


def _at_once(world: ChildWorld, command: str) -> float:
    now = time.monotonic()
    world.asked(command)
    return now


def _outage(site: Site, name: str, trial: Trial) -> Storm:
    """Measures an outage of the metrics API. Statuses do not change while it lasts, so it has no `gap`."""

    def strike() -> float:
        site.world.asked("fail-metrics")
        time.sleep(site.outage)
        site.world.asked("serve-metrics")
        return time.monotonic()

    return msgspec.structs.replace(_endured(name, trial, strike), gap=None)


def _end(leader: ExitStack) -> float:
    """Stops the leader, whose standby is at work; returns the begin."""
    now = time.monotonic()
    leader.close()
    return now
