"""A metric with other readings, and with more pods that count: proposals of the engine for answers made up for it.

A reading is what a person watches: percent of the requests (Utilization), the average per pod in milli-units (a metric
per pod), or the total in milli-units (Object and External metrics).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api.pod import ContainerRequests, Pod
from hpad.api.sample import EXTERNAL, Answer, ExternalSample, ObjectSample, PodSample, PodValue, Sample
from hpad.engine.outlook.after import Next
from hpad.engine.pods import Groups, divided, group, known_request
from hpad.engine.propose import Proposal, about, propose
from hpad.engine.recommend import after_fallback
from hpad.engine.spec import UTILIZATION, VALUE, CompiledMetric
from hpad.engine.view import View
from hpad.engine.words import names

_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)
_REQUEST: Final = 100
_NO_NAME: Final = "-"
"""The name of a container that no annotation leaves out."""


def reading(proposal: Proposal) -> int | None:
    """Returns the present reading; None where there is none."""
    usage = proposal.usage
    if usage is None or proposal.metric.kind == UTILIZATION:
        return None if usage is None else usage.percent
    return usage.value if usage.total is None else usage.total


class Counted(NamedTuple):
    """The pods of a metric by readiness, and those that run without its container."""

    groups: Groups
    lacking: list[str]


def counted(view: View, metric: CompiledMetric, sample: PodSample) -> Counted:
    """Returns the groups of the pods, as the measurement has them."""
    pods, sample = about(view, metric, sample)
    having, lacking = divided(metric, pods, view.tunables)
    left_out = {pod.name for pod in lacking}
    values = {name: value for name, value in sample.values.items() if name not in left_out}
    groups = group(having, values, metric.is_cpu, view.now, view.tunables)
    return Counted(groups, group(lacking, {}, metric.is_cpu, view.now, view.tunables).missing)


def running(pod: Pod, metric: CompiledMetric, requested: int) -> Pod:
    """Returns the pod, ready since ever and with the container of the metric."""
    name = metric.query.container
    if all(own.name != name for own in pod.containers) and name:
        container = ContainerRequests(name, {metric.name: requested})
        pod = msgspec.structs.replace(pod, containers=(*pod.containers, container))
    return msgspec.structs.replace(pod, phase="Running", start_time=_NEVER, ready="True", ready_since=_NEVER)


def proposals(state: Next, index: int) -> Callable[[int], Proposal] | None:
    """Returns the function from readings of a metric to its proposals; None where it has none now.

    Other readings, and all pods, stay as they are. Where the count has just changed all of its pods are taken to be
    ready.
    """
    proposal, answer = state.record.decision.proposals[index], state.answers[index]
    metric, usage = proposal.metric, proposal.usage
    if proposal.error is not None or usage is None or (metric.of_pods and not state.count):
        return None
    view = _with_ready_pods(state.own, metric) if state.settled else state.own
    if metric.kind == VALUE and not view.pods_of(metric) and state.count:
        return None
    sample = _samples(view, metric, answer, settled=state.settled)
    if sample is None:
        return None

    def proposed(value: int) -> Proposal:
        return after_fallback(view, index, propose(view, metric, sample(value)))

    return proposed


def _with_ready_pods(view: View, metric: CompiledMetric) -> View:
    """Returns the view with as many ready pods as there are replicas, all with the same request."""
    containers = (ContainerRequests(metric.query.container or _NO_NAME, {metric.name: _REQUEST}),)
    model = Pod(name="", phase="Running", start_time=_NEVER, ready="True", ready_since=_NEVER, containers=containers)
    pods = tuple([msgspec.structs.replace(model, name=str(number)) for number in range(view.replicas)])
    return msgspec.structs.replace(view, pods=pods, controls=msgspec.structs.replace(view.controls, pods=None))


def _samples(view: View, metric: CompiledMetric, answer: Answer, *, settled: bool) -> Callable[[int], Sample] | None:
    """Returns the function from readings to answers that have them; None where no pod counts."""
    if not metric.of_pods:
        if metric.type == EXTERNAL:
            return lambda value: ExternalSample((value,), view.now)
        return lambda value: ObjectSample(value, view.now)
    if settled:
        now = PodValue(0, view.now, timedelta(0))
        answer = PodSample({pod.name: now for pod in view.pods_of(metric)}, view.now)
    assert isinstance(answer, PodSample)
    if metric.kind == UTILIZATION:
        return _percents(view, metric, answer)
    values = answer.values
    return lambda value: PodSample({name: _using(each, value) for name, each in values.items()}, view.now)


def _percents(view: View, metric: CompiledMetric, sample: PodSample) -> Callable[[int], Sample] | None:
    """A percentage is reached with the least usage of the counted pods together; one of them has all of it."""
    known = requested(view.pods_of(metric), metric, counted(view, metric, sample).groups)
    if not known:
        return None
    total, bearer = sum(known.values()), next(iter(known))
    values = {name: _using(each, 0) for name, each in sample.values.items()}

    def having(percent: int) -> Sample:
        used = _using(values[bearer], -(-percent * total // 100))
        return PodSample({**values, bearer: used}, view.now)

    return having


def _using(value: PodValue, milli: int) -> PodValue:
    return PodValue(milli, value.timestamp, value.window)


def requested(pods: Sequence[Pod], metric: CompiledMetric, groups: Groups) -> Mapping[str, int]:
    """Returns the requests of the listed pods whose values count."""
    found = {pod.name: known_request(metric, pod) for pod in pods if pod.name in groups.counted}
    return {name: each for name, each in found.items() if each is not None}


def first_where(holds: Callable[[int], bool], most: int, near: int = 1) -> int | None:
    """Returns the smallest number from 0 to `most` for which `holds`, which stays true for larger ones.

    The search begins at `near`, since each number may take a look at every pod.
    """
    if holds(0):
        return 0
    if most < 1:
        return None
    low, high = 0, max(1, min(near, most))
    while not holds(high):
        if high >= most:
            return None
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


class Waiting(NamedTuple):
    """Pods that damp the proposal of a metric, and what they are waited for.

    Any `needed` of them change the proposal from the count. `proposal` is that with the smallest requests, which change
    it least; `with_all` is that with all of them.
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
    known = counted(state.own, metric, sample)
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
    return sorted([pod for pod in pods if pod.name in waited], key=lambda pod: known_request(metric, pod) or 0)


def _once_counted(state: Next, index: int, known: Counted, more: Sequence[Pod], *, grows: bool) -> Proposal:
    """Returns the proposal once these pods count as well."""
    view, answer = state.own, state.answers[index]
    metric = state.record.decision.proposals[index].metric
    assert isinstance(answer, PodSample)
    requests = requested(view.pods_of(metric), metric, known.groups)
    average = sum(requests.values()) // max(1, known.groups.ready)
    values, pods = dict(answer.values), {pod.name: pod for pod in view.pods_of(metric)}
    for pod in more:
        own = known_request(metric, pod)
        used = _used_by(average if own is None else own, metric, known, requests, up=grows)
        values[pod.name] = PodValue(used, view.now, timedelta(0))
        pods[pod.name] = running(pod, metric, average)
    then = msgspec.structs.replace(view, pods=tuple(pods.values()))
    return after_fallback(then, index, propose(then, metric, PodSample(values, view.now)))


def _used_by(own: int, metric: CompiledMetric, known: Counted, requests: Mapping[str, int], *, up: bool) -> int:
    """Returns what a pod uses that is as busy as the counted ones, rounded up or down."""
    values = known.groups.counted
    part, whole, used = 1, len(values), sum(values.values())
    if metric.kind == UTILIZATION:
        part, whole, used = own, sum(requests.values()), sum(values[name] for name in requests)
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
