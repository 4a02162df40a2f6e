"""Shadow mode: decides for a count that hpad would have given the target, while the target is left alone.

The count begins as that of the target. Then only the decisions of hpad change it, so that windows, policies and later
steps are those of an HPA that scales. It decides on the load of the real pods as if it were shared evenly by as many
pods as the count (`evenly`). While the target is stopped, at zero replicas, there is no other count.
"""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from hpad.api.hpa import Scale, ScaleSpec
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, Answer, ExternalSample, ObjectSample, PodSample
from hpad.engine.addresses import addresses
from hpad.engine.controls import IN_SHADOW
from hpad.engine.decision import Decision
from hpad.engine.examine import Proceed, Verdict
from hpad.engine.history import History, Memory
from hpad.engine.propose import is_ready, metric_status, propose
from hpad.engine.spec import VALUE
from hpad.engine.view import DRY_RUN, SHADOW, Shadow, View, Withheld

_COPY: Final = "~"
"""Stands between the name of a pod and the number of its copy."""


class Modelled(NamedTuple):
    """The pods and the answers that a workload would have with another count than the known one."""

    pods: Sequence[Pod]
    answers: Sequence[Answer]


def evenly(view: View, answers: Sequence[Answer], known: int, shared: Collection[str] = ()) -> Modelled:
    """Returns pods and answers for the count of the view, from those of `known` replicas, which share the same load.

    The total of a metric of pods over the counted pods is the load. An Object or External metric with a Value is shared
    as well: Kubernetes multiplies its ratio by the ready pods, which expects that it falls as they grow
    (replica_calculator.go: getUsageRatioReplicaCount). With an AverageValue it is a total, unless `shared` names it.
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
    ready = [sum(map(is_ready, pods)) for pods in (before, now)]
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


def reason(view: View, *, dry_run: bool) -> Withheld | None:
    """Returns why the HPA is in shadow mode; None if it is not. A paused HPA keeps the count of its target."""
    return None if view.paused is not None else mode(view, dry_run=dry_run)


def mode(view: View, *, dry_run: bool) -> Withheld | None:
    """Returns why the HPA is in shadow mode whenever it is not paused; None if it never is."""
    if dry_run:
        return DRY_RUN
    return SHADOW if view.controls.mode == IN_SHADOW else None


def entered(view: View, memory: Memory, *, dry_run: bool) -> tuple[View, Memory]:
    """Returns the view and the state to decide with: in shadow mode those of the shadow, else those after it.

    `applied` completes the view once the answers are known.
    """
    why, count = reason(view, dry_run=dry_run), memory.shadow
    if why is None:
        return view, memory if count is None else msgspec.structs.replace(memory, history=left(memory.history))
    if count is not None and view.replicas:  # a stopped target has no shadow
        memory = msgspec.structs.replace(memory, last_count=count, pending=None)
    return begun(view, why, count), memory


def begun(view: View, why: Withheld, count: int | None) -> View:
    """Returns the view with `count`, that of the shadow after the last turn (None: there is none yet)."""
    scale = view.scale
    if scale is None:
        known = view.hpa.status.current_replicas
        return msgspec.structs.replace(view, shadow=Shadow(why, known, known))
    real = scale.spec.replicas
    shadowed = msgspec.structs.replace(view, shadow=Shadow(why, real, scale.status.replicas))
    if not real or count is None or count == real:
        return shadowed
    return msgspec.structs.replace(shadowed, scale=_with(scale, count, count))


def applied(view: View, verdict: Verdict, answers: Sequence[Answer]) -> tuple[View, Sequence[Answer]]:
    """Returns the view and the answers that the shadow decides on; `answers` are those about the real pods.

    A recorded view has been through this: its shadow has `metrics`, and stays as it is.
    """
    shadow, scale = view.shadow, view.scale
    if shadow is None or shadow.metrics is not None or scale is None or not isinstance(verdict, Proceed):
        return view, answers
    real = msgspec.structs.replace(view, scale=_with(scale, shadow.replicas, shadow.observed))
    metrics = tuple(metric_status(propose(real, *each)) for each in zip(verdict.metrics, answers, strict=True))
    made = Modelled(view.pods, answers)
    if view.replicas != shadow.replicas:
        made = evenly(view, answers, shadow.replicas)
    shadow = msgspec.structs.replace(shadow, metrics=metrics)
    return msgspec.structs.replace(view, pods=made.pods, shadow=shadow), made.answers


def count_after(view: View, decision: Decision) -> int | None:
    """Returns the count of the shadow after this decision; None where there is no other count than the target's."""
    if view.shadow is None or view.scale is None or not view.shadow.replicas:
        return None
    return decision.current if decision.scale_to is None else decision.scale_to


def left(history: History) -> History:
    """Returns the history of an HPA that leaves shadow mode: what was wanted counts, and no rescale was made."""
    return msgspec.structs.replace(history, scale_ups=(), scale_downs=())


def _with(scale: Scale, replicas: int, observed: int) -> Scale:
    status = msgspec.structs.replace(scale.status, replicas=observed)
    return msgspec.structs.replace(scale, spec=ScaleSpec(replicas), status=status)
