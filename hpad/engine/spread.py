"""Pods and answers as they would be with another number of replicas, which share the same load evenly.

The total of a metric of pods over the counted pods is the load. The values of Object and External metrics are totals,
unless they are said to be shared by the replicas.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, PodSample, Sample
from hpad.engine.addresses import addresses
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
    pairs = zip(answers, addresses(view.spec.metrics), strict=True)
    return Modelled(pods, [_scaled(answer, name in shared, view.pods, pods, known) for answer, name in pairs])


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


def _scaled(answer: Answer, is_shared: bool, before: Sequence[Pod], now: Sequence[Pod], known: int) -> Answer:
    count = len(now)
    if isinstance(answer, AdapterError):
        return answer
    if isinstance(answer, PodSample):
        return _shared_among(answer, before, now)
    if not is_shared or not count:
        return answer
    if isinstance(answer, ObjectSample):
        return ObjectSample(round(answer.value * known / count), answer.timestamp)
    return ExternalSample(tuple(round(value * known / count) for value in answer.values), answer.timestamp)


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
