"""Metrics read pod by pod: Resource, ContainerResource and Pods."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from hpad.api.pod import Pod
from hpad.api.quantity import MAX_INT64, int32, int64, quotient, truncated
from hpad.api.sample import PodSample, PodValue
from hpad.engine.measure.group import Groups, group
from hpad.engine.measure.requests import requests
from hpad.engine.measure.usage import Unmeasurable, Usage
from hpad.model.goal import UTILIZATION, Goal
from hpad.model.tunables import Tunables


def per_pod(goal: Goal, sample: PodSample, pods: Sequence[Pod], now: datetime, tunables: Tunables) -> Usage:
    """Usage of the pods that count; raises Unmeasurable where none does."""
    if not pods:
        raise Unmeasurable("no pods returned by selector while calculating replica count")
    values = sample.values
    if not goal.query.container or not tunables.gates.HPAMissingContainerIgnored:
        return _over(goal, values, pods, now, tunables)
    having, lacking = _by_container(pods, goal.query.container)
    if not having:
        return _over(goal, values, pods, now, tunables)
    left_out = {pod.name for pod in lacking}
    known = {name: value for name, value in values.items() if name not in left_out}
    usage = _over(goal, known, having, now, tunables)
    return _beside(usage, len(group(lacking, {}, goal.is_cpu, now, tunables).missing))


def _by_container(pods: Sequence[Pod], container: str) -> tuple[list[Pod], list[Pod]]:
    """The pods that have the container, and those that lack it."""
    having: list[Pod] = []
    lacking: list[Pod] = []
    for pod in pods:
        (having if any(each.name == container for each in pod.containers) else lacking).append(pod)
    return having, lacking


def _beside(usage: Usage, others: int) -> Usage:
    """The usage of some pods, beside as many running others that lack the container.

    What those do cannot be told from the metric, as while a container is renamed. Growing, they count as idle, as pods
    without a value do; shrinking, they are taken to be as busy as the rest: leaving them out removes none of them.
    """
    pods, cautious = usage.pods or 0, usage.cautious
    if others and usage.ratio > 1.0:
        cautious = quotient((usage.ratio if cautious is None else cautious) * pods, pods + others)
    return msgspec.structs.replace(usage, cautious=cautious, pods=pods + others, missing=usage.missing + others)


def _over(goal: Goal, values: Mapping[str, PodValue], pods: Sequence[Pod], now: datetime, tunables: Tunables) -> Usage:
    """Usage of these pods; raises Unmeasurable where none of them counts."""
    groups = group(pods, values, goal.is_cpu, now, tunables)
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
