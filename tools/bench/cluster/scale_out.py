"""Scale-out: several instances of hpad share the HPAs (`hpad run --shards`); what do all of them cost together?"""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

import msgspec

from tools.bench.cluster import controllers, measure, pace, processes, worlds
from tools.bench.cluster.controllers import HPAD, LATENESS, OWNED, RECONCILES, Controller, Program
from tools.bench.cluster.measure import METRICS_LIST, Late, Plan, Trial
from tools.bench.cluster.population import Population
from tools.bench.cluster.report import aligned, ms, number
from tools.bench.cluster.scraped import Histogram, Scrape
from tools.bench.cluster.worlds import World

FLAGS: Final = ("--shards", "--store", "cluster")
HELD: Final = 1.05
"""A period counts as held if it is at most this many times the wanted one."""
_POLL_SECONDS: Final = 0.5
_HEADS: Final = (
    ("HPAs", ""), ("replicas", ""), ("rec/s", ""), ("period", "s"), ("held", ""), ("late p50", "ms"),
    ("late p99", "ms"), ("late max", "ms"), ("CPU-s per 1,000", "all replicas"), ("CPU-s per 1,000", "server"),
    ("requests", "each"), ("lists", "ns, period"), ("resident", "MiB, of each"), ("HPAs of each", ""),
    ("first round", "s"), ("pace", "ms"),
)  # fmt: skip


class Share(msgspec.Struct, frozen=True):
    """One replica: the HPAs that it owned in the end, CPU-seconds per 1,000 of its reconciles, and MiB of memory."""

    owned: int
    cpu: float
    resident: float


class Shared(msgspec.Struct, frozen=True):
    """What was measured of a group of replicas over a steady window. Times in seconds; see Figures.

    `cpu`: CPU-seconds of all replicas per 1,000 reconciles of all; `server`: those of the server. `first_round`: from
    the start of the first replica until each HPA had a status. `pace`: see Figures.
    """

    hpas: int
    replicas: int
    wanted_period: float
    rate: float
    period: float | None
    late: Late
    cpu: float
    server: float
    requests: dict[str, float]
    lists: float
    shares: list[Share]
    first_round: float | None = None
    pace: float = 0.0

    @property
    def held(self) -> bool:
        """Whether the HPAs were reconciled once per period."""
        return self.period is not None and self.period <= HELD * self.wanted_period


class Site(NamedTuple):
    """What is measured in a world of its own for each number of replicas."""

    population: Population
    plan: Plan
    program: Program
    folder: Path
    tls: bool


class _Moment(NamedTuple):
    time: float
    cpu: list[float]
    server: float
    requests: dict[str, float]

    @classmethod
    def now(cls, world: World, group: Sequence[Controller]) -> "_Moment":
        cpu = [processes.cpu_seconds(each.pid) for each in group]
        server = sum(map(processes.cpu_seconds, world.processes.values()))
        return cls(time.monotonic(), cpu, server, dict(world.counts()))


def measured(site: Site, replicas: int) -> Shared:
    """Starts the replicas, waits until they share all HPAs, and measures a steady window."""
    folder = site.folder / f"replicas-{replicas}"
    folder.mkdir()
    program = site.program._replace(flags=(*FLAGS, *site.program.flags))
    with ExitStack() as stack:
        world = stack.enter_context(
            worlds.started("stub", folder, site.population, period=site.plan.period, tls=site.tls)
        )
        group = []
        for number_of in range(replicas):
            own = folder / str(number_of)
            own.mkdir()
            group.append(stack.enter_context(controllers.started(HPAD, own, world, program)))
        trial = Trial("stub", world, group[0], site.population, site.plan)
        first_round = measure.wait_for_first_round(trial)
        _wait_until_shared(site, group)
        world.mark()
        measure.wait_for_first_round(trial)  # HPAs that another replica has taken over wait for a lease duration
        time.sleep(site.plan.warm)
        paces = [pace.measured(site.program.python)]
        before = [each.scrape() for each in group]
        begin = _Moment.now(world, group)
        time.sleep(site.plan.window)
        end = _Moment.now(world, group)
        after = [each.scrape() for each in group]
        paces.append(pace.measured(site.program.python))
        found = _figures(site, group, (begin, end), list(zip(before, after, strict=True)))
        return msgspec.structs.replace(found, first_round=first_round, pace=fmean(paces))


def _wait_until_shared(site: Site, group: Sequence[Controller]) -> None:
    """Waits until each replica owns HPAs, and all together own all. Raises RuntimeError if it takes too long."""
    deadline = time.monotonic() + site.plan.patience
    while True:
        owned = [_owned(each.scrape()) for each in group]
        if all(owned) and sum(owned) == site.population.hpas:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the replicas do not share the HPAs: they own {owned} of {site.population.hpas}")
        time.sleep(_POLL_SECONDS)


def _owned(scrape: Scrape) -> int:
    return int(sum(scrape.samples.get(OWNED, {}).values()))


def _figures(
    site: Site,
    group: Sequence[Controller],
    moments: tuple[_Moment, _Moment],
    scrapes: Sequence[tuple[Scrape, Scrape]],
) -> Shared:
    begin, end = moments
    seconds = end.time - begin.time
    rates = [sum(after.increase(before, RECONCILES).values()) / (after.time - before.time) for before, after in scrapes]
    spent = [after - before for before, after in zip(begin.cpu, end.cpu, strict=True)]
    rate = sum(rates)
    each = 1 / (rate * seconds) if rate else 0.0
    grown = {name: count - begin.requests.get(name, 0) for name, count in end.requests.items()}
    shares = [
        Share(
            _owned(after),
            1000 * used / (own * seconds) if own else 0.0,
            processes.resident(controller.pid) / 2**20,
        )
        for controller, used, own, (_, after) in zip(group, spent, rates, scrapes, strict=True)
    ]
    return Shared(
        hpas=site.population.hpas,
        replicas=len(group),
        wanted_period=site.plan.period,
        rate=rate,
        period=site.population.hpas / rate if rate else None,
        late=measure.late_of(Histogram.merged(after.histogram(before, LATENESS) for before, after in scrapes)),
        cpu=1000 * each * sum(spent),
        server=1000 * each * (end.server - begin.server),
        requests={name: count * each for name, count in sorted(grown.items(), key=lambda item: -item[1]) if count},
        lists=grown.get(METRICS_LIST, 0) / site.population.namespaces / (seconds / site.plan.period),
        shares=shares,
    )


def table(found: Sequence[Shared]) -> str:
    """Returns aligned rows, one for each number of replicas, and their requests below."""
    details = [
        f"{each.replicas} replicas at {each.hpas:,}: "
        + ", ".join(f"{name} {count:.3f}" for name, count in each.requests.items())
        for each in found
    ]
    lines = aligned(_HEADS, [_row(each) for each in found])
    return "\n".join(["scale-out: replicas that share the HPAs", "", *lines, "", *details])


def _row(each: Shared) -> list[str]:
    asked = sum(count for name, count in each.requests.items() if not name.startswith("watch "))
    return [
        f"{each.hpas:,}", f"{each.replicas}", f"{each.rate:.1f}", number(each.period, 2), "yes" if each.held else "NO",
        ms(each.late.p50), ms(each.late.p99), ms(each.late.most), f"{each.cpu:.2f}", f"{each.server:.2f}",
        f"{asked:.2f}", f"{each.lists:.2f}", " ".join(f"{share.resident:.0f}" for share in each.shares),
        " ".join(str(share.owned) for share in each.shares), number(each.first_round, 1), ms(each.pace),
    ]  # fmt: skip
