"""Spare replicas (`hpad.io/spare`): on top of what the metrics want, and not counted by them.

A metric measures the pods that are there, and within its tolerance proposes the count that is there. With the spare
ones among them, the target would grow by them in each turn, or shrink into them. So the metrics decide as for an HPA
without spare replicas, whose fewer pods share the same load (`without`); the spare ones come on top of what they want
(`added`), before windows, policies, minimum and maximum.

Which pods are spare is only a matter of counting: those first that do not exist yet or again, then those that are not
ready, then those without a usable value. So a pod that fails does not make the others look busier than they are.

Source of the idea: kubernetes/kubernetes#139189.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from hpad.api.hpa import ScaleSpec
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, Answer, ObjectSample, PodSample, PodValue
from hpad.engine.pods import READY, standing
from hpad.engine.propose import is_ready
from hpad.engine.spec import VALUE, CompiledMetric
from hpad.engine.view import View


class WithSpare(
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    rename={"wanted": "before", "replicas": "after"},
):
    """What spare replicas did: the counts before and after them.

    `amount` is as written. `counted` is the present count without its spare replicas, which the metrics decided for.
    """

    amount: str
    counted: int
    wanted: int
    replicas: int

    @property
    def clause(self) -> str:
        """The part of the sentence; "" where none are added."""
        added = self.replicas - self.wanted
        return f"{added} spare on top" if added else ""


def without(view: View, answers: Sequence[Answer]) -> tuple[View, Sequence[Answer]]:
    """Returns view and answers without the spare replicas: those that the metrics decide on.

    The load of pods that are left out is shared by the others. So is a Value, which Kubernetes expects to fall as the
    ready pods grow (`hpad.engine.shadow`). The same objects where no replica is spare. O(pods x metrics of pods).
    """
    counted = counting(view)
    if counted is view:
        return view, answers
    measured = [_measured(view, *each) for each in zip(view.spec.metrics, answers, strict=False)]
    spares = _spares(view, measured, view.replicas - counted.replicas)
    pods = [pod for pod in view.pods if pod.name not in spares]
    return replace(counted, pods=pods), [_of_fewer(each, spares) for each in measured]


def counting(view: View) -> View:
    """Returns the view with the counts without the spare replicas, and all pods; the same where no replica is spare."""
    own, scale = view.controls.spare, view.scale
    if own is None or scale is None:
        return view
    present = scale.spec.replicas
    extra = present - own.beneath(present)
    if not extra:
        return view
    status = replace(scale.status, replicas=_left(scale.status.replicas, present, extra))
    fewer = replace(scale, spec=ScaleSpec(present - extra), status=status)
    return replace(view, scale=fewer, controls=replace(view.controls, spare=None))


def added(view: View, wanted: int, *, uncertain: bool) -> WithSpare | None:
    """Returns the spare replicas on top of what the metrics want; None without the annotation.

    `uncertain`: a metric failed, so that the target does not shrink.
    """
    own = view.controls.spare
    if own is None:
        return None
    count = max(own.on(wanted), view.replicas) if uncertain else own.on(wanted)
    return WithSpare(amount=str(own), counted=own.beneath(view.replicas), wanted=wanted, replicas=count)


def _left(number: int, present: int, extra: int) -> int:
    """Returns how many of the pods are not spare; pods that are missing count as spare first."""
    return number - max(0, extra - max(0, present - number))


class _Measured(NamedTuple):
    """A metric with its answer, the pods that it is about, and of a metric of pods the values that count."""

    metric: CompiledMetric
    answer: Answer
    pods: Sequence[Pod]
    usable: Mapping[str, PodValue]


def _measured(view: View, metric: CompiledMetric, answer: Answer) -> _Measured:
    pods, usable = view.pods_of(metric), {}
    if isinstance(answer, PodSample):
        values, now, tunables = answer.values, view.now, view.tunables
        usable = {
            pod.name: values[pod.name]
            for pod in pods
            if standing(pod, values.get(pod.name), metric.is_cpu, now, tunables).group == READY
        }
    return _Measured(metric, answer, pods, usable)


def _spares(view: View, measured: Sequence[_Measured], extra: int) -> Collection[str]:
    """Returns the names of the pods that do not count; in doubt the last ones of the list.

    Each metric is about all of them. Where metrics are about a part of the replicas (`hpad.io/pods`), as many are spare
    as there are among that part.
    """
    active = [pod for pod in view.pods if pod.is_active]
    known = [each.usable for each in measured if isinstance(each.answer, PodSample)]
    number, pool = len(active) - _left(len(active), view.replicas, extra), active
    if view.controls.pods is not None:
        chosen = set.intersection({pod.name for pod in active}, *({pod.name for pod in each.pods} for each in measured))
        pool = [pod for pod in active if pod.name in chosen]
        number = number * min(view.replicas, len(pool)) // view.replicas

    def rank(pod: Pod) -> tuple[bool, bool]:
        return not is_ready(pod), any(pod.name not in values for values in known)

    return {pod.name for pod in sorted(pool, key=rank)[len(pool) - number :]}


def _of_fewer(measured: _Measured, spares: Collection[str]) -> Answer:
    """Returns the answer that the pods would give which are not spare."""
    metric, answer, pods, _ = measured
    if isinstance(answer, PodSample):
        return _shared(answer, measured.usable, spares)
    ready = [pod for pod in pods if is_ready(pod)]
    before, after = len(ready), sum(pod.name not in spares for pod in ready)
    if metric.kind != VALUE or not after or isinstance(answer, AdapterError):
        return answer
    if isinstance(answer, ObjectSample):
        return replace(answer, value=answer.value * before // after)
    # Rounded down: a thousandth more at a whole count would be a replica more.
    return replace(answer, values=tuple([value * before // after for value in answer.values]))


def _shared(sample: PodSample, usable: Mapping[str, PodValue], spares: Collection[str]) -> PodSample:
    """Returns the values of the pods that count, with the load of the spare ones shared evenly."""
    values = {name: value for name, value in sample.values.items() if name not in spares}
    heirs = [name for name in usable if name in values]
    if heirs:
        load = sum(value.value for name, value in usable.items() if name in spares)
        each, odd = divmod(load, len(heirs))
        for index, name in enumerate(heirs):
            own = values[name]
            values[name] = PodValue(own.value + each + (index < odd), own.timestamp, own.window)
    return replace(sample, values=values)
