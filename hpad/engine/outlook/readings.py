"""A metric with other readings, and with more pods that count: proposals of the engine for answers made up for it.

A reading is what a person watches: percent of the requests (Utilization), the average per pod in milli-units (a metric
per pod), or the total in milli-units (Object and External metrics).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api.pod import ContainerRequests, Pod
from hpad.api.sample import EXTERNAL, ExternalSample, ObjectSample, PodSample, PodValue, Sample
from hpad.engine.outlook.after import Next
from hpad.engine.pods import Groups, Unmeasurable, divided, group, request_of
from hpad.engine.propose import Proposal, about, propose
from hpad.engine.recommend import after_fallback
from hpad.engine.spec import UTILIZATION, VALUE, CompiledMetric
from hpad.engine.trace.metrics import Answer
from hpad.engine.view import View

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


def request(metric: CompiledMetric, pod: Pod) -> int | None:
    """Returns the request of a pod in milli-units; None where it is unknown, and for a target that is no percentage."""
    if metric.kind != UTILIZATION:
        return None
    try:
        return request_of(pod, metric.query)
    except Unmeasurable:
        return None


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
    found = {pod.name: request(metric, pod) for pod in pods if pod.name in groups.counted}
    return {name: each for name, each in found.items() if each is not None}
