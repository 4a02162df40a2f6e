"""Metrics read pod by pod: Resource, ContainerResource and Pods."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from hpad.engine.measure.group import Groups, group
from hpad.engine.measure.requests import requests
from hpad.engine.measure.usage import Unmeasurable, Usage
from hpad.model.fixedwidth import MAX_INT64, int32, int64, quotient, truncated
from hpad.model.goal import UTILIZATION, Goal
from hpad.model.pod import Pod
from hpad.model.sample import PodSample
from hpad.model.tunables import Tunables


def per_pod(goal: Goal, sample: PodSample, pods: Sequence[Pod], now: datetime, tunables: Tunables) -> Usage:
    """Usage of the pods that count; raises Unmeasurable where none does."""
    if not pods:
        raise Unmeasurable("no pods returned by selector while calculating replica count")
    groups = group(pods, sample.values, goal.is_cpu, now, tunables)
    if not groups.counted:
        raise Unmeasurable("did not receive metrics for targeted pods (pods might be unready)")
    if goal.kind == UTILIZATION:
        return _utilization(goal, groups, requests(pods, goal.name, goal.query.container))
    return _average(goal, groups)


def _utilization(goal: Goal, groups: Groups, asked: Mapping[str, int]) -> Usage:
    wanted, counted = goal.amount, groups.counted
    percent, value = _percent(counted, asked)
    ratio = quotient(percent, wanted)
    share = max(100, wanted)
    guess = {name: truncated(asked[name] * share, 100) for name in groups.missing} if ratio < 1.0 else {}
    cautious = _guessed(groups, ratio, guess)
    if cautious is None:
        return _usage(groups, ratio, value, percent)
    return _usage(groups, ratio, value, percent, quotient(_percent(cautious, asked)[0], wanted), len(cautious))


def _percent(counted: Mapping[str, int], asked: Mapping[str, int]) -> tuple[int, int]:
    """Usage in percent of the requests, and the average usage, over the pods that are known."""
    used = requested = known = 0
    for name, value in counted.items():
        request = asked.get(name)
        if request is not None:
            used += value
            requested += request
            known += 1
    if requested == 0:
        raise Unmeasurable("no metrics returned matched known pods")
    return int32(truncated(int64(used * 100), requested)), truncated(used, known)


def _average(goal: Goal, groups: Groups) -> Usage:
    wanted, counted = goal.amount, groups.counted
    value = _mean(counted)
    ratio = quotient(value, wanted)
    cautious = _guessed(groups, ratio, dict.fromkeys(groups.missing, wanted) if ratio < 1.0 else {})
    if cautious is None:
        return _usage(groups, ratio, value)
    return _usage(groups, ratio, value, None, quotient(_mean(cautious), wanted), len(cautious))


def _mean(values: Mapping[str, int]) -> int:
    return min(MAX_INT64, truncated(sum(values.values()), len(values)))


def _guessed(groups: Groups, ratio: float, when_shrinking: Mapping[str, int]) -> Mapping[str, int] | None:
    """The values with those of silent pods guessed so that the change gets smaller; None where no pod is silent.

    Shrinking, a missing pod counts as if it used what it may; growing, missing and unready pods count as idle. At the
    goal exactly there is nothing to dampen.
    """
    grows = ratio > 1.0
    unready = groups.unready if grows else ()
    if not (groups.missing or unready):
        return None
    idle = dict.fromkeys((*groups.missing, *unready), 0) if grows else {}
    return {**groups.counted, **when_shrinking, **idle}


def _usage(
    groups: Groups,
    ratio: float,
    value: int,
    percent: int | None = None,
    cautious: float | None = None,
    pods: int | None = None,
) -> Usage:
    return Usage(
        ratio=ratio,
        value=value,
        pods=groups.ready if pods is None else pods,
        percent=percent,
        cautious=cautious,
        unready=len(groups.unready),
        missing=len(groups.missing),
        ignored=len(groups.ignored),
    )
