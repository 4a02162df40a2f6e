"""Pods that do not count yet and keep a metric from its proposal: how many of them are needed, and what they change."""

from collections.abc import Sequence
from typing import NamedTuple

from hpad.engine import trace
from hpad.engine.outlook.estimate import Pods, grouped, is_utilization, of_pods, proposed, request, used
from hpad.engine.outlook.thresholds import first_where
from hpad.engine.outlook.words import names


class Waiting(NamedTuple):
    """Pods that damp the proposal of a metric.

    `needed` of them, whichever, change the proposal from the count to `proposal`; all of them to `with_all`.
    """

    pods: Sequence[trace.PodTrace]
    needed: int
    proposal: int
    with_all: int


def waiting(metric: trace.MetricTrace, current: int, gates: Sequence[str]) -> Waiting | None:
    """Returns the pods that keep the proposal of the metric at `current`; None where none do.

    Each pod that counts from then on is taken to be as busy as the present ones are on average. A pod without the
    container of the metric is taken to request as much as they do on average.
    """
    usage = metric.usage
    if metric.error or usage is None or usage.ratio is None or not of_pods(metric) or metric.pods_omitted:
        return None
    if metric.proposal != current or usage.ratio == 1.0:
        return None
    grows = usage.ratio > 1.0
    groups = (trace.UNREADY, trace.MISSING, trace.LACKING) if grows else (trace.MISSING,)
    # Those with the smallest requests first: they change the ratio the least, so any others suffice, too.
    found = sorted((pod for pod in metric.pods if pod.group in groups), key=request)
    huge = "HPAHugeProposals" in gates

    def count(number: int) -> int:
        usage, pods = _once_counted(metric, found, number, grows=grows)
        return proposed(metric, pods, usage, current, huge=huge).replicas

    needed = first_where(lambda number: count(number) > current if grows else count(number) < current, len(found))
    return Waiting(found, needed, count(needed), count(len(found))) if needed else None


def _once_counted(
    metric: trace.MetricTrace, found: Sequence[trace.PodTrace], number: int, *, grows: bool
) -> tuple[int, Pods]:
    """Returns the usage and the pods once the first `number` of these pods count."""
    pods, usage, left = grouped(metric), used(metric), found[number:]
    added = [_used_by(pod, pods, usage, percent=is_utilization(metric), up=grows) for pod in found[:number]]
    return usage + sum(added), Pods(
        counted=pods.counted + number,
        ready=pods.ready + number,
        requested=pods.requested + sum(_requested(pod, pods) for pod in found[:number]),
        unready=tuple(request(pod) for pod in left if pod.group == trace.UNREADY) if grows else pods.unready,
        missing=tuple(request(pod) for pod in left if pod.group == trace.MISSING),
        lacking=sum(1 for pod in left if pod.group == trace.LACKING) if grows else pods.lacking,
    )


def _used_by(pod: trace.PodTrace, pods: Pods, usage: int, *, percent: bool, up: bool) -> int:
    """Returns what a pod uses that is as busy as the counted ones, rounded up or down."""
    part, whole = (_requested(pod, pods), pods.requested) if percent else (1, pods.counted)
    return -(-usage * part // whole) if up else usage * part // whole


def _requested(pod: trace.PodTrace, pods: Pods) -> int:
    """Returns the request of a pod; the average one where it is unknown, as without the container of the metric."""
    return request(pod) if pod.request is not None else pods.requested // max(1, pods.ready)


def described(found: Waiting) -> str:
    """Returns what has to happen to the pods: "web-3 and web-4 are ready and as busy as the others"."""
    one, listed = found.needed == 1, names([pod.name for pod in found.pods])
    subject = listed if found.needed == len(found.pods) else f"{'one' if one else found.needed} of {listed}"
    groups = {pod.group for pod in found.pods}
    state = "counts and is" if one else "count and are"
    if groups == {trace.UNREADY}:
        state = "is ready and" if one else "are ready and"
    elif groups == {trace.MISSING}:
        state = "has a value and is" if one else "have values and are"
    elif groups == {trace.LACKING}:
        state = "has the container and is" if one else "have the container and are"
    return f"{subject} {state} as busy as the others"
