"""Spares busy pods in a scale-down: which pods shall go first, and the floor at the number of busy pods.

A pod is busy while it holds unfinished work. What it holds comes from a metric source, which is asked only before a
scale-down. A pod of which the source says nothing is unknown: it counts as busy, and goes last. A pod that has not
started yet (phase Pending) holds no work. A source may know how many pods are busy, and not which.

`hpad.io/keep-busy` never lowers the count below the number of busy pods, by however much the limits are exceeded. A
StatefulSet removes the pod with the highest ordinal, so its floor is that of the busy pod with the highest ordinal.
With idle-first as well no busy pod shall go, so each pod that may be busy is kept.
`hpad.io/scale-down-order: idle-first` is about the pods alone: `hpad.engine.deletion_costs` makes a Deployment or
ReplicaSet remove them in this order.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.pod import Pod
from hpad.api.sample import EXTERNAL, PODS, AdapterError, Answer, Member, PodSample, Query
from hpad.api.selector import Selector
from hpad.engine import addresses
from hpad.engine.controls import BUSY_METRIC, BusyMetric
from hpad.engine.decision import Decision
from hpad.engine.deletion_costs import PENDING, Spared, Work, costs, in_order
from hpad.engine.view import View

_STATEFUL_SET: Final = "StatefulSet"
_ORDINAL: Final = re.compile(r".*-([0-9]{1,9})", re.DOTALL)
_NO_METRIC: Final = f"the HPA has no External metric whose source could say it: {BUSY_METRIC} names a metric"


def applies(view: View, decision: Decision) -> bool:
    """Whether the decision is a scale-down that has to spare busy pods. A shadow, whose pods are modelled, has none."""
    own = view.controls
    if decision.scale_to is None or decision.scale_to >= decision.current or view.shadow is not None:
        return False
    return own.keep_busy is True or (own.idle_first and not by_ordinal(view.hpa))


def by_ordinal(hpa: HorizontalPodAutoscaler) -> bool:
    """Whether the target removes its pods by ordinal, whatever their deletion costs are."""
    return hpa.spec.scale_target_ref.kind.lower() == _STATEFUL_SET.lower()


def queries(view: View) -> tuple[Query | AdapterError, ...]:
    """Returns the queries for the unfinished work of each pod, whose answers add up.

    Without hpad.io/busy-metric these are the External metrics of the HPA.
    """
    active = sorted([pod for pod in view.pods if pod.is_active], key=lambda pod: pod.name)
    members = tuple([Member(pod.name, pod.address_text) for pod in active])
    named = view.controls.busy_metric
    own = [metric for metric in view.spec.metrics if metric.type == EXTERNAL]
    if named is not None:
        forms = addresses.forms(addresses.identities(own))
        # An index counts all metrics of the spec.
        position = named.address.position
        if position is not None:
            own = [metric for index, metric in enumerate(view.spec.metrics) if index == position and metric in own]
        else:
            own = [metric for metric, each in zip(own, forms, strict=True) if named.address in each]
    if own:
        return tuple(
            [
                AdapterError(metric.error, "spec")
                if metric.error
                else msgspec.structs.replace(metric.query, members=members)
                for metric in own
            ]
        )
    if named is None or named.address.position is not None:
        return (AdapterError(_NO_METRIC, "spec"),)
    return (_of_pods(view, named, members),)


def _of_pods(view: View, named: BusyMetric, members: tuple[Member, ...]) -> Query:
    terms = named.address.selector
    return Query(
        type=PODS,
        namespace=view.key.namespace,
        name=named.address.name,
        pods=None if view.scale is None else view.scale.pod_selector,
        selector=None if terms is None else Selector(terms),
        members=members,
    )


def spare(view: View, decision: Decision, answers: Sequence[Answer]) -> Decision:
    """Returns the decision with its count not below the floor, and with the pods that shall go.

    `answers` are those to `queries(view)`. Never raises. O(pods log pods).
    """
    assert decision.scale_to is not None
    pods, own = [pod for pod in view.pods if pod.is_active], view.controls
    above = 0 if own.busy_metric is None else own.busy_metric.above
    known = _read(pods, answers, above)
    work = known.work
    floor = None
    if own.keep_busy:  # where not even the pods are known, any may be busy
        floor = decision.current if known.error and not pods else _floor(view, pods, known)
    count = decision.scale_to if floor is None else min(decision.current, max(decision.scale_to, floor))
    ordered = own.idle_first and not by_ordinal(view.hpa) and not known.error
    going = in_order(pods, work)[: len(pods) - count] if ordered and 0 < count < len(pods) else []
    written = costs(pods, work, going) if going else ()
    marked = {each.pod for each in written}
    unknown = len(pods) - len(work)
    found = Spared(
        wanted=decision.scale_to,
        replicas=count,
        busy=sum(each.busy for each in work.values()),
        unknown=unknown,
        most_busy=known.most_busy if unknown else None,
        idle=sum(not each.busy for each in work.values()),
        floor=floor,
        error=known.error,
        first=tuple([pod.name for pod in going if pod.name in marked or (written and pod.phase == PENDING)]),
        costs=written,
    )
    to = None if count == decision.current else count
    reason = decision.reason if to is not None else ""
    return msgspec.structs.replace(decision, desired=count, scale_to=to, reason=reason, spared=found)


class _Known(NamedTuple):
    """The work of the pods that it is known of, why it is unknown of all, and how many pods are busy at most.

    `most_busy` is None where no source counts them.
    """

    work: Mapping[str, Work]
    error: str = ""
    most_busy: int | None = None


def _read(pods: Sequence[Pod], answers: Sequence[Answer], above: int) -> _Known:
    """Returns the sum of the answers for each pod. After an error all pods are unknown; else those an answer lacks."""
    failed = next((each for each in answers if isinstance(each, AdapterError)), None)
    samples = [each for each in answers if isinstance(each, PodSample)]
    error = "" if failed is None else failed.message
    if failed is None and len(samples) < max(1, len(answers)):
        error = "the metric source gave no values of pods"
    work = {pod.name: Work() for pod in pods if pod.phase == PENDING}
    if error:
        return _Known(work, error)
    for pod in pods:
        values = [each.values[pod.name].value for each in samples if pod.name in each.values]
        if len(values) == len(samples):
            work[pod.name] = Work(max(0, sum(values)), any(value > above for value in values))
    if all(each.most_busy is None for each in samples):
        return _Known(work)
    # A pod that two sources call busy counts twice, which keeps too many rather than too few.
    most = sum(_most_busy(pods, each, above) for each in samples)
    return _Known(work, most_busy=min(most, len(_maybe_busy(pods, work))))


def _most_busy(pods: Sequence[Pod], sample: PodSample, above: int) -> int:
    """Returns how many pods are busy at most by one answer."""
    values = sample.values
    busy = sum(pod.name in values and values[pod.name].value > above for pod in pods)
    unknown = sum(pod.name not in values and pod.phase != PENDING for pod in pods)
    return busy + unknown if sample.most_busy is None else max(busy, sample.most_busy)


def _maybe_busy(pods: Sequence[Pod], work: Mapping[str, Work]) -> list[Pod]:
    return [pod for pod in pods if pod.name not in work or work[pod.name].busy]


def _floor(view: View, pods: Sequence[Pod], known: _Known) -> int:
    """Returns the smallest count that keeps the busy pods, wherever it is unknown which those are."""
    kept = _maybe_busy(pods, known.work)
    if not by_ordinal(view.hpa):
        return len(kept) if known.most_busy is None or view.controls.idle_first else known.most_busy
    ordinals = [_ordinal(pod) for pod in pods]
    # spec.ordinals.start, if all pods are there; else 0, which keeps too many rather than too few.
    start = min(ordinals, default=0) if len(pods) == view.replicas else 0
    return max((_ordinal(pod) - start + 1 for pod in kept), default=0)


def _ordinal(pod: Pod) -> int:
    found = _ORDINAL.fullmatch(pod.name)
    return 0 if found is None else int(found[1])
