"""The pods of one metric in a trace: what each pod counted as, and with which value."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from hpad.api.pod import Pod
from hpad.api.quantity import Format, Quantity
from hpad.api.sample import PodSample, PodValue, Sample
from hpad.engine import controls
from hpad.engine.pods import (
    IGNORED,
    MISSING,
    READY,
    UNREADY,
    Usage,
    divided,
    group,
    guessed,
    known_request,
    requests,
    standing,
)
from hpad.engine.spec import UTILIZATION, CompiledMetric
from hpad.engine.trace.metric_types import PodTrace
from hpad.engine.view import View

LACKING: Final = "lacking"
UNLISTED: Final = "unlisted"
"""The groups of pods beside those of `hpad.engine.pods`: without the container of the metric; not listed."""


class PodTraces(NamedTuple):
    """The pods of one metric, and the number of pods that were left out."""

    pods: tuple[PodTrace, ...] = ()
    omitted: int = 0


def pod_traces(
    view: View, metric: CompiledMetric, sample: Sample, usage: Usage | None, most: int | None = None
) -> PodTraces:
    """Returns the pods in the order of the list, then values of pods that are not listed; none for other metrics.

    Of more than `most` pods, ready ones are left out, then values of pods that are not listed.
    """
    if not metric.of_pods or not isinstance(sample, PodSample):
        return PodTraces()
    if most == 0:
        return PodTraces(omitted=len(view.pods))
    told = view.tunables.gates.HPAPodOverheadIgnored  # if not, a request may differ by an overhead
    written = {pod.name: pod for pod in view.pods if told and pod.other_requests is not None}
    view = msgspec.structs.replace(view, pods=view.counted_pods)
    left_out = _left_out(view, metric)
    assumed = _assumed(view, metric, sample, usage, left_out)
    shown = _shown(view, metric, sample, left_out, most)
    unlisted = _unlisted(view.pods, sample.values)
    others = unlisted if most is None else unlisted[: most - len(shown)]
    pods = (
        *(
            _resized(_listed(view, metric, pod, sample, assumed), metric, written.get(pod.name))
            if pod.name not in left_out
            else left_out[pod.name]
            for pod in shown
        ),
        *(_of_unlisted(name, sample.values[name]) for name in others),
    )
    return PodTraces(pods, len(view.pods) + len(unlisted) - len(pods))


def _shown(
    view: View, metric: CompiledMetric, sample: PodSample, left_out: Collection[str], most: int | None
) -> Sequence[Pod]:
    """Returns at most that many pods in their order, ready ones only where the others leave room."""
    if most is None or len(view.pods) <= most:
        return view.pods
    is_ready = [
        pod.name not in left_out
        and standing(pod, sample.values.get(pod.name), metric.is_cpu, view.now, view.tunables).group == READY
        for pod in view.pods
    ]
    ranked = sorted(range(len(view.pods)), key=lambda index: (is_ready[index], index))
    return [view.pods[index] for index in sorted(ranked[:most])]


def _left_out(view: View, metric: CompiledMetric) -> Mapping[str, PodTrace]:
    """Returns the pods that a metric is not about (`hpad.io/pods`), or that lack its container while others have it."""
    pods, selector = view.pods_of(metric), view.chosen_by(metric)
    _, lacking = divided(metric, pods, view.tunables)
    found = {pod.name: _lacking(view, metric, pod) for pod in lacking}
    if selector is not None:
        why = f"its labels are not {selector} ({controls.written(controls.PODS, view.hpa.kind)})"
        chosen = {pod.name for pod in pods}
        others = [pod.name for pod in view.pods if pod.name not in chosen]
        found.update((name, PodTrace(name=name, group=IGNORED, why=why)) for name in others)
    return found


def _assumed(
    view: View, metric: CompiledMetric, sample: PodSample, usage: Usage | None, left_out: Collection[str]
) -> Mapping[str, int]:
    """Returns the values that stand for those of unready and missing pods."""
    if usage is None:
        return {}
    pods = [pod for pod in view.pods if pod.name not in left_out]
    values = {name: value for name, value in sample.values.items() if name not in left_out}
    groups = group(pods, values, metric.is_cpu, view.now, view.tunables)
    requested = requests(pods, metric.query) if metric.kind == UTILIZATION else {}
    found = guessed(metric, groups, usage.ratio, requested) or {}
    return {name: found[name] for name in (*groups.missing, *groups.unready) if name in found}


def _listed(view: View, metric: CompiledMetric, pod: Pod, sample: PodSample, assumed: Mapping[str, int]) -> PodTrace:
    value = sample.values.get(pod.name)
    counts = standing(pod, value, metric.is_cpu, view.now, view.tunables)
    return PodTrace(
        name=pod.name,
        group=counts.group,
        why=counts.why,
        value=None if value is None else quantity(value.value, metric.format),
        request=_request(metric, pod),
        assumed=quantity(assumed[pod.name], metric.format) if pod.name in assumed else None,
        timestamp=None if value is None else value.timestamp,
        window_seconds=None if value is None else value.window.total_seconds(),
    )


def _resized(trace: PodTrace, metric: CompiledMetric, written: Pod | None) -> PodTrace:
    """Says that another request counts than the one of the spec. `written` has that one, where the pod has others."""
    request = None if written is None else _request(metric, written)
    if trace.why or trace.request is None or request in (None, trace.request):
        return trace
    return msgspec.structs.replace(trace, why=f"a resize to {request} is not in force")


def _lacking(view: View, metric: CompiledMetric, pod: Pod) -> PodTrace:
    counts = standing(pod, None, metric.is_cpu, view.now, view.tunables)
    why = f"it has no container {metric.query.container}"
    if counts.group == MISSING:
        return PodTrace(name=pod.name, group=LACKING, why=why)
    return PodTrace(name=pod.name, group=IGNORED, why=why if counts.group == UNREADY else counts.why)


def _unlisted(pods: Sequence[Pod], values: Mapping[str, PodValue]) -> Sequence[str]:
    listed = {pod.name for pod in pods}
    return [name for name in values if name not in listed]


def _of_unlisted(name: str, value: PodValue) -> PodTrace:
    return PodTrace(
        name=name,
        group=UNLISTED,
        why="the source has a value for it, but the selector of the target does not list it",
        value=quantity(value.value),
        timestamp=value.timestamp,
        window_seconds=value.window.total_seconds(),
    )


def _request(metric: CompiledMetric, pod: Pod) -> str | None:
    found = known_request(metric, pod)
    return None if found is None else quantity(found, metric.format)


def quantity(milli: int, form: Format = Format.DECIMAL_SI) -> str:
    """Returns an amount as a text of the API."""
    return str(Quantity.from_milli(milli, form))
