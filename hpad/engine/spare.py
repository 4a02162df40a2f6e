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
from typing import Final

from msgspec.structs import replace

from hpad.api.hpa import ScaleSpec
from hpad.api.pod import Pod
from hpad.api.sample import AdapterError, ExternalSample, ObjectSample, PodSample, PodValue, Sample
from hpad.engine.pods import READY, standing
from hpad.engine.propose import is_ready
from hpad.engine.spare_replicas import WithSpare
from hpad.engine.spec import VALUE, CompiledMetric
from hpad.engine.view import View

Answer = Sample | AdapterError
_FINISHED: Final = ("Succeeded", "Failed")
_Values = Mapping[str, PodValue]


def without(view: View, answers: Sequence[Answer]) -> tuple[View, Sequence[Answer]]:
    """Returns view and answers without the spare replicas: those that the metrics decide on.

    The load of pods that are left out is shared by the others. So is a Value, which Kubernetes expects to fall as the
    ready pods grow (`hpad.engine.shadow`). The same objects where no replica is spare. O(pods x metrics of pods).
    """
    counted = counting(view)
    if counted is view:
        return view, answers
    metrics, extra = view.spec.metrics, view.replicas - counted.replicas
    usable = [_usable(view, *each) for each in zip(metrics, answers, strict=False)]
    spares = _spares(view, usable, extra)
    pods = [pod for pod in view.pods if pod.name not in spares]
    ready = sum(map(is_ready, view.pods)), sum(map(is_ready, pods))
    made = [
        _shared(answer, spares, values) if isinstance(answer, PodSample) else _of_fewer(metric, answer, *ready)
        for metric, answer, values in zip(metrics, answers, usable, strict=False)
    ]
    return replace(counted, pods=pods), made


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


def _usable(view: View, metric: CompiledMetric, answer: Answer) -> _Values | None:
    """Returns the values that count, of a metric of pods."""
    if not isinstance(answer, PodSample):
        return None
    values, now, tunables = answer.values, view.now, view.tunables
    return {
        pod.name: values[pod.name]
        for pod in view.pods
        if standing(pod, values.get(pod.name), metric.is_cpu, now, tunables).group == READY
    }


def _spares(view: View, usable: Sequence[_Values | None], extra: int) -> Collection[str]:
    """Returns the names of the pods that do not count; in doubt the last ones of the list."""
    active = [pod for pod in view.pods if not pod.deleted and pod.phase not in _FINISHED]

    def rank(pod: Pod) -> tuple[bool, bool]:
        return not is_ready(pod), any(values is not None and pod.name not in values for values in usable)

    return {pod.name for pod in sorted(active, key=rank)[_left(len(active), view.replicas, extra) :]}


def _shared(sample: PodSample, spares: Collection[str], usable: _Values | None) -> PodSample:
    """Returns the values of the pods that count, with the load of the spare ones shared evenly."""
    values = {name: value for name, value in sample.values.items() if name not in spares}
    heirs = [name for name in usable or () if name in values]
    if heirs:
        load = sum(value.value for name, value in (usable or {}).items() if name in spares)
        each, odd = divmod(load, len(heirs))
        for index, name in enumerate(heirs):
            own = values[name]
            values[name] = PodValue(own.value + each + (index < odd), own.timestamp, own.window)
    return replace(sample, values=values)


def _of_fewer(metric: CompiledMetric, answer: Answer, before: int, after: int) -> Answer:
    """Returns the answer of a metric of the whole target with `after` ready pods instead of `before`."""
    if metric.kind != VALUE or not after or isinstance(answer, AdapterError):
        return answer
    if isinstance(answer, ObjectSample):
        return replace(answer, value=_times(answer.value, before, after))
    assert isinstance(answer, ExternalSample)
    return replace(answer, values=tuple([_times(value, before, after) for value in answer.values]))


def _times(value: int, before: int, after: int) -> int:
    """Returns the value times before / after, to the nearest integer."""
    return (2 * value * before + after) // (2 * after)
