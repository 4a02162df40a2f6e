"""Measures metrics per pod: Resource, ContainerResource and Pods.

Pods are sorted by readiness first; a Utilization target relates their usage to their requests. Source: Kubernetes 1.36,
replica_calculator.go, and the Kubernetes documentation, "Horizontal Pod Autoscaling: Algorithm details".
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from hpad.api.pod import ContainerRequests, Pod
from hpad.api.quantity import MAX_INT32, MAX_INT64, int32, int64, quotient, truncated
from hpad.api.sample import PodSample, PodValue, Query
from hpad.engine.spec import UTILIZATION, CompiledMetric
from hpad.engine.view import Tunables

_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)

READY: Final = "ready"
UNREADY: Final = "unready"
MISSING: Final = "missing"
IGNORED: Final = "ignored"


class PodStanding(NamedTuple):
    """The group of one pod, and why it is not ready ("": it is)."""

    group: str
    why: str = ""


_COUNTS: Final = PodStanding(READY)
_DELETED: Final = PodStanding(IGNORED, "it is being deleted")
_ENDED: Final = {
    "Failed": PodStanding(IGNORED, "its phase is Failed"),
    "Succeeded": PodStanding(IGNORED, "its phase is Succeeded"),
}
_PENDING: Final = PodStanding(UNREADY, "its phase is Pending")
_WITHOUT_VALUE: Final = PodStanding(MISSING, "the source has no value for it")
_NOT_STARTED: Final = PodStanding(UNREADY, "it has no start time or no Ready condition yet")
_NOT_READY: Final = PodStanding(UNREADY, "it is not ready, within the CPU initialization period")
_EARLY_SAMPLE: Final = PodStanding(UNREADY, "its sample began before it became ready")
_NEVER_READY: Final = PodStanding(UNREADY, "it was not ready within the initial readiness delay, and still is not")


class Groups(msgspec.Struct, frozen=True, gc=False):
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
    # Values of pods outside the list count as well: Kubernetes removes only those of unready and ignored pods.
    counted = {name: value.value for name, value in values.items()}
    ready = 0
    others: dict[str, list[str]] = {UNREADY: [], MISSING: [], IGNORED: []}
    for pod in pods:
        kind = standing(pod, values.get(pod.name), is_cpu, now, tunables).group
        if kind is READY:
            ready += 1
            continue
        others[kind].append(pod.name)
        if kind is not MISSING:
            counted.pop(pod.name, None)
    return Groups(counted, ready, others[UNREADY], others[MISSING], others[IGNORED])


def standing(pod: Pod, value: PodValue | None, is_cpu: bool, now: datetime, tunables: Tunables) -> PodStanding:
    """Returns the group of one pod, and why. Source: Kubernetes 1.36, replica_calculator.go: groupPods."""
    if pod.deleted:
        return _DELETED
    if pod.phase == "Failed" or (pod.phase == "Succeeded" and tunables.gates.HPASucceededPodsIgnored):
        return _ENDED[pod.phase]
    if pod.phase == "Pending":
        return _PENDING
    if value is None:
        return _WITHOUT_VALUE
    return _starting(pod, value, now, tunables) if is_cpu else _COUNTS


def _starting(pod: Pod, value: PodValue, now: datetime, tunables: Tunables) -> PodStanding:
    """Returns whether the pod's CPU usage may still be that of its start.

    Within the CPU initialization period a sample counts only if the pod is ready and was ready during the whole span
    of the sample. Later a pod is starting only if it was never ready within the initial readiness delay. Source:
    Kubernetes 1.36, replica_calculator.go: groupPods.
    """
    start, state = pod.start_time, pod.ready
    if start is None or state is None:
        return _NOT_STARTED
    since = pod.ready_since or _NEVER
    # Dates are subtracted instead of adding durations, because the sum may be beyond datetime.max.
    if now - start < tunables.cpu_initialization_period:
        if state == "False":
            return _NOT_READY
        return _EARLY_SAMPLE if value.timestamp - since < value.window else _COUNTS
    never_ready = state == "False" and since - start < tunables.initial_readiness_delay
    return _NEVER_READY if never_ready else _COUNTS


class Unmeasurable(Exception):
    """The sample does not give the usage of the metric; the text is part of the condition and the event."""


class Usage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The measured usage of a metric.

    `ratio` is usage / metric target over `pods` pods. `value` is the usage in milli-units: the average per pod, or the
    value of a Value metric; None where there is none. `percent` is the usage of a Utilization metric. `cautious` is
    the ratio with unready and missing pods counted in, None where there are none; `pods` then includes them. `total`
    is the undivided sum in milli-units of an AverageValue metric of the whole target. `pods` is None where no pod was
    found and none was needed. `unserved`: a metric of the whole target is above zero while none of its pods is ready.
    `note` is that of the sample, or names ready pods that do not count ("": none).
    """

    ratio: float
    value: int | None
    pods: int | None
    percent: int | None = None
    cautious: float | None = None
    total: int | None = None
    unready: int = 0
    missing: int = 0
    unserved: bool = False
    note: str = ""


def requests(pods: Sequence[Pod], query: Query) -> dict[str, int]:
    """Returns the requested milli-units by pod name: of one container, or of the whole pod but its ignored containers.

    Pod-level requests (KEP-2837) take precedence over those of the containers. Raises Unmeasurable naming the first
    container without a request. Source: Kubernetes 1.36, replica_calculator.go: calculateRequests.
    """
    if query.container or query.ignored_containers:
        return {pod.name: request_of(pod, query) for pod in pods}
    return {pod.name: _of_pod(pod, query.name) for pod in pods}


def request_of(pod: Pod, query: Query) -> int:
    """Returns the request of one pod, as `requests` does for several."""
    if query.container:
        return _of_container(pod, query.name, query.container)
    return _of_rest(pod, query) if query.ignored_containers else _of_pod(pod, query.name)


def known_request(metric: CompiledMetric, pod: Pod) -> int | None:
    """Returns the request of a pod in milli-units; None where it is unknown, and for a target that is no percentage."""
    if metric.kind != UTILIZATION:
        return None
    try:
        return request_of(pod, metric.query)
    except Unmeasurable:
        return None


def _of_rest(pod: Pod, query: Query) -> int:
    """Returns the request of the containers that are not ignored (hpad.io/ignore-containers)."""
    ignored = query.ignored_containers
    if pod.pod_requests is None or query.name not in pod.pod_requests:
        counted = [container for container in pod.containers if container.name not in ignored]
        return sum(_request(container, query.name, pod) for container in counted)
    # The request of a whole pod says nothing of its parts: only what the ignored ones request is known to be theirs.
    left_out = [container for container in pod.containers if container.name in ignored]
    rest = pod.pod_requests[query.name] - sum(_request(container, query.name, pod) for container in left_out)
    if rest <= 0:
        raise Unmeasurable(f"the ignored containers request all {query.name} of Pod {pod.name}")
    return rest


def _check_ignored(pods: Sequence[Pod], ignored: Sequence[str]) -> None:
    """Raises Unmeasurable for a pod without any container that is not ignored."""
    for pod in pods:
        if pod.containers and all(container.name in ignored for container in pod.containers):
            raise Unmeasurable(f"all containers of Pod {pod.name} are ignored: {', '.join(ignored)}")


def _of_pod(pod: Pod, resource: str) -> int:
    if pod.pod_requests is not None:
        requested = pod.pod_requests.get(resource)
        if requested is None:
            raise Unmeasurable(f"missing pod-level request for {resource} in Pod {pod.name}")
        return requested
    total = 0
    for container in pod.containers:  # no sum(), and no call: this runs for each pod of each decision
        requested = container.requests.get(resource)
        total += _request(container, resource, pod) if requested is None else requested
    return total


def _of_container(pod: Pod, resource: str, name: str) -> int:
    for container in pod.containers:
        if container.name == name:
            return _request(container, resource, pod)
    raise Unmeasurable(f"container {name} not found in Pod {pod.name}")


def _request(container: ContainerRequests, resource: str, pod: Pod) -> int:
    requested = container.requests.get(resource)
    if requested is None:
        raise Unmeasurable(f"missing request for {resource} in container {container.name} of Pod {pod.name}")
    return requested


def per_pod(metric: CompiledMetric, sample: PodSample, pods: Sequence[Pod], now: datetime, tunables: Tunables) -> Usage:
    """Returns the usage of the pods that count. Raises Unmeasurable where no pod counts."""
    if not pods:
        raise Unmeasurable("no pods returned by selector while calculating replica count")
    values = sample.values
    if metric.query.ignored_containers:
        _check_ignored(pods, metric.query.ignored_containers)
    having, lacking = divided(metric, pods, tunables)
    if not lacking:
        return _over(metric, values, pods, now, tunables)
    left_out = {pod.name for pod in lacking}
    known = {name: value for name, value in values.items() if name not in left_out}
    usage = _over(metric, known, having, now, tunables)
    return _with_lacking(usage, len(group(lacking, {}, metric.is_cpu, now, tunables).missing))


def divided(metric: CompiledMetric, pods: Sequence[Pod], tunables: Tunables) -> tuple[Sequence[Pod], Sequence[Pod]]:
    """Returns the pods that have the container of the metric, and those that lack it (HPAMissingContainerIgnored)."""
    container = metric.query.container
    if not container or not tunables.gates.HPAMissingContainerIgnored:
        return pods, ()
    lacking = [pod for pod in pods if not has_container(pod, container)]
    if len(lacking) in (0, len(pods)):  # in all: the name is probably wrong, and the error names it
        return pods, ()
    return [pod for pod in pods if has_container(pod, container)], lacking


def has_container(pod: Pod, container: str) -> bool:
    for own in pod.containers:  # noqa: SIM110  # any() takes three times as long, for each pod of each decision
        if own.name == container:
            return True
    return False


def _with_lacking(usage: Usage, others: int) -> Usage:
    """Returns the usage with `others` running pods counted in that lack the container (HPAMissingContainerIgnored).

    Their usage is unknown, for example while a container is renamed. On a scale-up they count as idle, as pods without
    a value do. On a scale-down they count as busy as the rest, so none of them is removed.
    """
    pods, cautious = usage.pods or 0, usage.cautious
    if others and usage.ratio > 1.0:
        cautious = quotient((usage.ratio if cautious is None else cautious) * pods, pods + others)
    return msgspec.structs.replace(usage, cautious=cautious, pods=pods + others, missing=usage.missing + others)


def _uncounted(metric: CompiledMetric, pods: Sequence[Pod], tunables: Tunables) -> Unmeasurable:
    """Returns the error of a metric for which no pod counts: as in Kubernetes, unless no pod has its container."""
    container = metric.query.container if tunables.gates.HPAMissingContainerIgnored else ""
    if container and not any(has_container(pod, container) for pod in pods):
        return Unmeasurable(f"container {container} not found in Pod {pods[0].name}")
    return Unmeasurable("did not receive metrics for targeted pods (pods might be unready)")


def _over(
    metric: CompiledMetric, values: Mapping[str, PodValue], pods: Sequence[Pod], now: datetime, tunables: Tunables
) -> Usage:
    """Returns the usage of these pods. Raises Unmeasurable where none of them counts."""
    groups = group(pods, values, metric.is_cpu, now, tunables)
    if not groups.counted:
        raise _uncounted(metric, pods, tunables)
    by_percent = metric.kind == UTILIZATION
    requested_by_pod = requests(pods, metric.query) if by_percent else {}
    huge = tunables.gates.HPAHugeProposals
    used, value = _used(metric, groups.counted, requested_by_pod, huge=huge)
    usage = Usage(
        ratio=quotient(used, metric.amount),
        value=value,
        pods=groups.ready,
        percent=used if by_percent else None,
        unready=len(groups.unready),
        missing=len(groups.missing),
    )
    cautious = guessed(metric, groups, usage.ratio, requested_by_pod)
    if cautious is None:
        return usage
    ratio = quotient(_used(metric, cautious, requested_by_pod, huge=huge)[0], metric.amount)
    return msgspec.structs.replace(usage, cautious=ratio, pods=len(cautious))


def _used(
    metric: CompiledMetric, values: Mapping[str, int], requested_by_pod: Mapping[str, int], *, huge: bool
) -> tuple[int, int]:
    """Returns the figure to compare with the metric target, and the average usage in milli-units."""
    if metric.kind == UTILIZATION:
        return _percent(values, requested_by_pod, huge=huge)
    mean = min(MAX_INT64, truncated(sum(values.values()), len(values)))
    return mean, mean


def _percent(counted: Mapping[str, int], requested_by_pod: Mapping[str, int], *, huge: bool) -> tuple[int, int]:
    """Returns the usage in percent of the requests, and the average usage, over pods with a known request.

    `huge`: a percentage beyond an int32 is the largest int32 (HPAHugeProposals). Else it wraps around, and so does a
    usage of more than 84 TiB of memory together, as it is multiplied by 100 in thousandths of a byte.

    Source: Kubernetes 1.36, pkg/controller/podautoscaler/metrics/utilization.go: GetResourceUtilizationRatio.
    """
    used = requested = known = 0
    for name, value in counted.items():
        request = requested_by_pod.get(name)
        if request is not None:  # None for a value of a pod outside the list
            used += value
            requested += request
            known += 1
    if requested == 0:
        raise Unmeasurable("no metrics returned matched known pods")
    percent = truncated(used * 100, requested) if huge else truncated(int64(used * 100), requested)
    return min(MAX_INT32, percent) if huge else int32(percent), truncated(used, known)


def guessed(
    metric: CompiledMetric, groups: Groups, ratio: float, requested_by_pod: Mapping[str, int]
) -> Mapping[str, int] | None:
    """Returns the values with unready and missing pods counted in; None where there are none.

    On a scale-down a missing pod counts as busy: as using the metric target or, with a Utilization target, its whole
    request. On a scale-up missing and unready pods count as idle. Both make the change smaller. Source: Kubernetes
    1.36, replica_calculator.go: GetResourceReplicas and calcPlainMetricReplicas.
    """
    unready = groups.unready if ratio > 1.0 else []
    if not (groups.missing or unready):
        return None
    if ratio > 1.0:
        return {**groups.counted, **dict.fromkeys((*groups.missing, *unready), 0)}
    if not ratio < 1.0:  # 1, or not a number: Kubernetes leaves missing pods out
        return groups.counted
    if metric.kind != UTILIZATION:
        return {**groups.counted, **dict.fromkeys(groups.missing, metric.amount)}
    share = max(100, metric.amount)  # below a target over 100%, the whole request would not be busy
    return {**groups.counted, **{name: truncated(requested_by_pod[name] * share, 100) for name in groups.missing}}
