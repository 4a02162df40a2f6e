"""A fleet with every kind of fault, as the page gets it: pasts of a week that are drawn, not simulated."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from support.assessments import WEEK, advice, assessment
from support.simulations import CPU

from hpad.api import hpa as v2
from hpad.api.hpa import from_builtins
from hpad.api.metadata import Key
from hpad.simulation.advice.assess import chart_of
from hpad.simulation.advice.assessment import (
    Assessment,
    FoundFault,
    HpaFault,
    Level,
    ModelTrust,
    SettingChange,
    Severity,
)
from hpad.simulation.advice.past import HpaPast, MetricReading
from hpad.simulation.history import Column, LoadHistory

BEGIN = 1_795_219_200.0
"""2026-11-21 00:00 UTC, a Saturday."""
STEP = 300.0
TIMES = [BEGIN + STEP * index for index in range(int(WEEK / STEP) + 1)]
CPU_GOAL = "spec.metrics[0].resource.target.averageUtilization"
MINIMUM, MAXIMUM = "spec.minReplicas", "spec.maxReplicas"
WINDOW = "spec.behavior.scaleDown.stabilizationWindowSeconds"

QUEUE: dict[str, Any] = {
    "type": "External",
    "external": {"metric": {"name": "queue_messages"}, "target": {"type": "AverageValue", "averageValue": "30"}},
}
MEMORY: dict[str, Any] = {
    "type": "Resource",
    "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "512Mi"}},
}
Load = Callable[[float], float]


def day(low: float, high: float) -> Load:
    """Returns a load with one hill per day, lower at the weekend."""

    def load(time: float) -> float:
        days = (time - BEGIN) / 86_400
        hill = max(0.0, math.sin((days % 1 - 0.25) * math.pi * 2)) ** 0.8
        return low + (high - low) * hill * (0.5 if days < 2 else 1.0)

    return load


class Drawn(NamedTuple):
    """What is drawn of one HPA: the counts over the load, the bounds, and how the advised counts differ."""

    load: Load
    low: int
    high: int
    goal: float = 50.0
    advised_goal: float = 50.0
    advised_low: int = 0
    metric: dict[str, Any] = CPU
    saw: int = 0
    gaps: Sequence[tuple[float, float]] = ()
    noise: float = 0.06


def counts(drawn: Drawn, goal: float, low: int, high: int, saw: int = 0) -> list[int]:
    """Returns a count per time: the load over the goal, held down for half an hour."""
    found: list[int] = []
    recent: list[int] = []
    for index, time in enumerate(TIMES):
        wanted = math.ceil(drawn.load(time) / goal) + (saw if index // 2 % 2 else 0)
        recent = [*recent[-6:], wanted]
        found.append(min(max(max(recent) if not saw else wanted, low), high))
    return found


def curve(values: Sequence[int]) -> list[tuple[float, int]]:
    changes = [(TIMES[0], values[0])]
    changes += [(TIMES[index], values[index]) for index in range(1, len(values)) if values[index] != values[index - 1]]
    return [*changes, (TIMES[-1], values[-1])]


def with_chart(each: Assessment, drawn: Drawn, *, advised: bool, seed: int = 1) -> Assessment:
    """Adds the chart to an assessment."""
    chance = random.Random(seed)
    recorded = counts(drawn, drawn.goal, drawn.low, drawn.high, drawn.saw)
    values = [
        drawn.load(time) / max(1, count) * chance.uniform(1 - drawn.noise, 1 + drawn.noise)
        for time, count in zip(TIMES, recorded, strict=True)
    ]
    if drawn.metric is MEMORY:
        values = [value * 2**20 for value in values]

    def known(column: Sequence[float]) -> Column:
        lost = [any(begin <= (time - BEGIN) / 86_400 < end for begin, end in drawn.gaps) for time in TIMES]
        return [None if gone else float(value) for value, gone in zip(column, lost, strict=True)]

    address = next(iter(each.readings))
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": each.key.name, "apiVersion": "apps/v1"},
        "minReplicas": drawn.low,
        "maxReplicas": drawn.high,
        "metrics": [drawn.metric],
    }
    past = HpaPast(
        hpa=v2.defaulted(from_builtins({"metadata": {"name": each.key.name, "namespace": "shop"}, "spec": spec})),
        load=LoadHistory(TIMES, {address: known(values), "replicas": known(recorded)}),
        desired=(),
        minimum=known([drawn.low] * len(TIMES)),
        maximum=known([drawn.high] * len(TIMES)),
    )
    model = [count + (chance.random() < 0.04) for count in recorded]
    better = counts(drawn, drawn.advised_goal, drawn.advised_low or drawn.low, drawn.high) if advised else []
    return msgspec.structs.replace(each, chart=chart_of(past, curve(model), curve(better) if better else ()))


class Member(NamedTuple):
    """One HPA of the fleet. `change`: the advised setting, before and after."""

    name: str
    drawn: Drawn
    verdict: str
    faults: Sequence[tuple[HpaFault, Severity, str]] = ()
    saved: float = 0.0
    change: SettingChange | None = None
    address: str = "cpu"
    facts: Mapping[str, Any] = {}
    trust: ModelTrust = ModelTrust(0.94, Level.GOOD, "the model gives 94 % of the recorded curve")


E, W, N = Severity.ERROR, Severity.WARNING, Severity.NOTE
HOUR = 3600.0
POOR = ModelTrust(0.41, Level.POOR, "the model gives 41 % of the recorded curve; something else sets the count")
FAIR = ModelTrust(0.83, Level.FAIR, "the model gives 83 % of the recorded curve, so take the figures as rough")
NONE = ModelTrust(None, Level.POOR, "no model: the metric has no values")
MEMBERS = (
    Member(
        "checkout",
        Drawn(day(150, 900), 2, 8),
        "at the maximum of 8 for 41h while cpu asked for up to 18",
        [(HpaFault.AT_MAXIMUM, E, "at the maximum of 8 for 41h, the longest time 8h20m; cpu asked for up to 18")],
        -130 * HOUR,
        SettingChange(MAXIMUM, 8, 20),
        facts={
            "at_maximum": 41 * HOUR,
            "longest_at_maximum": 8.3 * HOUR,
            "above_goal": 36 * HOUR,
            "starved": 35 * HOUR,
            "peak": 18,
        },
    ),
    Member(
        "search",
        Drawn(day(200, 700), 2, 30, saw=4),
        "flaps: 560 rescales, up and down again within five minutes; window of scale-downs 0 -> 300 s",
        [(HpaFault.FLAPPING, W, "560 rescales in turn up and down between 4 and 18, 80 a day")],
        20 * HOUR,
        SettingChange(WINDOW, 0, 300),
        facts={"rescales": 1120, "flaps": 560, "regretted": 541},
    ),
    Member(
        "catalog",
        Drawn(day(40, 120), 12, 30, advised_low=3),
        "minReplicas 12 -> 3: 71 % fewer replica-hours, above goal 0.2 % of the time instead of 0 %",
        [(HpaFault.IDLE_MINIMUM, W, "at the minimum of 12 all week, while cpu asked for 3 at most")],
        600 * HOUR,
        SettingChange(MINIMUM, 12, 3),
        facts={"idle": 1400 * HOUR, "lowest": 12, "highest": 12, "at_minimum": WEEK, "peak": 3},
    ),
    Member(
        "gateway",
        Drawn(day(100, 800), 2, 60, goal=25, advised_goal=55),
        "cpu goal 25 -> 55 %: 48 % fewer replica-hours, above goal 0.3 % of the time instead of 0.1 %",
        [(HpaFault.GOAL_LOW, W, "three quarters of what is paid for do nothing, at any time of the week")],
        410 * HOUR,
        SettingChange(CPU_GOAL, 25, 55),
    ),
    Member(
        "recommendations",
        Drawn(day(150, 500), 2, 30, goal=95, advised_goal=65),
        "cpu goal 95 -> 65 %: overloaded 1.2 % of the time instead of 14 %, for 38 % more replica-hours",
        [(HpaFault.GOAL_HIGH, E, "pods use their whole request for 24h before more are there")],
        -160 * HOUR,
        SettingChange(CPU_GOAL, 95, 65),
        facts={"above_goal": 24 * HOUR},
        trust=FAIR,
    ),
    Member(
        "orders-worker",
        Drawn(day(50, 700), 1, 40, goal=30, advised_goal=30, metric=QUEUE, noise=0.5),
        "queue_messages stays above its goal for 9h although 28 more replicas could be added",
        [(HpaFault.QUEUE_SLOW, E, "the queue stays above its goal for 9h with 12 of 40 replicas")],
        address="queue_messages",
        facts={"above_goal": 9 * HOUR},
    ),
    Member(
        "thumbnails",
        Drawn(day(100, 400), 2, 20, gaps=((2.2, 2.9), (4.4, 4.5), (5.5, 6.1))),
        "cpu could not be read for 33h (FailedGetResourceMetric)",
        [(HpaFault.METRIC_FAILING, E, "cpu could not be read for 33h, the longest time 16h48m")],
        facts={"failing": {"FailedGetResourceMetric": 33 * HOUR}, "unread": 33 * HOUR},
        trust=FAIR,
    ),
    Member(
        "profile",
        Drawn(day(100, 300), 3, 3),
        "minReplicas and maxReplicas are both 3, so it never scales",
        [(HpaFault.MINIMUM_IS_MAXIMUM, W, "minReplicas and maxReplicas are both 3, so it never scales")],
        facts={"lowest": 3, "highest": 3, "rescales": 0},
        trust=POOR,
    ),
    Member(
        "ranking",
        Drawn(day(300, 1000), 2, 4000, goal=0.5, noise=0.2),
        "up to 2,000 replicas; each pod exceeds the goal however many there are",
        [
            (HpaFault.GOAL_BELOW_ONE_POD, W, "one pod alone uses 2 % of its request, the goal is 0.5 %"),
            (HpaFault.WINDOW_USELESS, N, "the window of an hour for scale-downs never acted"),
            (HpaFault.POLICY_SLOW, W, "1 pod per minute delays the ramp of each morning by 20m"),
        ],
        facts={"lowest": 600, "highest": 2000, "replica_seconds": 1200 * WEEK},
    ),
    Member(
        "cache",
        Drawn(day(900, 4000), 2, 16, goal=512, metric=MEMORY, noise=0.02),
        "nothing is wrong",
        address="memory",
    ),
    Member("session", Drawn(day(100, 420), 2, 12), "nothing is wrong"),
    Member(
        "sleeper",
        Drawn(lambda _: 0.0, 0, 5),
        "no load all week",
        facts={"lowest": 0, "highest": 0, "replica_seconds": 0.0},
    ),
)


def member(each: Member, seed: int = 1) -> Assessment:
    """Returns the assessment of one HPA of the fleet."""
    found = assessment(each.name, readings=readings(each.address), **({"above_goal": 700.0} | each.facts))
    given = None
    if each.change is not None:
        given = advice(each.saved, each.verdict, [each.change])
    found = msgspec.structs.replace(
        found,
        verdict=each.verdict,
        findings=tuple(FoundFault(*fault) for fault in each.faults),
        advice=given,
        trust=each.trust,
        notes=(
            f"{each.address}: its total over the recorded replicas is the load, which the simulated ones share evenly",
        ),
    )
    return with_chart(found, each.drawn, advised=given is not None, seed=seed)


def readings(address: str) -> dict[str, MetricReading]:
    pods = 'namespace="shop",pod=~"web-[0-9a-f]+-[0-9a-z]+",container!=""'
    query = f"sum(rate(container_cpu_usage_seconds_total{{{pods}}}[2m]))"
    return {address: MetricReading("cAdvisor and the requests", query)}


def unread() -> Assessment:
    """Returns an HPA of which nothing is known."""
    problem = MetricReading("", "", "no series kube_horizontalpodautoscaler_status_target_metric")
    found = assessment("ghost", seconds=0.0, replica_seconds=0.0, readings={"requests": problem})
    return msgspec.structs.replace(found, verdict="not readable: nothing is known of its past", trust=NONE)


def fleet() -> list[Assessment]:
    """Returns all of them."""
    return [*(member(each) for each in MEMBERS), unread()]


def many(count: int) -> list[Assessment]:
    """Returns a fleet of this size, of the same kinds in many namespaces."""
    return [
        msgspec.structs.replace(
            member(MEMBERS[index % len(MEMBERS)], index), key=Key(f"team-{index % 23}", f"web-{index}")
        )
        for index in range(count)
    ]
