"""Pods that do not count yet and keep a metric from its proposal: how many of them are needed, and what they change."""

import math
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

import msgspec

from hpad.api.pod import Pod
from hpad.api.sample import PodSample, PodValue
from hpad.engine.outlook import readings
from hpad.engine.outlook.after import Next
from hpad.engine.outlook.readings import Counted
from hpad.engine.outlook.thresholds import first_where
from hpad.engine.propose import Proposal, propose
from hpad.engine.recommend import after_fallback
from hpad.engine.spec import UTILIZATION, CompiledMetric
from hpad.engine.words import names


class Waiting(NamedTuple):
    """Pods that damp the proposal of a metric, and what they are waited for.

    `needed` of them, whichever, change the proposal from the count to `proposal`; all of them to `with_all`.
    """

    pods: Sequence[Pod]
    what: str
    needed: int
    proposal: Proposal
    with_all: Proposal


def waiting(state: Next, index: int) -> Waiting | None:
    """Returns the pods that keep the proposal of the metric at the count; None where none do.

    Each pod that counts from then on is taken to be as busy as the present ones are on average. A pod without the
    container of the metric is taken to request as much as they do on average.
    """
    proposal, sample = state.record.decision.proposals[index], state.answers[index]
    usage, metric = proposal.usage, proposal.metric
    if proposal.error is not None or usage is None or not isinstance(sample, PodSample):
        return None
    if proposal.replicas != state.counted or usage.ratio == 1.0 or not math.isfinite(usage.ratio):
        return None
    grows = usage.ratio > 1.0
    known = readings.counted(state.own, metric, sample)
    found = _damping(state.own.pods_of(metric), metric, known, grows=grows)

    def counting(number: int) -> Proposal:
        return _once_counted(state, index, known, found[:number], grows=grows)

    def changes(number: int) -> bool:
        count = counting(number).replicas
        return count > state.counted if grows else count < state.counted

    needed = first_where(changes, len(found))
    if not needed:
        return None
    return Waiting(found, _what(known, found), needed, counting(needed), counting(len(found)))


def _damping(pods: Sequence[Pod], metric: CompiledMetric, known: Counted, *, grows: bool) -> list[Pod]:
    """Returns the pods that count as idle while the metric grows, or as busy while it shrinks.

    Those with the smallest requests come first: they change the ratio the least, so any others suffice, too.
    """
    groups = known.groups
    waited = {*groups.missing, *groups.unready, *known.lacking} if grows else set(groups.missing)
    return sorted([pod for pod in pods if pod.name in waited], key=lambda pod: readings.request(metric, pod) or 0)


def _once_counted(state: Next, index: int, known: Counted, more: Sequence[Pod], *, grows: bool) -> Proposal:
    """Returns the proposal once these pods count as well."""
    view, answer = state.own, state.answers[index]
    metric = state.record.decision.proposals[index].metric
    assert isinstance(answer, PodSample)
    requests = readings.requested(view.pods_of(metric), metric, known.groups)
    average = sum(requests.values()) // max(1, known.groups.ready)
    values, pods = dict(answer.values), {pod.name: pod for pod in view.pods_of(metric)}
    for pod in more:
        own = readings.request(metric, pod)
        used = _used_by(average if own is None else own, metric, known, requests, up=grows)
        values[pod.name] = PodValue(used, view.now, timedelta(0))
        pods[pod.name] = readings.running(pod, metric, average)
    then = msgspec.structs.replace(view, pods=tuple(pods.values()))
    return after_fallback(then, index, propose(then, metric, PodSample(values, view.now)))


def _used_by(requested: int, metric: CompiledMetric, known: Counted, requests: Mapping[str, int], *, up: bool) -> int:
    """Returns what a pod uses that is as busy as the counted ones, rounded up or down."""
    counted = known.groups.counted
    part, whole, used = 1, len(counted), sum(counted.values())
    if metric.kind == UTILIZATION:
        part, whole, used = requested, sum(requests.values()), sum(counted[name] for name in requests)
    return -(-used * part // whole) if up else used * part // whole


def _what(known: Counted, found: Sequence[Pod]) -> str:
    """Returns the name of the group that all of the pods are in; "" where they are in several."""
    groups = {"unready": known.groups.unready, "missing": known.groups.missing, "lacking": known.lacking}
    return next((name for name, pods in groups.items() if {pod.name for pod in found} <= set(pods)), "")


_STATES = {
    "": ("counts and is", "count and are"),
    "unready": ("is ready and", "are ready and"),
    "missing": ("has a value and is", "have values and are"),
    "lacking": ("has the container and is", "have the container and are"),
}
"""What has to happen to one pod, or to several, by their group."""


def described(found: Waiting) -> str:
    """Returns what has to happen to the pods: "web-3 and web-4 are ready and as busy as the others"."""
    one, listed = found.needed == 1, names([pod.name for pod in found.pods])
    subject = listed if found.needed == len(found.pods) else f"{'one' if one else found.needed} of {listed}"
    return f"{subject} {_STATES[found.what][not one]} as busy as the others"
