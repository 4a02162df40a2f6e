"""Faults that leave a load above its goal: at the maximum, held back by policies, a slow queue, a goal without room."""

import math
from collections.abc import Iterator
from typing import Final

from hpad.api.behavior import DISABLED, MIN_CHANGE, PERCENT, DirectionRules
from hpad.engine.controls import Controls
from hpad.engine.spec import UTILIZATION
from hpad.engine.words import percent
from hpad.simulation.advice.assessment import FoundFault, HpaFault, Severity
from hpad.simulation.advice.finding.case import Case, Moments, amount
from hpad.simulation.advice.record import REACTION
from hpad.simulation.advice.words import days, rounded
from hpad.simulation.history import goal_of, is_total

MINUTE: Final = 60.0
HOUR: Final = 3600.0
LEAST: Final = 15 * MINUTE
"""Less in all is no reason to change anything, however short the past is."""
LONG: Final = HOUR
"""Above the goal for so long without a break is no peak that passes."""
STARVED: Final = 0.02
"""At the maximum and above the goal for half an hour a day: users notice."""
STARVED_MOSTLY: Final = 0.05
"""At the maximum and above the goal for more than an hour a day: the load is not served."""
FAR_ABOVE: Final = 1.3
"""A load of so many times what the count is for is not served, whatever room the goal leaves."""
FULL: Final = 0.05
"""At the maximum for so long, though within the goals, there is no room for more load."""
FULL_MOSTLY: Final = 0.5
"""Where metrics are not known: a count that is mostly at the maximum is kept there by the maximum."""
HELD: Final = 0.005
"""Kept from what the metrics asked for, for seven minutes a day: a slow ramp each morning."""
WAITING: Final = 0.01
"""A queue above its goal for a quarter of an hour a day, although nothing kept replicas from it."""
HOT: Final = 90.0
"""Percent of the request from which on a pod has no room left while more are started."""
HIGH_GOAL: Final = 85
"""From this goal on, in percent of the request, pods may stay HOT within the tolerance of 10 %."""
HOT_OFTEN: Final = 0.05
"""An hour a day and more without room in the pods, although replicas could be added."""
ABOVE_OFTEN: Final = 0.10
"""Above the goal for more than two hours a day although nothing holds the count back: each rise comes too fast."""


def at_maximum(case: Case) -> Iterator[FoundFault]:
    """Yields that the maximum keeps the load above its goal; as a note that there is no room left."""
    record, facts = case.record, case.facts
    present = [high in (None, case.spec.max_replicas) for high in record.highest]
    every = [each and reads for each, reads in zip(record.starved, case.reads, strict=True)]
    starved = [each and now for each, now in zip(every, present, strict=True)]
    full = [each and now for each, now in zip(record.at_maximum, present, strict=True)]
    seconds, longest = record.time(starved), record.longest(starved)
    if seconds >= max(LEAST, STARVED * facts.seconds) or longest >= LONG:
        yield _starved(case, starved, seconds, longest)
    elif record.time(full) >= max(LEAST, FULL * facts.seconds):
        yield from _full(case, full)
    elif (former := record.time([each and not now for each, now in zip(every, present, strict=True)])) >= LEAST:
        yield _formerly(case, former)


def _formerly(case: Case, seconds: float) -> FoundFault:
    """Returns the note on a maximum that its schedule lowers, or that has been changed since."""
    if any(window.high is not None for window in case.controls.schedule or ()):
        text = f"at a maximum below {case.spec.max_replicas} for {rounded(seconds)}, by its schedule"
    else:
        text = f"at its maximum of then for {rounded(seconds)} before that was changed to {case.spec.max_replicas}"
    return FoundFault(HpaFault.AT_MAXIMUM, Severity.NOTE, text, text)


def _starved(case: Case, starved: Moments, seconds: float, longest: float) -> FoundFault:
    asked, high = case.asked(starved) or 0, case.spec.max_replicas
    far = case.record.time(_far_above(case, starved)) >= LONG
    severe = far or case.share(seconds) >= STARVED_MOSTLY
    brief = f"at the maximum of {high} for {rounded(seconds)}; the metrics asked for up to {asked}"
    text = f"at the maximum of {high} for {rounded(seconds)} of {days(case.facts.seconds)}, {rounded(longest)} without"
    text += f" a break, with {case.values(starved)}: the metrics asked for up to {asked}"
    return FoundFault(HpaFault.AT_MAXIMUM, Severity.ERROR if severe else Severity.WARNING, text, brief)


def _full(case: Case, full: Moments) -> Iterator[FoundFault]:
    facts, high = case.facts, case.spec.max_replicas
    seconds, longest = case.record.time(full), case.record.longest(full)
    brief = f"at the maximum of {high} for {rounded(seconds)}, {percent(case.share(seconds))} of the time"
    if facts.above_goal is not None:
        text = f"{brief}, within its goals: there is no room for more load"
        yield FoundFault(HpaFault.AT_MAXIMUM, Severity.NOTE, text, brief)
        return
    text = f"{brief}, {rounded(longest)} without a break; what the metrics asked for is not known"
    mostly = case.share(seconds) >= FULL_MOSTLY
    yield FoundFault(HpaFault.AT_MAXIMUM, Severity.WARNING if mostly else Severity.NOTE, text, brief)


def too_slow(case: Case) -> Iterator[FoundFault]:
    """Yields that the count stays below what the metrics ask for: by a policy or window, or for a queue."""
    record = case.record
    held = record.held_back
    seconds, whole = record.time(held), record.with_reaction(held)
    if seconds < max(LEAST, min(HELD * case.facts.seconds, LONG)):
        return
    queue = sum(not of_pods for of_pods in case.of_pods(held)) * 2 > sum(held)
    queue = queue and seconds >= min(WAITING * case.facts.seconds, LONG)
    asked = case.asked(held) or 0
    severe = record.time(_far_above(case, held)) >= LONG
    severity = Severity.ERROR if severe else Severity.WARNING
    rule = _restraint(case, held)
    what = f"with {case.values(held)}: the metrics asked for up to {asked}, {case.spec.max_replicas} are allowed"
    if rule:
        brief = f"{rule} held scale-ups back for {rounded(record.time(whole))}"
        text = f"{brief}, longest {rounded(record.longest(whole))}, {what}"
        yield FoundFault(HpaFault.POLICY_SLOW, severity, text, brief)
    if queue:
        brief = f"the queue stayed above its goal for {rounded(record.time(whole))} below the maximum"
        text = f"{brief}, longest {rounded(record.longest(whole))}, {what}"
        # A policy is the cause, and the queue is what it does.
        yield FoundFault(HpaFault.QUEUE_SLOW, Severity.NOTE if rule else severity, text, brief)


def _far_above(case: Case, moments: Moments) -> list[bool]:
    """Returns where the load was FAR_ABOVE what the count is for."""
    loads = zip(case.record.load, case.record.counts, moments, strict=True)
    return [bool(each) and (load or 0.0) >= FAR_ABOVE * (count or 1) for load, count, each in loads]


def _restraint(case: Case, held: Moments) -> str:
    """Names what in the spec or its annotations kept scale-ups back in half of these moments or more, else ""."""
    return _of_behavior(case, held) or _of_annotations(case.controls)


def _of_annotations(controls: Controls) -> str:
    if controls.metric_policy is not None:
        return "the metric policy"
    return "" if controls.budget is None else f"the budget {controls.budget}"


def _of_behavior(case: Case, held: Moments) -> str:
    behavior = case.spec.behavior
    if behavior is None:
        return ""
    rules = behavior.up
    if rules.select == DISABLED:
        return "scaleUp is disabled and"
    pairs = zip(case.record.counts, case.record.asked, held, strict=True)
    limited = [_reach(rules, count) < (asked or 0) for count, asked, each in pairs if each]
    if sum(limited) * 2 >= len(limited):
        return f"the scale-up policies ({rules.limits})"
    if rules.window is not None and rules.window.total_seconds() > 0:
        return f"the scale-up window of {rounded(rules.window.total_seconds())}"
    return ""


def _reach(rules: DirectionRules, count: int) -> float:
    """Returns the count that the policies allow within the REACTION."""
    found = []
    for policy in rules.policies:
        times = math.ceil(REACTION / policy.period) if policy.period else 1
        if policy.type == PERCENT:
            found.append(math.ceil(count * (1 + policy.value / 100) ** min(times, 20)))
        else:
            found.append(count + policy.value * times)
    return (min if rules.select == MIN_CHANGE else max)(found, default=math.inf)


def goal_high(case: Case) -> Iterator[FoundFault]:
    """Yields a goal that leaves pods no room before more are there, although replicas could be added."""
    record = case.record
    moments = zip(case.reads, record.counts, record.highest, record.held_back, strict=True)
    room = [reads and not held and (high is None or count < high) for reads, count, high, held in moments]
    for address, column in record.ratios.items():
        metric = case.metrics[address]
        if is_total(metric):
            continue  # a backlog is above its goal until it is worked off; `too_slow` judges it
        level = max(HOT, goal_of(metric) * (1 + record.tolerated.up)) if metric.kind == UTILIZATION else 0.0
        if metric.kind == UTILIZATION and goal_of(metric) >= HIGH_GOAL:
            level = HOT
        level = level / goal_of(metric) or 1 + record.tolerated.up
        hot = [each and ratio is not None and ratio > level for each, ratio in zip(room, column, strict=True)]
        often = HOT_OFTEN if metric.kind == UTILIZATION else ABOVE_OFTEN
        if record.time(hot) >= max(LEAST, often * case.facts.seconds):
            yield _high(case, address, level, hot)
            return


def _high(case: Case, address: str, level: float, hot: Moments) -> FoundFault:
    metric, record, seconds = case.metrics[address], case.record, case.record.time(hot)
    goal, edge = amount(metric, 1), amount(metric, level)
    brief = f"the {address} goal of {goal} leaves no room: above {edge} for {rounded(seconds)}"
    text = f"{brief} of {days(case.facts.seconds)}, although replicas could be added"
    over = 0.0
    if metric.kind == UTILIZATION and level * goal_of(metric) < 100:
        whole = 100 / goal_of(metric)
        over = record.time(
            [each and (ratio or 0) > whole for each, ratio in zip(hot, record.ratios[address], strict=True)]
        )
        text += f", and above 100 % for {rounded(over)}"
    severity = Severity.ERROR if over >= HOT_OFTEN * case.facts.seconds else Severity.WARNING
    return FoundFault(HpaFault.GOAL_HIGH, severity, text, brief)
