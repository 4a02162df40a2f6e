"""Faults that keep an HPA from scaling at all: requests missing, metrics failing, equal bounds, goals below one pod."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from hpad.engine.annotations import PLAIN
from hpad.engine.spec import UTILIZATION
from hpad.engine.words import names, percent
from hpad.simulation.advice.assessment import FoundFault, HpaFault, Severity
from hpad.simulation.advice.demand import is_replaced
from hpad.simulation.advice.finding import shortage
from hpad.simulation.advice.finding.case import Case, amount
from hpad.simulation.advice.finding.shortage import FAR_ABOVE, MINUTE
from hpad.simulation.advice.record import SCALING_ACTIVE
from hpad.simulation.advice.words import reason_of, rounded

FAILED: Final = 30 * MINUTE
"""Metrics that fail for less in all are those of a restart or a new HPA."""
FAILED_SHORTLY: Final = 0.1
"""The same of a past of less than five hours, as a share of it; FAILED_AT_ONCE at the least."""
FAILED_AT_ONCE: Final = 10 * MINUTE
"""Shorter failures are passed over by the next period, unless there are many of them."""
FAILED_OFTEN: Final = 0.01
FAILED_MOSTLY: Final = 0.25
"""An HPA that cannot read its metrics for a quarter of the time does not do its job."""
OVERLOADED: Final = 0.02
"""An HPA with equal bounds does harm if its pods are above the goal for longer: half an hour a day."""
STUCK: Final = 2 * 3600.0
"""A load far above the goal for so long without a replica more is no slow start."""
_EXPLAINED: Final = frozenset({"FailedGetResourceMetric", "FailedGetContainerResourceMetric", SCALING_ACTIVE})
"""The reasons of a failure that a missing request explains."""


def paused(case: Case) -> Iterator[FoundFault]:
    """Yields that an annotation pauses the HPA; as a note if it has scaled in this time."""
    if case.past.is_paused:
        own = PLAIN.of(case.past.hpa).controls
        until = "" if own.paused_until is None else f" until {own.paused_until:%Y-%m-%d %H:%MZ}"
        text = f"paused{until} by an annotation of hpad, so that nothing scales it"
        severity = Severity.NOTE if case.facts.rescales else Severity.WARNING
        yield FoundFault(HpaFault.PAUSED, severity, text, text)


_OF_TARGET: Final = frozenset({"FailedGetScale", "AbleToScale", "InvalidSelector", "SelectorRequired"})


def requests_missing(case: Case) -> Iterator[FoundFault]:
    """Yields the utilization whose pods lack a request for it."""
    for address, containers in case.facts.unrequested.items():
        metric = case.metrics.get(address)
        if metric is None or metric.kind != UTILIZATION or not containers:
            continue
        several = len(containers) > 1
        who = f"container{'s' if several else ''} {names(containers)} {'have' if several else 'has'}"
        brief = f"{who} no {metric.name} request, which a utilization needs"
        text = f"{brief}: Kubernetes cannot tell the {metric.name} utilization of such a pod"
        if case.facts.unread:
            text += f"; metrics failed for {rounded(case.facts.unread)}"
        works = any(ratio is not None for ratio in case.record.ratios.get(address, ())) and not case.facts.unread
        yield FoundFault(HpaFault.REQUESTS_MISSING, Severity.WARNING if works else Severity.ERROR, text, brief)


def metric_failing(case: Case) -> Iterator[FoundFault]:
    """Yields the failure to read metrics that no missing request explains."""
    facts, record = case.facts, case.record
    if any(requests_missing(case)) and facts.failing.keys() <= _EXPLAINED:
        return
    often, least = case.share(facts.unread), min(FAILED, max(FAILED_AT_ONCE, FAILED_SHORTLY * facts.seconds))
    if facts.unread < least or (record.longest(record.failing) < FAILED_AT_ONCE and often < FAILED_OFTEN):
        return
    reason = max(facts.failing, key=lambda each: (facts.failing[each], each != SCALING_ACTIVE))
    lasting, several = record.failing[-1], len(case.metrics) > 1
    severity = Severity.ERROR if often >= FAILED_MOSTLY or lasting else Severity.WARNING
    what = "its target" if reason in _OF_TARGET else "all its metrics" if several else "its metric"
    brief = f"could not read {what} for {rounded(facts.unread)}, {percent(often)} of the time"
    begin, end = record.longest_span(record.failing)
    times = f"{rounded(end - begin)} from {_time(begin)} to {_time(end)}"
    now = "still fails at the end" if lasting else "works again at the end"
    text = f"{brief}, without a break for {times}, and {now} ({reason_of(reason)})"
    if not is_replaced(case.past.hpa):
        text += f": it did not scale{' down' if several else ''} meanwhile"
    yield FoundFault(HpaFault.METRIC_FAILING, severity, text, brief)


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%MZ}"


def values_missing(case: Case) -> Iterator[FoundFault]:
    """Yields as a note a metric without values while nothing is known of failures."""
    record = case.record
    if any(value is not None for column in case.past.failing.values() for value in column):
        return
    for address, column in record.ratios.items():
        gaps = [ratio is None and count > 0 for ratio, count in zip(column, record.counts, strict=True)]
        seconds = record.time(gaps)
        if record.longest(gaps) >= FAILED and case.share(seconds) < 1:
            brief = f"{address} has no values for {rounded(seconds)}, {percent(case.share(seconds))} of the time"
            text = f"{brief}; whether the HPA could read it then is not known"
            yield FoundFault(HpaFault.METRIC_FAILING, Severity.NOTE, text, brief)


def equal_bounds(case: Case) -> Iterator[FoundFault]:
    """Yields that the HPA never scales, with what its metrics asked for."""
    spec, facts = case.spec, case.facts
    if spec.min_replicas != spec.max_replicas:
        return
    brief = text = f"minReplicas and maxReplicas are both {spec.max_replicas}, so it never scales"
    above = facts.above_goal or 0.0
    asked = [count for count in case.record.asked if count is not None]
    if asked:
        wanted = f"{min(asked)} to {max(asked)}" if min(asked) < max(asked) else f"{max(asked)}"
        text += f"; its metrics asked for {wanted}"
    if above >= OVERLOADED * facts.seconds and above:
        text += f", and were above their goals for {rounded(above)}"
        yield FoundFault(HpaFault.MINIMUM_IS_MAXIMUM, Severity.ERROR, text, brief)
    else:
        yield FoundFault(HpaFault.MINIMUM_IS_MAXIMUM, Severity.WARNING, text, brief)


def not_scaling(case: Case) -> Iterator[FoundFault]:
    """Yields that it does not grow although its metrics ask for far more, and its spec allows it.

    Pods that are not ready, whose usage the controller leaves out, do not last for so long.
    """
    record = case.record
    held = record.held_back
    longest, reading = record.longest(held), case.leading(held)
    if longest < STUCK or reading is None or reading.ratio < FAR_ABOVE or any(shortage.too_slow(case)):
        return
    whole = record.with_reaction(held)
    asked, seconds = case.asked(held) or 0, rounded(record.time(whole))
    brief = f"did not grow for {seconds} although its metrics asked for up to {asked}"
    text = f"{brief}, longest {rounded(record.longest(whole))}, with {case.values(held)},"
    text += f" and {case.spec.max_replicas} are allowed: nothing in its spec holds it; its conditions and events may"
    text += " tell, or another client sets the count"
    yield FoundFault(HpaFault.NOT_SCALING, Severity.ERROR, text, brief)


def goal_below_one_pod(case: Case) -> Iterator[FoundFault]:
    """Yields metrics that are above their goals whatever the count; none of an HPA that is only starting to scale."""
    if case.facts.seconds < STUCK:
        return
    for address in case.facts.exceeded:
        metric, column = case.metrics[address], case.record.ratios[address]
        least = min(ratio for ratio in column if ratio is not None)
        counts = f"{case.facts.lowest} to {case.facts.highest}"
        with_any = f"with {counts} replicas alike" if case.facts.lowest < case.facts.highest else "all the time"
        brief = f"each pod exceeds the {address} goal of {amount(metric, 1)} however many there are"
        text = f"{brief}: {address} was never below {amount(metric, least)}, {with_any}, so it only ever grows"
        yield FoundFault(HpaFault.GOAL_BELOW_ONE_POD, Severity.ERROR, text, brief)
