"""The figures of a storm, and what hpad promises about them."""

import json
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec

from tools.bench.cluster import measure, processes
from tools.bench.cluster.controllers import LATENESS, STALLS
from tools.bench.cluster.measure import METRICS_LIST, Late, Trial
from tools.bench.cluster.processes import Watcher
from tools.bench.cluster.scraped import Scrape
from tools.bench.cluster.worlds import ChildWorld

HERD: Final = 2.0
"""The busiest second of a storm has at most this many times the requests of the busiest one before, without events:
an HPA that cannot be reconciled has two of them, as in Kubernetes."""
MEMORY: Final = 1.3
"""The peak of the resident memory is at most this many times the memory before the storm."""
AGAIN: Final = 1.1
"""The peak of the same storm once more is at most this many times the first peak: what a storm leaves is bounded."""
_LOUD: Final = ("warning", "error", "critical")


class Steady(NamedTuple):
    """The requests of the busiest second, and the resident memory in MiB, of the steady window."""

    busiest: int
    resident: float


class Storm(msgspec.Struct, frozen=True):
    """What was measured from the begin of a storm until all HPAs were reconciled. Times in seconds, memory in MiB.

    - `recovered`: from the storm, or from the end of an outage, until each HPA had a new status with valid metrics;
      None: not within the patience.
    - `late`: from the planned time to the start of a reconcile, by the series of hpad.
    - `gap`: the longest time that an HPA had the same status; None if hpad has no reason to write one.
    - `stretch`: see Figures; `stall`: the longest stall that hpad itself noticed, as the bound of its bucket.
    - `busiest`: the requests of the busiest second by verb and resource; `busiest_before`: their number before.
    - `peak` and `after`: the highest and the last resident memory; `before`: the memory at its begin, for an
      instance that has done nothing before (0 until it is `compared`) that of the steady window; `most`: what the
      peak may be.
    - `lists`: lists of metrics per namespace and period.
    - `logged`: the number of warnings and errors by their text.
    """

    name: str
    hpas: int
    period: float
    recovered: float | None
    late: Late
    gap: float | None
    stretch: float
    stall: float | None
    busiest: dict[str, int]
    busiest_before: int
    peak: float
    after: float
    before: float
    most: float
    lists: float
    logged: dict[str, int]

    @property
    def requests(self) -> int:
        return sum(self.busiest.values())

    @property
    def events(self) -> int:
        """The requests of the busiest second that write events."""
        return sum(count for name, count in self.busiest.items() if name.endswith(" events"))

    def claims(self) -> dict[str, bool]:
        """Returns whether each promise was held."""
        started_in_time = self.late.most is None or self.late.most <= self.period
        return {
            "recovered": self.recovered is not None,
            "no herd": self.requests - self.events <= HERD * self.busiest_before,
            "in time": started_in_time and (self.gap is None or self.gap <= 2 * self.period),
            "memory": self.peak <= self.most,
        }


class Watch(NamedTuple):
    """A controller during a storm, and what was read at its begin: its series, the requests, and its place in the log.

    `time` is the begin, `resident` the memory in MiB.
    """

    trial: Trial
    world: ChildWorld
    scrape: Scrape
    requests: Mapping[str, int]
    offset: int
    time: float
    resident: float

    @classmethod
    def since_start(cls, trial: Trial) -> Self:
        """Watches a controller that was just started in a new world."""
        return cls(trial, _stub(trial), Scrape(0.0, {}), {}, 0, trial.controller.started, 0.0)

    @classmethod
    def begin(cls, trial: Trial) -> Self:
        """Watches a controller from now on."""
        scrape, offset, world = trial.controller.scrape(), trial.controller.log.stat().st_size, _stub(trial)
        processes.forget_peak(trial.controller.pid)
        resident = processes.resident(trial.controller.pid) / 2**20
        return cls(trial, world, scrape, world.asked("mark")["requests"], offset, time.monotonic(), resident)

    def figures(self, name: str, watcher: Watcher, recovered: float | None) -> Storm:
        """Returns the figures until now; those of the steady window are missing (see `compared`)."""
        said, trial = self.world.asked("counts"), self.trial
        periods = (time.monotonic() - self.time) / trial.plan.period
        pid, after = trial.controller.pid, trial.controller.scrape()
        lists = said["requests"].get(METRICS_LIST, 0) - self.requests.get(METRICS_LIST, 0)
        return Storm(
            name=name,
            hpas=trial.population.hpas,
            period=trial.plan.period,
            recovered=recovered,
            late=measure.late_of(after.histogram(self.scrape, LATENESS)),
            gap=said["gap"],
            stretch=watcher.longest_stretch,
            stall=after.histogram(self.scrape, STALLS).largest(),
            busiest=said["busiest"],
            busiest_before=0,
            peak=processes.peak(pid) / 2**20,
            after=processes.resident(pid) / 2**20,
            before=self.resident,
            most=MEMORY * self.resident,
            lists=lists / trial.population.namespaces / periods,
            logged=logged(trial.controller.log, self.offset),
        )


def compared(storm: Storm, steady: Steady) -> Storm:
    """Returns the figures of a storm beside those of the steady window."""
    storm = msgspec.structs.replace(storm, busiest_before=steady.busiest)
    if storm.before:
        return storm
    return msgspec.structs.replace(storm, before=steady.resident, most=MEMORY * steady.resident)


def logged(log: Path, offset: int) -> dict[str, int]:
    """Returns the number of warnings and errors in the JSON lines of a log after an offset, by their text."""
    found: Counter[str] = Counter()
    with log.open("rb") as lines:
        lines.seek(offset)
        for line in lines:
            decoded: dict[str, Any] = json.loads(line)
            if decoded["level"] in _LOUD:
                found[f"{decoded['level']}: {decoded['event']}"] += 1
    return dict(found.most_common())


def _stub(trial: Trial) -> ChildWorld:
    assert isinstance(trial.world, ChildWorld)
    return trial.world
