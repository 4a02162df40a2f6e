"""The words of an outlook: times, amounts, lists of names, and thresholds."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

from hpad.api import amounts, duration
from hpad.api.quantity import parse_milli
from hpad.engine.outlook.readings import reading
from hpad.engine.outlook.types import ABOVE, AT_LEAST, AT_MOST, BELOW, Threshold
from hpad.engine.propose import Proposal
from hpad.engine.spec import UTILIZATION, CompiledMetric

_RELATIONS: Final = {ABOVE: "above", AT_LEAST: "at least", BELOW: "below", AT_MOST: "at most"}
_NAMES: Final = 3
_A_DAY: Final = timedelta(days=1)


def clock(at: datetime, now: datetime) -> str:
    """Returns a time in UTC: of day, or with the date where it is a day or more from `now`."""
    return f"{at:%H:%M:%SZ}" if abs(at - now) < _A_DAY else f"{at:%Y-%m-%dT%H:%M:%SZ}"


def span(seconds: float) -> str:
    """Returns a duration without zero parts: 5m, 1h30m, 90ms."""
    text = duration.write(timedelta(seconds=seconds))
    for zero in ("m0s", "h0m"):
        text = text[:-2] if text.endswith(zero) else text
    return text


def names(found: Sequence[str]) -> str:
    """Returns "a", "a and b", "a, b and c", or "a, b, c and 7 more"."""
    if len(found) > _NAMES + 1:
        found = (*found[:_NAMES], f"{len(found) - _NAMES} more")
    *first, final = found
    return f"{', '.join(first)} and {final}" if first else final


def replicas(count: int) -> str:
    """Returns "1 replica" or "2 replicas"."""
    return f"{count} replica{'' if count == 1 else 's'}"


def crossing(proposal: Proposal, threshold: Threshold, *, settled: bool) -> str:
    """Returns a threshold with the present reading: "cpu is above 55% (now 53%)".

    `settled`: the count has just changed, so the reading per pod or per replica is no longer the present one.
    """
    metric = proposal.metric
    text = f"{threshold.metric} is {_RELATIONS[threshold.relation]} {_amount(metric, threshold)}"
    notes = [*_share(metric, threshold), *_now(proposal, threshold, settled=settled)]
    return f"{text} ({'; '.join(notes)})" if notes else text


def _amount(metric: CompiledMetric, threshold: Threshold) -> str:
    if metric.kind == UTILIZATION:
        return f"{threshold.amount}%"
    text = amounts.exact(parse_milli(threshold.amount), metric.unit)
    return f"{text} per pod" if metric.of_pods else text


def _share(metric: CompiledMetric, threshold: Threshold) -> list[str]:
    """Returns the share of one replica in the total of a threshold."""
    if threshold.pods is None or threshold.pods < 2:
        return []
    share = Fraction(parse_milli(threshold.amount), threshold.pods)
    return [f"{amounts.rounded(share, 0, metric.unit)} per replica"]


def _now(proposal: Proposal, threshold: Threshold, *, settled: bool) -> list[str]:
    value, metric = reading(proposal), proposal.metric
    if value is None or (settled and metric.of_pods):
        return []
    if metric.kind == UTILIZATION:
        return [f"now {value}%"]
    return [f"now {amounts.rounded(value, parse_milli(threshold.amount), metric.unit)}"]
