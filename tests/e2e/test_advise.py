"""`hpad advise` on a week of HPAs in a real Prometheus, some with one planted fault each, the others good.

They have each kind of target and metric, of which hpad reads other series. HPAD_EFFORT=5, as in `make soak`, plays all
twenty of `support.advice_seeds`, with a fault of each kind; `tests/simulation/advice` has these without a Prometheus.
The past comes from a plain simulation of Kubernetes' HPA (tests/support/plain_hpa.py), which shares no code with hpad;
the same program checks the figures of the advice.
"""

import copy
import dataclasses
import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from support import advice_seeds, advice_seeds_server, environment
from support.advice_seeds_server import Week
from support.commands import called
from support.plain_hpa import PERIOD, Rules, Spec
from support.plain_world import Run, Workload, levels, run

from hpad.lab.servers.prometheus import ABSENT, PrometheusServer

pytestmark = [pytest.mark.prometheus, pytest.mark.skipif(not PrometheusServer.installed(), reason=ABSENT)]
SEED = 1
SCRAPE = 60
BRIEF = (
    *("checkout", "recommend", "profile", "ingest", "mailer"),
    *("images", "sessions-cache", "promo"),
)
CASES = [name for name in (*advice_seeds.FAULTY, *advice_seeds.GOOD) if environment.EFFORT > 1 or name in BRIEF]
FAULTY = [name for name in CASES if name in advice_seeds.FAULTY]
GOOD = [name for name in CASES if name in advice_seeds.GOOD]


@pytest.fixture(scope="module")
def week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Week]:
    yield from advice_seeds_server.serve(tmp_path_factory.mktemp("week"), SEED, CASES)


@pytest.fixture(scope="module")
def found(week: Week) -> dict[str, Any]:
    """What the command says of each HPA, by name."""
    status, output, errors = called("advise", *week.arguments, "-o", "json")
    assert status == 0, errors
    answer = json.loads(output)
    assert answer["unread"] == []
    return {item["name"]: item for item in answer["items"]}


def test_every_hpa_is_assessed(week: Week, found: dict[str, Any]) -> None:
    assert [case.name for case in week.cases.values()] == CASES
    assert sorted(found) == sorted(week.cases)


@pytest.mark.parametrize("name", CASES)
def test_facts_are_those_of_the_simulation(week: Week, found: dict[str, Any], name: str) -> None:
    """Prometheus sees the counts once a minute: each rescale is seen up to that much too late."""
    run, facts = week.runs[name], found[name]["facts"]
    case = week.cases[name]
    rescales = sum(before != after for before, after in zip(run.before, run.after, strict=True))
    slack = (rescales * SCRAPE + 3 * SCRAPE) / 3600
    assert facts["replicaHours"] == pytest.approx(run.replica_hours(), abs=slack, rel=0.001)
    assert facts["seconds"] == pytest.approx(len(run.after) * PERIOD, abs=3 * SCRAPE)
    assert facts["lowest"] >= min(run.before)
    assert facts["highest"] <= max(run.before)
    assert facts["rescales"] <= rescales
    failing = run.active.count(False) * PERIOD
    assert sum(facts["secondsFailing"].values()) == pytest.approx(failing, abs=20 * SCRAPE)
    low, high = case.bounds(0)
    at_maximum = sum(count >= high for count in run.before) * PERIOD if high > low else 0
    assert facts["secondsAtMax"] == pytest.approx(at_maximum, abs=slack * 3600 + SCRAPE)


def other(week: Week, name: str, **spec: Any) -> Run:
    """Runs an HPA over its load with other settings of its spec."""
    case = week.cases[name]
    manifest = copy.deepcopy(case.manifest)
    manifest["spec"].update(spec)
    return run(manifest, case.workload)


def overloaded(week: Week, name: str, result: Run) -> int:
    """Returns for how many seconds a pod used more CPU than it requests."""
    return result.seconds_above([week.cases[name].workload.requests()["cpu"]])


def _demand_beyond_the_maximum(week: Week, name: str) -> None:
    most = week.cases[name].bounds(0)[1]
    assert sum(wanted > most for wanted in week.runs[name].wanted) * PERIOD > 40 * 3600


def _lower_minimum(share: float) -> Callable[[Week, str], None]:
    def check(week: Week, name: str) -> None:
        assert other(week, name, minReplicas=2).replica_hours() < share * week.runs[name].replica_hours()

    return check


def _higher_goal(week: Week, name: str) -> None:
    higher = other(week, name, metrics=[advice_seeds.cpu(65)])
    assert higher.replica_hours() < 0.6 * week.runs[name].replica_hours()
    assert overloaded(week, name, higher) < 60 * 60


def _lower_goal(week: Week, name: str) -> None:
    lower = other(week, name, metrics=[advice_seeds.cpu(60)])
    assert overloaded(week, name, lower) < 0.5 * overloaded(week, name, week.runs[name])


def _longer_window(week: Week, name: str) -> None:
    longer, before = other(week, name, behavior={}), week.runs[name]
    assert _changes(longer) < 0.3 * _changes(before)
    assert overloaded(week, name, longer) < 0.5 * overloaded(week, name, before)


def _shorter_window(week: Week, name: str) -> None:
    shorter, before = other(week, name, behavior={}), week.runs[name]
    assert shorter.replica_hours() < 0.8 * before.replica_hours()
    assert overloaded(week, name, shorter) < overloaded(week, name, before) + 60 * 60


def _faster_growth(week: Week, name: str) -> None:
    faster = other(week, name, behavior={})
    assert overloaded(week, name, faster) < 0.3 * overloaded(week, name, week.runs[name])


def _never_active(week: Week, name: str) -> None:
    assert not any(week.runs[name].active)


def _inactive_for_hours(week: Week, name: str) -> None:
    assert week.runs[name].active.count(False) * PERIOD > 10 * 3600


def _shorter_queue(week: Week, name: str) -> None:
    assert sum(other(week, name, behavior={}).backlog) < 0.3 * sum(week.runs[name].backlog)


def _needs_its_headroom(week: Week, name: str) -> None:
    less_room = other(week, name, metrics=[advice_seeds.cpu(65)])
    assert overloaded(week, name, less_room) > 10 * overloaded(week, name, week.runs[name]) + 3600


GAINS: dict[str, Callable[[Week, str], None]] = {
    "checkout": _demand_beyond_the_maximum,
    "search": _longer_window,
    "catalog": _lower_minimum(0.4),
    "recommend": _higher_goal,
    "pricing": _lower_goal,
    "gateway": _longer_window,
    "reports": _shorter_window,
    "frontend": _faster_growth,
    "profile": _never_active,
    "ingest": _inactive_for_hours,
    "session": _lower_minimum(0.8),
    "mailer": _shorter_queue,
    "events": _needs_its_headroom,
}
"""What the plain simulation says of each fault, and of a good goal that looks low."""


@pytest.mark.parametrize("name", [name for name in GAINS if name in CASES])
def test_each_fault_is_one_by_the_plain_simulation(week: Week, name: str) -> None:
    """What an operator would gain by mending the setting in which the fault was planted, and lose at a good one."""
    GAINS[name](week, name)


def _changes(result: Run) -> int:
    return sum(before != after for before, after in zip(result.before, result.after, strict=True))


@pytest.mark.parametrize("name", FAULTY)
def test_the_planted_fault_is_named(week: Week, found: dict[str, Any], name: str) -> None:
    """Waves are short windows, and sawtooths at the same time: either name is true."""
    case = week.cases[name]
    told = {fault["fault"]: fault["severity"] for fault in found[name]["faults"]}
    named = {told[fault] for fault in (case.fault, *case.also) if fault in told}
    assert named & {"error", "warning"}, found[name]["faults"]


@pytest.mark.parametrize("name", GOOD)
def test_no_good_hpa_is_accused(found: dict[str, Any], name: str) -> None:
    accused = [fault["text"] for fault in found[name]["faults"] if fault["severity"] != "note"]
    assert accused == []


class Told(NamedTuple):
    """What the model says of settings over the whole week, both its parts."""

    hours: float
    overloaded: float


def told(advice: dict[str, Any], when: str) -> Told:
    """Adds up the figures `before` or `after`, of the days for choosing and the days for checking."""
    parts = [advice[part][when] for part in ("chosen", "checked")]
    return Told(sum(part["replicaHours"] for part in parts), sum(part["secondsOverloaded"] for part in parts))


def changed(manifest: dict[str, Any], changes: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns a manifest with the advised settings, whose paths are like spec.metrics[0].resource.target."""
    result = copy.deepcopy(manifest)
    for change in changes:
        *path, last = re.findall(r"[^.\[\]]+", change["path"])
        at: Any = result
        for part in path:
            at = at[int(part)] if part.isdigit() else at.setdefault(part, {})
        at[last] = change["after"]
    return result


def crossings(result: Run, level: float) -> int:
    """Returns how often CPU went above its level."""
    over = [readings[0].per_pod is not None and readings[0].per_pod > level for readings in result.status]
    return sum(after and not before for before, after in itertools.pairwise(over))


def peaks(result: Run) -> int:
    """Returns how often the count rose and then fell."""
    steps = [after - before for before, after in zip(result.before, result.after, strict=True) if after != before]
    return sum(first > 0 > second for first, second in itertools.pairwise(steps))


SAVING = ("catalog", "recommend", "reports", "frontend", "checkout")


@pytest.mark.parametrize("name", [name for name in SAVING if name in CASES])
def test_savings_are_those_of_the_plain_simulation(week: Week, found: dict[str, Any], name: str) -> None:
    """Before and after the advice, in replica-hours and in time above the level of overload, under the load as seen.

    Tolerances: the count at the top of each rise may be two replicas off, as pods that have just started have no rate
    yet, and stays so for the window of scale-downs; 1.5 % are for uneven pods, of which one may be without its pair.
    Each time above the level may seem a minute longer or shorter, with 5 % for the pods; 0.2 % of the week, which the
    advice takes for chance, may be made up.
    """
    case, advice = week.cases[name], found[name]["advice"]
    assert advice is not None
    requests, seen = case.workload.requests(), as_seen(case.workload)
    level = max(0.9 * requests["cpu"], levels(Spec.of(case.manifest, requests))[0])
    hours, held = {}, {}
    for when, manifest in (("before", case.manifest), ("after", changed(case.manifest, advice["changes"]))):
        plain = run(manifest, seen)
        hours[when], held[when] = plain.replica_hours(), _held(plain, Spec.of(manifest, requests).down)
        model = told(advice, when)
        assert model.hours == pytest.approx(hours[when], abs=2 * held[when] + 0.015 * hours[when]), when
        overload = plain.seconds_above([level])
        slack = 0.002 * PERIOD * len(seen.load) + 60 * crossings(plain, level) + 0.05 * overload
        assert model.overloaded == pytest.approx(overload, abs=slack), when
    slack = 0.02 + held["before"] / hours["before"]
    assert advice["saved"] == pytest.approx(1 - hours["after"] / hours["before"], abs=slack)


def as_seen(workload: Workload) -> Workload:
    """Returns the workload under the load as Prometheus shows it: a mean over two minutes, each minute.

    A window keeps the highest count of those that the noise of single seconds asks for. Of that noise a Prometheus has
    nothing, so that a seed with more of it would count as an error of the model.
    """
    total, step = list(itertools.accumulate(workload.load, initial=0.0)), SCRAPE // PERIOD
    means = [(total[at] - total[max(0, at - 2 * step)]) / min(at, 2 * step) for at in range(1, len(total))]
    return dataclasses.replace(workload, load=[means[at - at % step] for at in range(len(means))])


def _held(plain: Run, down: Rules) -> float:
    """Returns the replica-hours of one replica for the window and three minutes after each peak."""
    return peaks(plain) * (down.window + 180) / 3600
