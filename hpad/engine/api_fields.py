"""Fields of newer Kubernetes versions that say what an annotation of hpad says on all versions.

| field | annotation | source |
| --- | --- | --- |
| `spec.syncPeriodSeconds` | `hpad.io/sync-period` | KEP-6003, alpha, aimed at Kubernetes 1.38 |
| `spec.selectionStrategy` | `hpad.io/pod-selection` | KEP-5325, not released |
| `spec.metrics[].external.fallback` | `hpad.io/fallback`, `hpad.io/failure-duration-seconds` | KEP-5679, not released |

A server that does not know a field drops it. Where a field and the annotation are both there, the field wins, and where
they differ that is an error: with the same value in both, an HPA suits servers with and without the field.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from hpad.api.autoscaler import PREFIX
from hpad.api.hpa import OWNER_REFERENCE, ExternalMetricFallback, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec
from hpad.api.problem import Problem
from hpad.engine import controls, fallback_policy
from hpad.engine.controls import OWNER, SELECTOR
from hpad.engine.fallback_policy import Fallback, FallbackPolicy
from hpad.engine.spec import CompiledMetric

OVERRIDDEN: Final = "OverriddenAnnotation"
"""The reason of HpadAnnotationsValid for an annotation beside its field that has another value."""
FALLBACK: Final = f"{PREFIX}fallback"
_NOTHING: Final[Mapping[str, str]] = {}
_SYNC_PERIOD: Final = "spec.syncPeriodSeconds"
_STRATEGY: Final = "spec.selectionStrategy"
_FIELDS: Final[Mapping[str, str]] = {_SYNC_PERIOD: controls.SYNC_PERIOD, _STRATEGY: controls.POD_SELECTION}
"""The annotation of each field of the spec."""


def texts(hpa: HorizontalPodAutoscaler) -> Mapping[str, str]:
    """Returns the annotations that the fields of the spec stand for. Nearly all HPAs have none."""
    spec = hpa.spec
    if spec.sync_period_seconds is None and not spec.selection_strategy:
        return _NOTHING
    found: dict[str, str] = {}
    if spec.sync_period_seconds is not None:
        found[controls.SYNC_PERIOD] = f"{spec.sync_period_seconds}s"
    if spec.selection_strategy:
        found[controls.POD_SELECTION] = OWNER if spec.selection_strategy == OWNER_REFERENCE else SELECTOR
    return found


def overridden(given: Mapping[str, str], by_fields: Mapping[str, str]) -> list[Problem]:
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


def fallbacks(metrics: Sequence[CompiledMetric]) -> tuple[Fallback | None, ...]:
    """Returns the fallback that the spec of each metric has."""
    specs = [metric.spec.external for metric in metrics]
    return tuple([None if each is None else _fallback(each.fallback) for each in specs])


def with_fallbacks(policies: Sequence[FallbackPolicy], metrics: Sequence[CompiledMetric]) -> tuple[FallbackPolicy, ...]:
    """Returns the policies of the metrics with the fallbacks that stand in the spec, which win."""
    return tuple(
        policy if fallback is None else msgspec.structs.replace(policy, fallback=fallback)
        for policy, fallback in zip(policies, fallbacks(metrics), strict=True)
    )


def missing(spec: HorizontalPodAutoscalerSpec) -> list[Problem]:
    """Returns what to write for servers without the fields that the spec has."""
    found = [(_SYNC_PERIOD, controls.SYNC_PERIOD)] if spec.sync_period_seconds is not None else []
    if spec.selection_strategy:
        found.append((_STRATEGY, controls.POD_SELECTION))
    for index, metric in enumerate(spec.metrics):
        if metric.external is not None and metric.external.fallback is not None:
            found.append((f"spec.metrics[{index}].external.fallback", FALLBACK))
    return [
        Problem(field, f"{field}: Kubernetes up to 1.37 drops this field; there the annotation {annotation} says it")
        for field, annotation in found
    ]


def _fallback(field: ExternalMetricFallback | None) -> Fallback | None:
    if field is None:
        return None
    seconds, after = field.failure_duration_seconds, fallback_policy.DEFAULT_AFTER
    if seconds is not None:
        after = timedelta(seconds=min(seconds, fallback_policy.MOST_SECONDS))
    return Fallback(kind=fallback_policy.REPLICAS, replicas=field.replicas, after=after)
