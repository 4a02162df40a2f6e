"""Pods and answers as they would be with another number of replicas, which share the same load evenly.

The total of a metric of pods over the counted pods is the load. An Object or External metric with a Value is shared as
well: Kubernetes multiplies its ratio by the ready pods, which expects that it falls as they grow
(replica_calculator.go: getUsageRatioReplicaCount). With an AverageValue it is a total, unless it is said to be shared.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, PodSample, Sample
from hpad.engine.addresses import addresses
from hpad.engine.spec import VALUE
from hpad.engine.view import View

Answer = Sample | AdapterError
_COPY: Final = "~"
"""Stands between the name of a pod and the number of its copy."""


class Modelled(NamedTuple):
    """The pods and the answers that a workload would have with another count than the known one."""

    pods: Sequence[Pod]
    answers: Sequence[Answer]


def evenly(view: View, answers: Sequence[Answer], known: int, shared: Collection[str] = ()) -> Modelled:
    """Returns pods and answers for the count of the view, from those of `known` replicas.

    The known pods stay, the first ones, or are copied, so that shares of pods that are not ready stay as they were.
    """
    count = view.replicas
    pods = _pods(view.pods, count)
    if not answers:  # nothing was asked in this turn
        return Modelled(pods, answers)
    each, of_ready = (known / len(pods) if pods else 1.0), _of_ready(view.pods, pods)
    made = []
    for answer, metric, name in zip(answers, view.spec.metrics, addresses(view.spec.metrics), strict=True):
        factor = 1.0
        if metric.kind == VALUE:
            factor = of_ready or each
        elif name in shared:
            factor = each
        made.append(_shared_among(answer, view.pods, pods) if isinstance(answer, PodSample) else _times(answer, factor))
    return Modelled(pods, made)


def _of_ready(before: Sequence[Pod], now: Sequence[Pod]) -> float:
    """Returns how many ready pods there were for each one now; 0 where there is none."""
    ready = [sum(1 for pod in pods if pod.phase == "Running" and pod.ready == "True") for pods in (before, now)]
    return ready[0] / ready[1] if ready[1] else 0.0


def _pods(pods: Sequence[Pod], count: int) -> Sequence[Pod]:
    if count <= len(pods) or not pods:
        return pods[:count]
    copies = [
        msgspec.structs.replace(pods[index % len(pods)], name=_copy(pods[index % len(pods)].name, index // len(pods)))
        for index in range(len(pods), count)
    ]
    return [*pods, *copies]


def _copy(name: str, number: int) -> str:
    return f"{name}{_COPY}{number}"


def _times(answer: ExternalSample | ObjectSample | AdapterError, factor: float) -> Answer:
    if isinstance(answer, AdapterError) or factor == 1:
        return answer
    if isinstance(answer, ObjectSample):
        return ObjectSample(round(answer.value * factor), answer.timestamp)
    return msgspec.structs.replace(answer, values=tuple(round(value * factor) for value in answer.values))


def _shared_among(sample: PodSample, before: Sequence[Pod], now: Sequence[Pod]) -> PodSample:
    """Returns the values of the pods: those of the pods they are copies of, scaled so that the total stays."""
    known = {pod.name: sample.values[pod.name] for pod in before if pod.name in sample.values}
    total = sum(value.value for value in known.values())
    copied = {pod.name: known[_original(pod.name, known)] for pod in now if _original(pod.name, known) in known}
    sums = sum(value.value for value in copied.values())
    factor = total / sums if sums else 1.0
    values = {name: msgspec.structs.replace(each, value=round(each.value * factor)) for name, each in copied.items()}
    return PodSample(values, sample.timestamp)


def _original(name: str, known: Collection[str]) -> str:
    return name if name in known else name.rpartition(_COPY)[0]
