"""What an HPA sets for itself: its annotations under `hpad.io/`, and those that the configuration gives it.

An Autoscaler has them as `spec.options`, whose errors name the option.

These are its fallback policies, its activation thresholds, and its controls (`hpad.engine.controls`).
docs/reference/annotations.md describes them. An invalid annotation has no effect, and the others hold.

Fields of newer Kubernetes versions say what an annotation says on all versions:

| field | annotation | source |
| --- | --- | --- |
| `spec.syncPeriodSeconds` | `hpad.io/sync-period` | KEP-6003, alpha, aimed at Kubernetes 1.38 |
| `spec.selectionStrategy` | `hpad.io/pod-selection` | KEP-5325, not released |
| `spec.metrics[].external.fallback` | `hpad.io/fallback`, `hpad.io/failure-duration-seconds` | KEP-5679, not released |

A server that does not know a field drops it. Where a field and the annotation are both there, the field wins, and where
they differ that is an error: with the same value in both, an HPA suits servers with and without the field.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from hpad.api.autoscaler import PREFIX
from hpad.api.bounded_cache import bounded_cache
from hpad.api.hpa import (
    AUTOSCALER,
    KIND,
    OWNER_REFERENCE,
    ExternalMetricFallback,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
)
from hpad.api.problem import Problem
from hpad.api.quantity import QuantityError, parse_milli
from hpad.api.text import begin, closest, shown, visible
from hpad.engine import addresses, controls, fallback_policy, metric_policy, schedule
from hpad.engine.addresses import MetricIdentity, identities
from hpad.engine.controls import NO_CONTROLS, OWNER, SELECTOR, Controls
from hpad.engine.fallback_policy import DEFAULT_AFTER, LAST_GOOD, Fallback, FallbackPolicy, Fallbacks
from hpad.engine.spec import CompiledMetric, compiled_spec

T = TypeVar("T")

FALLBACK: Final = f"{PREFIX}fallback"
FAILURE_DURATION: Final = "hpad.io/failure-duration-seconds"
ACTIVATION: Final = "hpad.io/activation"
_OF_METRICS: Final = 1 << 13
"""Characters of an annotation with a part for each metric."""
ANNOTATIONS: Final[Mapping[str, int]] = {
    **dict.fromkeys((FALLBACK, FAILURE_DURATION, ACTIVATION), _OF_METRICS),
    **{name: control.longest for name, control in controls.CONTROLS.items()},
}
"""The annotations, and the number of characters that each may have."""

Defaults = Callable[[HorizontalPodAutoscaler], Mapping[str, str]]
"""Returns the annotations that the configuration gives an HPA; those of the HPA itself replace them one by one."""

UNKNOWN: Final = "UnknownAnnotation"
INVALID: Final = "InvalidAnnotation"
OVERRIDDEN: Final = "OverriddenAnnotation"
"""The reason of HpadAnnotationsValid for an annotation beside its field that has another value."""
_NO_TEXTS: Final[Mapping[str, str]] = {}
_FIELDS: Final[Mapping[str, str]] = {
    "spec.syncPeriodSeconds": controls.SYNC_PERIOD,
    "spec.selectionStrategy": controls.POD_SELECTION,
}
"""The annotation of each field of the spec."""
_LONGEST_TEXT: Final = 4096
_PARSED: Final = 50
"""What read annotations take for each character: the parts of a metric policy, above all."""
_MOST_UNKNOWN: Final = 10
"""Unknown annotations that are named, and compared with the known ones, which takes long beside a decision."""


def sentence(error: Problem, kind: str = KIND) -> str:
    """Returns the error with the name of its annotation, or of its option in an Autoscaler."""
    noun = "" if kind == AUTOSCALER else "annotation "
    return f"{noun}{visible(controls.written(error.path, kind))}: {error.text}"


class Own(NamedTuple):
    """What an HPA sets for itself.

    `policies` has the policy of each metric, in order (empty: none), `errors` the errors in the annotations: their
    paths are the names of annotations, their reasons INVALID or UNKNOWN. `kind` is that of the HPA.
    """

    policies: tuple[FallbackPolicy, ...] = ()
    controls: Controls = NO_CONTROLS
    errors: tuple[Problem, ...] = ()
    kind: str = KIND

    @property
    def error(self) -> str | None:
        """The errors of all annotations, at most 4,096 characters; None where there are none."""
        if not self.errors:
            return None
        return begin("; ".join([sentence(error, self.kind) for error in self.errors]), _LONGEST_TEXT)

    @property
    def reason(self) -> str | None:
        """The reason of the condition HpadAnnotationsValid: that of the worst error, None without errors."""
        if not self.errors:
            return None
        reasons = {error.reason for error in self.errors}
        return next((reason for reason in (INVALID, UNKNOWN, OVERRIDDEN) if reason in reasons), None)


NOTHING: Final = Own()


def read(annotations: Mapping[str, str] | None, metrics: Sequence[CompiledMetric]) -> Own:
    """Returns what these annotations set for these metrics, and the errors in them. Never raises."""
    own = _own(annotations, KIND)
    return _read(own, identities(metrics)) if own is not _NONE else NOTHING


class AnnotationReader(NamedTuple):
    """Reads what HPAs set for themselves.

    `fallbacks` are those of metric sources, for metrics without a policy of their own; `defaults` are those of the
    configuration.
    """

    fallbacks: Fallbacks | None = None
    defaults: Defaults | None = None

    def reads_files(self, hpa: HorizontalPodAutoscaler) -> bool:
        """Whether `of` has to read files, which the event loop must not wait for."""
        text = (self._given(hpa) or _NO_TEXTS).get(controls.SCHEDULE)
        return text is not None and len(text) <= ANNOTATIONS[controls.SCHEDULE] and schedule.reads_files(text)

    def of(self, hpa: HorizontalPodAutoscaler) -> Own:
        """Returns what the HPA sets for itself. Never raises."""
        own, spec = self._own(hpa), compiled_spec(hpa)
        if self.fallbacks is None and own is _NONE and not spec.has_fallback:
            return NOTHING
        metrics = spec.metrics
        found = _read(own, identities(metrics)) if own is not _NONE else NOTHING
        if spec.has_fallback:
            found = _with_fields(found, metrics, hpa)
        return found if self.fallbacks is None else _with_sources(found, metrics, self.fallbacks)

    def sync_period(self, hpa: HorizontalPodAutoscaler) -> float | None:
        """Returns the HPA's own sync period in seconds; None where the setting applies. Never raises."""
        text = dict(self._own(hpa).texts).get(controls.SYNC_PERIOD)
        period = None if text is None else controls.read({controls.SYNC_PERIOD: text}).controls.sync_period
        return None if period is None else period.total_seconds()

    def budget(self, hpa: HorizontalPodAutoscaler) -> tuple[str, int] | None:
        """Returns the budget that the HPA shares, and its priority; None without one. Never raises."""
        texts = {name: text for name, text in self._own(hpa).texts if name in (controls.BUDGET, controls.PRIORITY)}
        found = controls.read(texts).controls
        return None if found.budget is None else (found.budget, found.budget_priority or 0)

    def _own(self, hpa: HorizontalPodAutoscaler) -> "_Own":
        found, by_fields = self._given(hpa), _texts_of_fields(hpa.spec)
        if not by_fields:
            return _own(found, hpa.kind)
        own = _own({**(found or {}), **by_fields}, hpa.kind)
        return own._replace(errors=(*own.errors, *_overridden(hpa.metadata.annotations or {}, by_fields)))

    def _given(self, hpa: HorizontalPodAutoscaler) -> Mapping[str, str] | None:
        """Returns the annotations of the HPA, with those of the configuration."""
        annotations = hpa.metadata.annotations
        return annotations if self.defaults is None else {**self.defaults(hpa), **(annotations or {})}


PLAIN: Final = AnnotationReader()
"""Reads annotations alone."""


def _with_fields(found: Own, metrics: Sequence[CompiledMetric], hpa: HorizontalPodAutoscaler) -> Own:
    """Puts the fallbacks of the spec in the place of others. An annotation of the HPA that differs is an error."""
    is_own = FALLBACK in (hpa.metadata.annotations or {})
    policies, errors = found.policies or (FallbackPolicy(),) * len(metrics), list(found.errors)
    merged = with_fallbacks(policies, metrics)
    for index, (policy, made) in enumerate(zip(policies, merged, strict=True)):
        if is_own and made is not policy and _timed(policy.fallback, DEFAULT_AFTER) not in (None, made.fallback):
            text = f"spec.metrics[{index}].external.fallback says something else, and wins: remove one of them"
            errors.append(Problem(FALLBACK, text, reason=OVERRIDDEN))
    return found._replace(policies=merged, errors=tuple(errors), kind=hpa.kind)


def _with_sources(found: Own, metrics: Sequence[CompiledMetric], fallbacks: Fallbacks) -> Own:
    """Adds the fallbacks of metric sources, for metrics without one of their own."""
    of_sources = [None if metric.error is not None else fallbacks(metric.query) for metric in metrics]
    if not any(of_sources):
        return found
    policies = found.policies or (FallbackPolicy(),) * len(metrics)
    merged = tuple(
        policy if policy.fallback is not None else msgspec.structs.replace(policy, fallback=fallback)
        for policy, fallback in zip(policies, of_sources, strict=True)
    )
    return found._replace(policies=merged)


class _Own(NamedTuple):
    """The annotations under `hpad.io/`, in sizes that may be kept: the API server lets their author write 256 KiB.

    `texts` are the known ones with their values, `errors` those whose values are too long, and `unknown` the names of
    the first others, of `unknown_count`. `kind` is that of the HPA.
    """

    texts: tuple[tuple[str, str], ...] = ()
    errors: tuple[Problem, ...] = ()
    unknown: tuple[str, ...] = ()
    unknown_count: int = 0
    kind: str = KIND


_NONE: Final = _Own()


def _own(annotations: Mapping[str, str] | None, kind: str) -> _Own:
    found = [(name, text) for name, text in (annotations or {}).items() if name.startswith(PREFIX)]
    if not found:
        return _NONE
    texts, errors, unknown = [], [], []
    for name, text in found:
        if name not in ANNOTATIONS:
            unknown.append(name)
            continue
        try:
            controls.require_length(text, ANNOTATIONS[name])
            texts.append((name, text))
        except ValueError as error:
            errors.append(Problem(name, str(error), reason=INVALID))
    return _Own(tuple(texts), tuple(errors), tuple(unknown[:_MOST_UNKNOWN]), len(unknown), kind)


def _weight(own: _Own, metrics: tuple[MetricIdentity, ...]) -> int:
    """Returns the bytes that read annotations take, with the names and selectors that they are kept by."""
    written = sum([len(text) for _, text in own.texts])
    return addresses.weight(metrics) + _PARSED * written


@bounded_cache(_weight)
def _read(own: _Own, metrics: tuple[MetricIdentity, ...]) -> Own:
    """Parses the annotations. Cached, since each turn of an HPA needs the result."""
    texts, errors = dict(own.texts), [*own.errors, *_unknown(own)]

    def values(name: str, parse_value: Callable[[str], T]) -> tuple[T | None, ...]:
        try:
            if name in texts:
                return addresses.assigned(texts[name], parse_value, metrics)
        except ValueError as error:
            errors.append(Problem(name, str(error), reason=INVALID))
        return (None,) * len(metrics)

    fallbacks, after = values(FALLBACK, fallback_policy.parse), values(FAILURE_DURATION, _seconds)
    thresholds = values(ACTIVATION, _threshold)
    policies = tuple(
        FallbackPolicy(fallback=_timed(fallback, seconds), activation=threshold)
        for fallback, seconds, threshold in zip(fallbacks, after, thresholds, strict=True)
    )
    some = any(policy != FallbackPolicy() for policy in policies)
    found = controls.read(texts)
    errors += [Problem(name, text, reason=INVALID) for name, text in found.errors]
    return Own(policies if some else (), _resolved(found.controls, metrics, errors), tuple(errors), own.kind)


def _resolved(found: Controls, metrics: tuple[MetricIdentity, ...], errors: list[Problem]) -> Controls:
    """Returns the controls without those whose addresses do not fit the metrics; adds the errors."""
    checks: tuple[tuple[str, Any, Callable[..., object]], ...] = (
        (controls.METRIC_POLICY, found.metric_policy, metric_policy.bound),
        (controls.PODS, found.pods, controls.require_known),
    )
    for name, value, check in checks:
        try:
            if value is not None:
                check(value, metrics)
        except ValueError as error:
            errors.append(Problem(name, str(error), reason=INVALID))
            found = controls.without(found, name)
    return found


def _unknown(own: _Own) -> list[Problem]:
    noun = "option" if own.kind == AUTOSCALER else "annotation"
    found = [Problem(name, f"there is no such {noun}{_advice(name, own.kind)}", reason=UNKNOWN) for name in own.unknown]
    more = own.unknown_count - len(found)
    if more:
        found[-1] = found[-1]._replace(text=f"{found[-1].text}; {more:,} more do not exist either")
    return found


def _advice(name: str, kind: str) -> str:
    known = tuple([annotation.removeprefix(PREFIX) for annotation in ANNOTATIONS])
    prefix = "" if kind == AUTOSCALER else PREFIX
    # An option of an Autoscaler that is written with the prefix has it twice here.
    close = closest(name.removeprefix(PREFIX).removeprefix(PREFIX), known)
    if close:
        return f'; did you mean "{prefix}{close}"?'
    return f"; there are {', '.join([f'{prefix}{each}' for each in known])}"


def _timed(fallback: Fallback | None, after: timedelta | None) -> Fallback | None:
    # The failure duration does not delay last-good: its value is valid at once, and ages.
    if fallback is None or after is None or fallback.after is not None or fallback.kind == LAST_GOOD:
        return fallback
    return msgspec.structs.replace(fallback, after=after)


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=fallback_policy.whole_number(text, 0, fallback_policy.MOST_SECONDS))


def _threshold(text: str) -> int:
    try:
        return parse_milli(text)
    except QuantityError:
        raise ValueError(f"{shown(text)} is not a number such as 5 or 500m") from None


def _texts_of_fields(spec: HorizontalPodAutoscalerSpec) -> Mapping[str, str]:
    """Returns the annotations that the fields of the spec stand for. Nearly all HPAs have none."""
    if spec.sync_period_seconds is None and not spec.selection_strategy:
        return _NO_TEXTS
    found: dict[str, str] = {}
    if spec.sync_period_seconds is not None:
        found[controls.SYNC_PERIOD] = f"{spec.sync_period_seconds}s"
    if spec.selection_strategy:
        found[controls.POD_SELECTION] = OWNER if spec.selection_strategy == OWNER_REFERENCE else SELECTOR
    return found


def _overridden(given: Mapping[str, str], by_fields: Mapping[str, str]) -> list[Problem]:
    """Returns a problem for each annotation that is given beside its field with another value."""
    return [
        Problem(annotation, f"{field} says something else, and wins: remove one of them", reason=OVERRIDDEN)
        for field, annotation in _FIELDS.items()
        if annotation in given and annotation in by_fields and _differ(annotation, given, by_fields)
    ]


def _differ(annotation: str, given: Mapping[str, str], by_fields: Mapping[str, str]) -> bool:
    if given[annotation] == by_fields[annotation]:
        return False  # as in each turn of an HPA that suits all servers
    try:
        return bool(controls.parse(annotation, given[annotation]) != controls.parse(annotation, by_fields[annotation]))
    except ValueError:
        return True


def with_fallbacks(policies: Sequence[FallbackPolicy], metrics: Sequence[CompiledMetric]) -> tuple[FallbackPolicy, ...]:
    """Returns the policies of the metrics with the fallbacks that stand in the spec, which win."""
    specs = [metric.spec.external for metric in metrics]
    fallbacks = [None if each is None else _fallback(each.fallback) for each in specs]
    return tuple(
        policy if fallback is None else msgspec.structs.replace(policy, fallback=fallback)
        for policy, fallback in zip(policies, fallbacks, strict=True)
    )


def _fallback(field: ExternalMetricFallback | None) -> Fallback | None:
    if field is None:
        return None
    seconds, after = field.failure_duration_seconds, fallback_policy.DEFAULT_AFTER
    if seconds is not None:
        after = timedelta(seconds=min(seconds, fallback_policy.MOST_SECONDS))
    return Fallback(kind=fallback_policy.REPLICAS, replicas=field.replicas, after=after)


def missing_fields(spec: HorizontalPodAutoscalerSpec) -> list[Problem]:
    """Returns what to write for servers without the fields that the spec has."""
    there = _texts_of_fields(spec)
    found = [(field, annotation) for field, annotation in _FIELDS.items() if annotation in there]
    for index, metric in enumerate(spec.metrics):
        if metric.external is not None and metric.external.fallback is not None:
            found.append((f"spec.metrics[{index}].external.fallback", FALLBACK))
    return [
        Problem(field, f"{field}: Kubernetes up to 1.37 drops this field; there the annotation {annotation} says it")
        for field, annotation in found
    ]
