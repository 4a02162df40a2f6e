"""Measures metrics per pod: Resource, ContainerResource and Pods.

Pods are sorted by readiness first; a Utilization target relates their usage to their requests. Source: Kubernetes 1.36,
replica_calculator.go, and the Kubernetes documentation, "Horizontal Pod Autoscaling: Algorithm details".
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from hpad.api.pod import Pod
from hpad.api.quantity import MAX_INT64, int32, int64, quotient, truncated
from hpad.api.sample import PodSample, PodValue
from hpad.engine.spec import UTILIZATION, CompiledMetric
from hpad.engine.view import Tunables

_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)


class Groups(msgspec.Struct, frozen=True):
    """The pods of one metric by readiness.

    `counted` maps pod names to the values that count, those of unlisted pods included. `ready` is the number of listed
    pods with such a value. The other pods are `unready` (pending or starting), `missing` (without a value) or
    `ignored` (being deleted, or failed).
    """

    counted: dict[str, int]
    ready: int
    unready: list[str]
    missing: list[str]
    ignored: list[str]


def group(
    pods: Sequence[Pod], values: Mapping[str, PodValue], is_cpu: bool, now: datetime, tunables: Tunables
) -> Groups:
    """Sorts pods into ready, unready, missing and ignored. Only for CPU a starting pod is unready.

    Source: Kubernetes 1.36, replica_calculator.go: groupPods and removeMetricsForPods.
    """
    counted = {name: value.value for name, value in values.items()}
    ready, unready, missing, ignored = 0, [], [], []
    gone = ("Failed", "Succeeded") if tunables.gates.HPASucceededPodsIgnored else ("Failed",)
    for pod in pods:
        name = pod.name
        if pod.deleted or pod.phase in gone:
            ignored.append(name)
        elif pod.phase == "Pending":
            unready.append(name)
        elif (value := values.get(name)) is None:
            missing.append(name)
        elif is_cpu and _starts(pod, value, now, tunables):
            unready.append(name)
        else:
            ready += 1
    for name in ignored:
        counted.pop(name, None)
    for name in unready:
        counted.pop(name, None)
    return Groups(counted, ready, unready, missing, ignored)


def _starts(pod: Pod, value: PodValue, now: datetime, tunables: Tunables) -> bool:
    """Whether the pod's CPU usage may still be that of its start.

    Within the CPU initialization period a sample counts only if the pod is ready and was ready during the whole span
    of the sample. Later a pod is starting only if it was never ready within the initial readiness delay. Source:
    Kubernetes 1.36, replica_calculator.go: groupPods.
    """
    start, state = pod.start_time, pod.ready
    if start is None or state is None:
        return True
    since = pod.ready_since or _NEVER
    # Subtract dates instead of adding durations: the sum may be beyond datetime.max.
    if now - start < tunables.cpu_initialization_period:
        return state == "False" or value.timestamp - since < value.window
    return state == "False" and since - start < tunables.initial_readiness_delay


class Unmeasurable(Exception):
    """The sample does not give the usage of the metric; the text is part of the condition and the event."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The measured usage of a metric.

    `ratio` is usage / metric target over `pods` pods. `value` is the usage in milli-units: the average per pod, or the
    value of a Value metric; None where there is none. `percent` is the usage of a Utilization metric. `cautious` is
    the ratio with unready and missing pods counted in, None where there are none; `pods` then includes them. `total`
    is the undivided sum in milli-units of an AverageValue metric of the whole target. `pods` is None where no pod was
    found and none was needed.
    """

    ratio: float
    value: int | None
    pods: int | None
    percent: int | None = None
    cautious: float | None = None
    total: int | None = None
    unready: int = 0
    missing: int = 0
    ignored: int = 0

    def __str__(self) -> str:
        left_out = (("unready", self.unready), ("missing", self.missing), ("ignored", self.ignored))
        pods = "".join(f", {count} {what}" for what, count in left_out if count)
        cautious = "" if self.cautious is None else f", {self.cautious:.3f} with the pods that tell nothing"
        return f"ratio {self.ratio:.3f}{cautious}, over {self.pods} pods{pods}"


def requests(pods: Sequence[Pod], resource: str, container: str) -> dict[str, int]:
    """Returns the requested milli-units by pod name, of one container or ("") of the whole pod.

    Pod-level requests (KEP-2837) take precedence over those of the containers. Raises Unmeasurable naming the first
    container without a request. Source: Kubernetes 1.36, replica_calculator.go: calculatePodRequests.
    """
    if container:
        return {pod.name: _of_container(pod, resource, container) for pod in pods}
    return {pod.name: _of_pod(pod, resource) for pod in pods}


def _of_pod(pod: Pod, resource: str) -> int:
    if pod.pod_requests is not None:
        asked = pod.pod_requests.get(resource)
        if asked is None:
            raise Unmeasurable(f"missing pod-level request for {resource} in Pod {pod.name}")
        return asked
    total = 0
    for container in pod.containers:
        asked = container.requests.get(resource)
        if asked is None:
            raise _missing(resource, container.name, pod)
        total += asked
    return total


def _of_container(pod: Pod, resource: str, name: str) -> int:
    for container in pod.containers:
        if container.name == name:
            asked = container.requests.get(resource)
            if asked is None:
                raise _missing(resource, name, pod)
            return asked
    raise Unmeasurable(f"container {name} not found in Pod {pod.name}")


def _missing(resource: str, container: str, pod: Pod) -> Unmeasurable:
    return Unmeasurable(f"missing request for {resource} in container {container} of Pod {pod.name}")


def per_pod(metric: CompiledMetric, sample: PodSample, pods: Sequence[Pod], now: datetime, tunables: Tunables) -> Usage:
    """Returns the usage of the pods that count. Raises Unmeasurable where no pod counts."""
    if not pods:
        raise Unmeasurable("no pods returned by selector while calculating replica count")
    values = sample.values
    if not metric.query.container or not tunables.gates.HPAMissingContainerIgnored:
        return _over(metric, values, pods, now, tunables)
    having, lacking = _by_container(pods, metric.query.container)
    if not having:
        return _over(metric, values, pods, now, tunables)
    left_out = {pod.name for pod in lacking}
    known = {name: value for name, value in values.items() if name not in left_out}
    usage = _over(metric, known, having, now, tunables)
    return _beside(usage, len(group(lacking, {}, metric.is_cpu, now, tunables).missing))


def _by_container(pods: Sequence[Pod], container: str) -> tuple[list[Pod], list[Pod]]:
    """Returns the pods that have the container, and those that lack it."""
    having: list[Pod] = []
    lacking: list[Pod] = []
    for pod in pods:
        (having if any(each.name == container for each in pod.containers) else lacking).append(pod)
    return having, lacking


def _beside(usage: Usage, others: int) -> Usage:
    """Returns the usage with `others` running pods counted in that lack the container (HPAMissingContainerIgnored).

    Their usage is unknown, for example while a container is renamed. On a scale-up they count as idle, as pods without
    a value do. On a scale-down they count as busy as the rest, so none of them is removed.
    """
    pods, cautious = usage.pods or 0, usage.cautious
    if others and usage.ratio > 1.0:
        cautious = quotient((usage.ratio if cautious is None else cautious) * pods, pods + others)
    return msgspec.structs.replace(usage, cautious=cautious, pods=pods + others, missing=usage.missing + others)


def _over(
    metric: CompiledMetric, values: Mapping[str, PodValue], pods: Sequence[Pod], now: datetime, tunables: Tunables
) -> Usage:
    """Returns the usage of these pods. Raises Unmeasurable where none of them counts."""
    groups = group(pods, values, metric.is_cpu, now, tunables)
    if not groups.counted:
        raise Unmeasurable("did not receive metrics for targeted pods (pods might be unready)")
    if metric.kind == UTILIZATION:
        return _utilization(metric, groups, requests(pods, metric.name, metric.query.container))
    return _average(metric, groups)


def _utilization(metric: CompiledMetric, groups: Groups, asked: Mapping[str, int]) -> Usage:
    target, counted = metric.amount, groups.counted
    percent, value = _percent(counted, asked)
    ratio = quotient(percent, target)
    share = max(100, target)
    guess = {name: truncated(asked[name] * share, 100) for name in groups.missing} if ratio < 1.0 else {}
    cautious = _guessed(groups, ratio, guess)
    if cautious is None:
        return _usage(groups, ratio, value, percent)
    return _usage(groups, ratio, value, percent, quotient(_percent(cautious, asked)[0], target), len(cautious))


def _percent(counted: Mapping[str, int], asked: Mapping[str, int]) -> tuple[int, int]:
    """Returns the usage in percent of the requests, and the average usage, over pods with a known request.

    Source: Kubernetes 1.36, pkg/controller/podautoscaler/metrics/utilization.go: GetResourceUtilizationRatio.
    """
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


def _average(metric: CompiledMetric, groups: Groups) -> Usage:
    target, counted = metric.amount, groups.counted
    value = _mean(counted)
    ratio = quotient(value, target)
    cautious = _guessed(groups, ratio, dict.fromkeys(groups.missing, target) if ratio < 1.0 else {})
    if cautious is None:
        return _usage(groups, ratio, value)
    return _usage(groups, ratio, value, None, quotient(_mean(cautious), target), len(cautious))


def _mean(values: Mapping[str, int]) -> int:
    return min(MAX_INT64, truncated(sum(values.values()), len(values)))


def _guessed(groups: Groups, ratio: float, when_shrinking: Mapping[str, int]) -> Mapping[str, int] | None:
    """Returns the values with unready and missing pods counted in; None where there are none.

    On a scale-down a missing pod counts as using its target. On a scale-up missing and unready pods count as idle.
    Both make the change smaller. Source: Kubernetes 1.36, replica_calculator.go: GetResourceReplicas.
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
