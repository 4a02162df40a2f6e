"""Faults that cost replicas: a minimum above the load, a goal that leaves pods idle, a window that prevents nothing."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from hpad.api.hpa import SCALE_DOWN, SCALE_UP
from hpad.engine.spec import UTILIZATION
from hpad.engine.words import percent
from hpad.simulation.advice.assessment import FoundFault, HpaFault, Severity
from hpad.simulation.advice.finding.case import Case
from hpad.simulation.advice.model.leap import DOWN_POLICIES, DOWN_WINDOW, UP_POLICIES, UP_WINDOW
from hpad.simulation.advice.record import asked_for
from hpad.simulation.advice.words import amount_of_load, days, hours_only, rounded
from hpad.simulation.history import DAY, goal_of

AVAILABLE: Final = 2
"""Replicas that are kept for availability whatever the load; more than these may be idle."""
IDLE: Final = 0.4
"""The share of the replica-hours that the minimum keeps without work. A third of it is a usual night."""
IDLE_REPLICAS: Final = 2.0
"""Idle replicas while the count is at the minimum: one more than needed is a matter of taste."""
LOW_GOAL: Final = 40
"""A goal of this percent of the request or less keeps more than half of what is requested free."""
USED: Final = 50.0
"""Percent of the request that pods never exceeded: not even peaks took what the goal keeps free."""
USUAL: Final = 70
"""A goal that leaves room for a load that never doubles within minutes."""
SAVED: Final = 0.25
"""A higher goal has to save a quarter of the replica-hours to be worth a sentence."""
SAVED_REPLICAS: Final = 1.0
"""And more than one replica on average: three that are kept where two would do are a matter of taste."""
WINDOW: Final = 300.0
"""The default window of scale-downs in seconds, which a longer one is compared with."""
COSTS: Final = 0.02
"""The share of the replica-hours that a window costs and from which on it is worth a change."""
COSTS_LITTLE: Final = 0.005
"""The share from which on it is worth a note."""
LONG_WINDOW: Final = 900.0
"""A window of up to a quarter of an hour is usual: what it costs is a note."""
HOURS_PER_START: Final = 1.0
"""Replica-hours that may be spent to keep one pod from being stopped and started again."""
_CALM: Final = 0.995


def idle_minimum(case: Case) -> Iterator[FoundFault]:
    """Yields a minimum that keeps replicas without work for most of the time. Nights at a low minimum are normal."""
    record, low = case.record, case.spec.min_replicas
    if case.facts.measured < DAY or low <= AVAILABLE:
        return
    idle = time = 0.0
    moments = zip(record.lengths, record.counts, record.needed, record.at_minimum, record.failing, strict=True)
    for length, count, needed, floor, failing in moments:
        if floor and needed is not None and not failing:
            time += length
            idle += length * max(0, count - max(needed, AVAILABLE))
    share = idle / case.facts.replica_seconds if case.facts.replica_seconds else 0.0
    if share < IDLE or idle < IDLE_REPLICAS * time:
        return
    most = _quantile([count for count in record.needed if count is not None], 0.99)
    brief = f"the minimum of {low} keeps {percent(share)} of the replica-hours idle"
    text = f"{brief}: at the minimum for {percent(case.share(time))} of the time, where the load needed"
    text += f" {amount_of_load(_usual(case))} replicas on average; 99 % of the time {most} would do"
    yield FoundFault(HpaFault.IDLE_MINIMUM, Severity.WARNING, text, brief)


def _usual(case: Case) -> float:
    """Returns the mean load at the minimum, in replicas."""
    record = case.record
    loads = [load for load, floor in zip(record.need, record.at_minimum, strict=True) if floor and load is not None]
    return sum(loads) / len(loads) if loads else 0.0


def goal_low(case: Case) -> Iterator[FoundFault]:
    """Yields a low utilization whose free room was never used, where the goal and not the minimum sets the count."""
    record, facts = case.record, case.facts
    metrics = [(address, case.metrics[address]) for address in record.ratios]
    if facts.measured < DAY or len(metrics) != 1 or len(case.metrics) != 1:
        return
    ((address, metric),) = metrics
    goal = goal_of(metric)
    if metric.kind != UTILIZATION or goal > LOW_GOAL:
        return
    values = [ratio * goal for ratio in record.ratios[address] if ratio is not None]
    most, saved = _quantile(values, _CALM), _saved(case, goal / USUAL)
    replicas = saved * facts.replica_seconds / facts.seconds
    if most > USED or saved < SAVED or replicas <= SAVED_REPLICAS:
        return
    brief = f"the {metric.name} goal of {goal:.0f} % leaves most of what is requested unused"
    text = f"{brief}: pods were above {most:.0f} % of their request for less than 1 % of the time;"
    text += f" a goal of {USUAL} % would take {percent(saved)} fewer replica-hours"
    yield FoundFault(HpaFault.GOAL_LOW, Severity.WARNING, text, brief)


def _saved(case: Case, factor: float) -> float:
    """Returns the share of replica-seconds that the load would not take with a goal that is higher by 1 / factor."""
    record, saved = case.record, 0.0
    moments = zip(record.lengths, record.counts, record.load, record.lowest, strict=True)
    for length, count, load, low in moments:
        if load is not None:
            saved += length * max(0, count - max(math.ceil(load * factor), low or 0, 1))
    return saved / case.facts.replica_seconds if case.facts.replica_seconds else 0.0


class _Course(NamedTuple):
    """What a window comes to: replica-seconds, and pods started."""

    replica_seconds: float
    starts: int


def window_useless(case: Case) -> Iterator[FoundFault]:
    """Yields a long scale-down window that costs replicas and prevents hardly any start of a pod; and idle settings."""
    behavior, record = case.spec.behavior, case.record
    window = None if behavior is None or behavior.down.window is None else behavior.down.window.total_seconds()
    if window is not None and window > WINDOW and case.facts.measured >= DAY:
        long, short = _course(case, window), _course(case, WINDOW)
        costs, prevented = long.replica_seconds - short.replica_seconds, short.starts - long.starts
        share = costs / long.replica_seconds if long.replica_seconds else 0.0
        if share >= COSTS_LITTLE and costs / 3600 > HOURS_PER_START * prevented:
            brief = f"the scale-down window of {rounded(window)} costs {percent(share)} of the replica-hours"
            starts = "no start" if prevented <= 0 else "one start" if prevented == 1 else f"{prevented} starts"
            text = f"{brief} against the default of 5m, {hours_only(costs)} in {days(record.seconds)},"
            text += f" and spared {starts} of a pod"
            severity = Severity.WARNING if window > LONG_WINDOW and share >= COSTS else Severity.NOTE
            yield FoundFault(HpaFault.WINDOW_USELESS, severity, text, brief)
            return
    yield from _never_acted(case)


def _course(case: Case, window: float) -> _Course:
    """Follows the load with this window of scale-downs, one decision per moment, without policies."""
    record, steps = case.record, max(1, round(window / case.record.step)) if case.record.step else 1
    recent: deque[tuple[int, int]] = deque()
    count, seconds, starts = record.counts[0], 0.0, 0
    bounds = zip(record.lowest, record.highest, strict=True)
    for index, (length, load, (low, high)) in enumerate(zip(record.lengths, record.load, bounds, strict=True)):
        seconds += length * count
        if load is None:
            continue
        asked = asked_for(load, count, record.tolerated)
        asked = min(max(asked, low or 0), asked if high is None else high)
        while recent and recent[-1][1] <= asked:
            recent.pop()
        recent.append((index, asked))
        while recent[0][0] <= index - steps:
            recent.popleft()
        starts += max(0, asked - count)
        count = asked if asked >= count else min(count, recent[0][1])
    return _Course(seconds, starts)


def _never_acted(case: Case) -> Iterator[FoundFault]:
    """Yields as a note the windows and policies of the spec that changed nothing, by the model."""
    if case.now is None or not case.trust.suffices or case.facts.measured < DAY:
        return
    idle = [path for path in _settings(case) if not case.now.held.get(path)]
    if idle:
        text = f"{' and '.join(idle)} never changed a decision in {days(case.facts.seconds)}"
        yield FoundFault(HpaFault.WINDOW_USELESS, Severity.NOTE, text)


def _settings(case: Case) -> Iterator[str]:
    """Yields the paths of windows and policies that are not the defaults."""
    behavior, rules = case.spec.behavior, case.past.hpa.spec.behavior
    if behavior is None or rules is None:
        return
    if behavior.up.window:
        yield UP_WINDOW
    if rules.scale_up is not None and rules.scale_up.policies not in (None, SCALE_UP.policies):
        yield UP_POLICIES
    if behavior.down.window is not None and behavior.down.window.total_seconds() not in (0, WINDOW):
        yield DOWN_WINDOW
    if rules.scale_down is not None and rules.scale_down.policies not in (None, SCALE_DOWN.policies):
        yield DOWN_POLICIES


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)))] if ordered else 0
