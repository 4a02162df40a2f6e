"""HPAs whose faults are known, each fault in two quite different ways, and good HPAs of different kinds, over days.

All but the painted ones are lived by the plain controller of `support.advice_pasts`.
"""

import functools
import math
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from support.advice_pasts import DAY, DAYS, HOUR, MINUTE, bursts, daily, flat, lived, noisy, painted, spec
from support.engine import container, external, object_metric, pods_metric, resource

from hpad.engine.view import Tunables
from hpad.simulation.advice.assess import assess
from hpad.simulation.advice.assessment import AdviceOptions, Assessment, HpaFault
from hpad.simulation.advice.past import HpaPast

WEEK: Final = 7 * 1440 + 1
"""Minutes of a week."""
_PAST: Final = DAYS * 1440 + 1
"""Minutes of a past."""
CPU: Final = resource("cpu", averageUtilization=60)
MEMORY: Final = resource("memory", averageUtilization=80)
QUEUE: Final = external("queue_messages", averageValue="30")
AGE: Final = external("queue_head_age_seconds", value="60")


def _down(window: int, **more: Any) -> dict[str, Any]:
    return {"scaleDown": {"stabilizationWindowSeconds": window, **more}}


def _one_up(seconds: int) -> dict[str, Any]:
    return {"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": seconds}]}}


def weekly(least: float, most: float) -> Callable[[float], float]:
    """Returns a daily load that stays at its least on Saturday and Sunday."""
    day = daily(least, most)
    return lambda at: day(at) if at % (7 * DAY) < 5 * DAY else least


def morning(night: float, day: float, length: float) -> Callable[[float], float]:
    """Returns a load that rises from 08:00 within `length` seconds, stays, and falls from 18:00 within four hours."""

    def load(at: float) -> float:
        hour = at % DAY
        up = min(max((hour - 8 * HOUR) / length, 0.0), 1.0)
        return night + (day - night) * (up - min(max((hour - 18 * HOUR) / (4 * HOUR), 0.0), 1.0))

    return load


def at_maximum_each_afternoon() -> HpaPast:
    return lived(spec(CPU, low=2, high=8), noisy(daily(100, 800), 0.05))


def at_maximum_since_a_release() -> HpaPast:
    """Requests per second doubled on Wednesday, and the maximum did not."""
    load = daily(300, 900)
    return lived(spec(pods_metric("requests", "100"), low=3, high=10), lambda at: load(at) * (2 if at > 2 * DAY else 1))


def sawtooth_that_the_load_does_not_ask_for() -> HpaPast:
    """Starting pods burn CPU, so that each scale-up asks for the next one; the load stays."""
    counts = ([4] * 7 + [9] * 7) * (_PAST // 14) + [4] * (_PAST % 14)
    values = [({4: 88.0, 9: 38.0}[count]) for count in counts]
    return painted(spec(CPU, low=2, high=20), counts, {"cpu": values})


def sawtooth_on_noise() -> HpaPast:
    """Noise of a few slow requests, taken for load by an HPA that forgets at once."""
    load = noisy(flat(800), 0.3)
    return lived(spec(pods_metric("busy", "100"), low=2, high=30, behavior=_down(0)), load)


def idle_minimum_all_week() -> HpaPast:
    return lived(spec(CPU, low=10, high=20), noisy(daily(20, 110), 0.05))


def idle_minimum_since_an_incident() -> HpaPast:
    """The minimum was raised to 12 on the second day; there is work for three."""
    maximum, load = 40, noisy(weekly(60, 190), 0.1)
    low = [2.0] * 1440 + [12.0] * (_PAST - 1440)
    before = lived(spec(CPU, low=2, high=maximum), load)
    counts = [max(count or 0.0, floor) for count, floor in zip(before.load.columns["replicas"], low, strict=True)]
    values = [load(index * MINUTE) / count for index, count in enumerate(counts)]
    return painted(spec(CPU, low=12, high=maximum), counts, {"cpu": values}, minimum=low)


def goal_low_by_day() -> HpaPast:
    return lived(spec(resource("cpu", averageUtilization=25), low=2, high=40), noisy(daily(60, 500), 0.05))


def goal_low_of_a_container() -> HpaPast:
    metric = container("cpu", "app", averageUtilization=20)
    return lived(spec(metric, low=3, high=100), noisy(weekly(200, 900), 0.08), days=7)


def goal_high_at_the_request() -> HpaPast:
    return lived(spec(resource("cpu", averageUtilization=95), low=2, high=40), noisy(daily(200, 1500), 0.04))


def goal_high_of_memory() -> HpaPast:
    return lived(spec(resource("memory", averageUtilization=92), low=2, high=40), noisy(daily(400, 1600), 0.03))


def window_short_between_jobs() -> HpaPast:
    """Jobs for two minutes, six minutes apart; the HPA forgets them at once."""
    return lived(spec(CPU, low=2, high=20, behavior=_down(30)), noisy(bursts(110, 700, 8 * MINUTE, 3 * MINUTE), 0.05))


def window_short_in_dips() -> HpaPast:
    """Once in half an hour the load is away for five minutes."""
    load = bursts(900, 200, 30 * MINUTE, 5 * MINUTE)
    return lived(spec(CPU, low=2, high=30, behavior=_down(60)), noisy(load, 0.03))


def window_useless_of_an_hour() -> HpaPast:
    return lived(spec(CPU, low=2, high=30, behavior=_down(3600)), noisy(daily(100, 1200), 0.03))


def window_useless_after_rare_peaks() -> HpaPast:
    load = bursts(200, 1200, 4 * HOUR, 10 * MINUTE)
    return lived(spec(QUEUE, low=2, high=60, behavior=_down(1800)), load)


def policy_slow_in_the_morning() -> HpaPast:
    return lived(spec(CPU, low=2, high=30, behavior=_one_up(600)), noisy(morning(110, 1200, 30 * MINUTE), 0.03))


def policy_slow_by_a_window() -> HpaPast:
    rules = {"scaleUp": {"stabilizationWindowSeconds": 900}}
    load = bursts(200, 900, 3 * HOUR, 80 * MINUTE)
    return lived(spec(pods_metric("requests", "100"), low=2, high=30, behavior=rules), noisy(load, 0.03))


def requests_missing_in_a_sidecar() -> HpaPast:
    failing = {"FailedGetResourceMetric": 1.0}
    return painted(spec(CPU, low=2, high=10), [2] * _PAST, failing=failing, unrequested={"cpu": ("proxy",)})


def requests_missing_since_a_release() -> HpaPast:
    load = noisy(daily(100, 500), 0.05)
    before = lived(spec(CPU, low=2, high=20), load)
    cut = 3 * 1440
    counts = [*before.load.columns["replicas"][:cut], *[6.0] * (_PAST - cut)]
    values = [*before.load.columns["cpu"][:cut], *[None] * (_PAST - cut)]
    failing = {"ScalingActive": [float(index >= cut) for index in range(_PAST)]}
    unrequested = {"cpu": ("app", "proxy")}
    return painted(spec(CPU, low=2, high=20), counts, {"cpu": values}, failing=failing, unrequested=unrequested)


def metric_failing_at_night() -> HpaPast:
    """The metrics of the requests are gone for three hours each night."""
    failing = {"FailedGetPodsMetric": [float(index % 1440 < 180) for index in range(_PAST)]}
    return lived(spec(pods_metric("requests", "100"), low=2, high=20), daily(200, 900), failing=failing)


def metric_failing_since_yesterday() -> HpaPast:
    cut = 3 * 1440
    counts = [5.0] * _PAST
    values = [150.0 if index < cut else None for index in range(_PAST)]
    failing = {"FailedGetExternalMetric": [float(index >= cut) for index in range(_PAST)]}
    return painted(spec(QUEUE, low=1, high=20), counts, {"queue_messages": values}, failing=failing)


def equal_bounds_with_a_daily_load() -> HpaPast:
    return lived(spec(CPU, low=6, high=6), noisy(daily(60, 500), 0.05), first=6)


def equal_bounds_of_a_flat_load() -> HpaPast:
    return lived(spec(CPU, MEMORY, low=3, high=3), flat(100), flat(150), first=3)


def queue_slow_by_its_age() -> HpaPast:
    """The head of the queue is old for hours of each day, and the count does not follow it."""
    ages = [400.0 if 600 <= index % 1440 < 900 else 20.0 for index in range(_PAST)]
    return painted(spec(AGE, low=1, high=20), 4, {"queue_head_age_seconds": ages})


def queue_slow_by_its_length() -> HpaPast:
    """A backlog of 45 to 60 messages for each of five workers, where the goal is 30 and the maximum 25."""
    messages = [5 * (52.0 + 8 * math.sin(index / 90)) for index in range(_PAST)]
    metric = object_metric("waiting", averageValue="30")
    return painted(spec(metric, low=2, high=25), 5, {"waiting": messages})


def below_one_pod_of_memory() -> HpaPast:
    """An idle pod needs 900Mi, and the goal is 700Mi: it grew to its maximum and stayed."""
    chance = random.Random(1)
    values = [(900 + 20 * chance.random()) * 2**20 for _ in range(_PAST)]
    return painted(spec(resource("memory", averageValue="700Mi"), low=2, high=12), 12, {"memory": values})


def below_one_pod_of_a_value() -> HpaPast:
    """A latency that does not fall with the count, which was limited by two maxima."""
    half = _PAST // 2
    chance = random.Random(2)
    counts = [float(min(2 + index // 5, 8 if index < half else 16)) for index in range(_PAST)]
    values = [250 + 40 * chance.random() for _ in range(_PAST)]
    maximum = [8.0 if index < half else 16.0 for index in range(_PAST)]
    metric = object_metric("latency_ms", value="200")
    return painted(spec(metric, low=2, high=16), counts, {"latency_ms": values}, maximum=maximum)


FAULTY: Final[Mapping[Callable[[], HpaPast], HpaFault]] = {
    at_maximum_each_afternoon: HpaFault.AT_MAXIMUM,
    at_maximum_since_a_release: HpaFault.AT_MAXIMUM,
    sawtooth_that_the_load_does_not_ask_for: HpaFault.FLAPPING,
    sawtooth_on_noise: HpaFault.FLAPPING,
    idle_minimum_all_week: HpaFault.IDLE_MINIMUM,
    idle_minimum_since_an_incident: HpaFault.IDLE_MINIMUM,
    goal_low_by_day: HpaFault.GOAL_LOW,
    goal_low_of_a_container: HpaFault.GOAL_LOW,
    goal_high_at_the_request: HpaFault.GOAL_HIGH,
    goal_high_of_memory: HpaFault.GOAL_HIGH,
    window_short_between_jobs: HpaFault.WINDOW_SHORT,
    window_short_in_dips: HpaFault.WINDOW_SHORT,
    window_useless_of_an_hour: HpaFault.WINDOW_USELESS,
    window_useless_after_rare_peaks: HpaFault.WINDOW_USELESS,
    policy_slow_in_the_morning: HpaFault.POLICY_SLOW,
    policy_slow_by_a_window: HpaFault.POLICY_SLOW,
    requests_missing_in_a_sidecar: HpaFault.REQUESTS_MISSING,
    requests_missing_since_a_release: HpaFault.REQUESTS_MISSING,
    metric_failing_at_night: HpaFault.METRIC_FAILING,
    metric_failing_since_yesterday: HpaFault.METRIC_FAILING,
    equal_bounds_with_a_daily_load: HpaFault.MINIMUM_IS_MAXIMUM,
    equal_bounds_of_a_flat_load: HpaFault.MINIMUM_IS_MAXIMUM,
    queue_slow_by_its_age: HpaFault.QUEUE_SLOW,
    queue_slow_by_its_length: HpaFault.QUEUE_SLOW,
    below_one_pod_of_memory: HpaFault.GOAL_BELOW_ONE_POD,
    below_one_pod_of_a_value: HpaFault.GOAL_BELOW_ONE_POD,
}


def flat_load() -> HpaPast:
    return lived(spec(CPU, low=2, high=10), noisy(flat(230), 0.05))


def daily_load() -> HpaPast:
    return lived(spec(CPU, low=3, high=20), noisy(daily(90, 900), 0.06))


def weekly_load() -> HpaPast:
    return lived(spec(pods_metric("requests", "100"), low=2, high=40), noisy(weekly(150, 2400), 0.05), days=7)


def spikes_with_headroom() -> HpaPast:
    """Each hour a minute's work for twice the load, for which a goal of 40 % leaves room."""
    metric = resource("cpu", averageUtilization=40)
    return lived(spec(metric, low=3, high=20), noisy(bursts(180, 360, HOUR, 4 * MINUTE), 0.05))


def tiny() -> HpaPast:
    return lived(spec(CPU, low=1, high=3), noisy(flat(4), 0.5))


def queue_with_zero() -> HpaPast:
    """A queue that KEDA takes to zero: the HPA is inactive then."""
    load = bursts(0, 240, 3 * HOUR, 25 * MINUTE)
    past = lived(spec(QUEUE, low=0, high=20), load, first=0)
    inactive = [float(count == 0) for count in past.load.columns["replicas"]]
    return lived(spec(QUEUE, low=0, high=20), load, first=0, failing={"ScalingActive": inactive})


def batch_at_night() -> HpaPast:
    """From 01:00 to 04:00 the maximum is used, and the metric is at its goal."""

    def load(at: float) -> float:
        return 590.0 if HOUR <= at % DAY < 4 * HOUR else 5.0

    return lived(spec(CPU, low=1, high=10), noisy(load, 0.03))


def stateful_set() -> HpaPast:
    """Three for the quorum; it scales down slowly, on purpose."""
    rules = _down(1800, policies=[{"type": "Pods", "value": 1, "periodSeconds": 1800}])
    return lived(spec(CPU, low=3, high=6, kind="StatefulSet", behavior=rules), noisy(daily(120, 300), 0.05))


def memory_and_cpu() -> HpaPast:
    """Memory stays at 55 % of the request in each pod, CPU leads."""
    return lived(spec(CPU, MEMORY, low=2, high=15), noisy(daily(80, 600), 0.05), noisy(flat(55), 0.05), own=(1,))


def created_two_days_ago() -> HpaPast:
    failing = {"FailedGetResourceMetric": [float(index < 3) for index in range(2881)]}
    return lived(spec(CPU, low=2, high=12), noisy(daily(70, 450), 0.05), days=2, failing=failing)


def short_peak_at_the_maximum() -> HpaPast:
    """For twenty minutes a day at the maximum, within the tolerance."""

    def load(at: float) -> float:
        return 630.0 if 12 * HOUR <= at % DAY < 12 * HOUR + 20 * MINUTE else 300.0

    return lived(spec(CPU, low=3, high=10), noisy(load, 0.02))


def bridged_gaps() -> HpaPast:
    """A window of half an hour bridges the gaps between jobs, twenty minutes each."""
    return lived(spec(CPU, low=2, high=20, behavior=_down(1800)), bursts(110, 700, 20 * MINUTE, 8 * MINUTE))


GOOD: Final[tuple[Callable[[], HpaPast], ...]] = (
    flat_load,
    daily_load,
    weekly_load,
    spikes_with_headroom,
    tiny,
    queue_with_zero,
    batch_at_night,
    stateful_set,
    memory_and_cpu,
    created_two_days_ago,
    short_peak_at_the_maximum,
    bridged_gaps,
)


@functools.cache
def past_of(make: Callable[[], HpaPast]) -> HpaPast:
    """Returns the past of a member of the cast, made once."""
    return make()


@functools.cache
def assessed(make: Callable[[], HpaPast]) -> Assessment:
    """Returns the assessment of a member of the cast with the default options, made once."""
    return assess(past_of(make), AdviceOptions(Tunables()))
