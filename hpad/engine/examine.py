"""Stage examine: decides whether metrics are needed for an HPA at all.

The order of the checks is that of Kubernetes 1.36, horizontal.go: reconcileAutoscaler.
"""

from typing import ClassVar, Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.sample import RESOURCE, AdapterError, Query
from hpad.api.selector import Selector, SelectorError
from hpad.engine.spec import CompiledMetric, CompiledSpec, compiled_spec
from hpad.engine.view import NO_MATCH, STALE, TOO_LARGE, ScaleError, View

UNREACHABLE: Final = "unreachable"
STALE_CACHE: Final = "StaleCache"
DISABLED: Final = "disabled"
UNOBSERVABLE: Final = "unobservable"
AMBIGUOUS_SELECTOR: Final = "AmbiguousSelector"
MOST_VALUES: Final = 50_000
"""The number of pods times the number of metrics: an HPA with more would hold up the others in each turn."""
INVALID_SPEC: Final = "InvalidSpec"
"""The reason for an Autoscaler whose spec the API server would refuse in an HPA."""
ZERO_DISABLED: Final = "ScaleToZeroDisabled"
"""The reason for what only the feature gate HPAScaleToZero can change."""

_ABOVE: Final = "Current number of replicas above Spec.MaxReplicas"
BELOW_MINIMUM: Final = "Current number of replicas below Spec.MinReplicas"
"""Reasons of a rescale that needs no metrics."""

Queries = tuple[Query | AdapterError, ...]


class Halt(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The verdict that the target keeps its count, since nothing can or may be measured.

    `kind` is UNREACHABLE (the scale is unknown or out of date), DISABLED (the target was set to zero) or UNOBSERVABLE
    (the pods of the target are unknown). `reason` and `message` belong to the condition, `event` and `text` are the
    reason and the message of the event. `error` is the error of the reconcile, for UNREACHABLE only.
    """

    queries: ClassVar[Queries] = ()

    kind: str
    reason: str
    message: str
    event: str = ""
    text: str = ""
    error: str = ""
    spec_error: bool = False

    def __str__(self) -> str:
        if self.kind == DISABLED:
            return f"keep 0: scaling is disabled while the target is set to zero replicas{self.text}"
        return f"cannot decide: {self.text}"


class Clamp(msgspec.Struct, frozen=True, gc=False):
    """The verdict for a count outside min and max: it is set to the nearer one without metrics, unless paused."""

    queries: ClassVar[Queries] = ()

    replicas: int
    reason: str
    scheduled: bool = False

    def __str__(self) -> str:
        by = " by its schedule" if self.scheduled else ""
        return f"the {'maximum' if self.reason == _ABOVE else 'minimum'} is {self.replicas}{by}"


class Proceed(msgspec.Struct, frozen=True, gc=False):
    """The verdict that the metrics decide. `pods` selects the pods of the target.

    `queries` has one entry per metric of the spec, in its order; an error for a metric that cannot be queried.
    """

    metrics: tuple[CompiledMetric, ...]
    pods: Selector
    queries: Queries


Verdict = Proceed | Clamp | Halt


def examine(view: View) -> Verdict:
    """Returns whether the metrics decide, the limits do, or nothing can be decided. Never raises."""
    spec, scale = view.spec, view.scale
    if spec.refused:
        return _too_large(spec.refused)
    if spec.invalid:
        message = f"the HPA controller does not decide for an invalid spec: {spec.invalid}"
        return _unreachable(
            INVALID_SPEC, message, spec.invalid, f"the spec is invalid: {spec.invalid}", spec_error=True
        )
    if spec.version_error is not None:
        error = f"invalid API version in scale target reference: {spec.version_error}"
        return _failed(spec.version_error, error, spec_error=True)
    if scale is None or view.scale_error is not None:
        return _without_scale(spec, view.scale_error or ScaleError("the target's scale is unknown"))
    current = scale.spec.replicas
    # Zero comes before the limits: a target that a user stopped must stay at zero although minReplicas is above it.
    if current == 0:
        if not (view.scaled_to_zero and (spec.min_replicas != 0 or spec.has_object_or_external)):
            return _DISABLED_BY_GATE if view.scale_to_zero_disabled else _disabled(view.zero_stays)
        # A window that has opened wakes the target whatever its metrics say, or cannot say. For a minimum of the spec
        # that was raised meanwhile Kubernetes asks the metrics first.
        if (low := view.bounds.low) > spec.min_replicas:
            return Clamp(low, BELOW_MINIMUM, scheduled=True)
    elif (clamp := _outside(view, current)) is not None:
        return clamp
    return _select(view, spec, scale.status.selector, scale.status.parsed_selector)


def _outside(view: View, current: int) -> Clamp | None:
    """Returns the verdict for a count outside minimum and maximum; None for one between them.

    That of a paused HPA may be outside for long, and its windows are to know what the metrics ask for meanwhile.
    """
    bounds, spec = view.bounds, view.spec
    if view.paused is not None:
        return None
    if current > bounds.high:
        return Clamp(bounds.high, _ABOVE, scheduled=bounds.high != spec.max_replicas)
    if current < bounds.low:
        return Clamp(bounds.low, BELOW_MINIMUM, scheduled=bounds.low != spec.min_replicas)
    return None


def _disabled(why: str) -> Halt:
    """Returns the verdict for a target at zero. `why`: it stays there, which Kubernetes does not say."""
    if not why:
        return _DISABLED
    advice = f"{why}: set its replicas to 1 or more to go on"
    return msgspec.structs.replace(_DISABLED, message=f"{_DISABLED.message}; {advice}", text=f"; {advice}")


def _select(view: View, spec: CompiledSpec, text: str, pods: Selector | SelectorError | None) -> Proceed | Halt:
    """Requires a valid selector whose pods no other HPA scales.

    Source: Kubernetes 1.36, horizontal.go: validateAndParseSelector.
    """
    if pods is None:  # an empty selector would select all pods of the namespace
        return _NO_SELECTOR
    if isinstance(pods, SelectorError):
        message = f"couldn't convert selector into a corresponding internal selector object: {pods}"
        return _unobservable("InvalidSelector", message)
    if len(view.pods) * len(spec.metrics) > MOST_VALUES:
        count = f"{len(view.pods):,} pods and {len(spec.metrics)} metrics"
        return _unobservable(TOO_LARGE, f"{count} are more than {MOST_VALUES:,} values, which hpad takes for one HPA")
    if view.overlapping_hpas:
        namespace = spec.key.namespace
        names = " ".join(sorted(f"{namespace}/{other}" for other in {spec.key.name, *view.overlapping_hpas}))
        message = f"pods by selector {text} are controlled by multiple HPAs: [{names}]"
        return _unobservable(AMBIGUOUS_SELECTOR, message)
    return _proceed(view.hpa, spec, view.controls.ignored_containers, pods)


def queries(hpa: HorizontalPodAutoscaler, pods: Selector, ignored: tuple[str, ...] | None) -> Queries:
    """Returns the queries of a turn in which the metrics decide.

    `pods` selects those of the target; `ignored` are the containers that the HPA ignores.
    """
    return _proceed(hpa, compiled_spec(hpa), ignored, pods).queries


_CACHED: Final = "proceed"


def _proceed(
    hpa: HorizontalPodAutoscaler, spec: CompiledSpec, ignored: tuple[str, ...] | None, pods: Selector
) -> Proceed:
    """Returns the verdict that the metrics decide, one object for all turns with the same spec and selector.

    Sources look their answers up by query: a query that was asked before is found by its identity and known hash. Like
    the compiled spec the verdict is cached in the spec, so both have the same lifetime.
    """
    kept = hpa.spec.__dict__
    known: Proceed | None = kept.get(_CACHED)
    metrics = _metrics(spec, ignored)
    if known is not None and known.metrics is metrics and known.pods is pods:
        return known
    found = kept[_CACHED] = Proceed(metrics, pods, tuple([_query(metric, pods) for metric in metrics]))
    return found


def _query(metric: CompiledMetric, pods: Selector) -> Query | AdapterError:
    if metric.error is not None:
        return AdapterError(metric.error, blame="spec")
    return msgspec.structs.replace(metric.query, pods=pods if metric.of_pods else None)


def _metrics(spec: CompiledSpec, ignored: tuple[str, ...] | None) -> tuple[CompiledMetric, ...]:
    """Returns the metrics; those of type Resource leave out the containers that the HPA ignores."""
    if not ignored:
        return spec.metrics
    return tuple([_ignoring(metric, ignored) if metric.type == RESOURCE else metric for metric in spec.metrics])


def _ignoring(metric: CompiledMetric, ignored: tuple[str, ...]) -> CompiledMetric:
    query = msgspec.structs.replace(metric.query, ignored_containers=ignored)
    return msgspec.structs.replace(metric, query=query)


def _without_scale(spec: CompiledSpec, failure: ScaleError) -> Halt:
    text = failure.message
    if failure.reason == TOO_LARGE:
        return _too_large(text)
    if failure.reason == STALE:  # a reason of its own, because the target is healthy: alerts need the difference
        message = f"the HPA controller does not decide on what may be out of date: {text}"
        return _unreachable(STALE_CACHE, message, text, text)
    if failure.reason == NO_MATCH:
        return _failed(text, f"unable to determine resource for scale target reference: {text}")
    return _failed(text, f"failed to query scale subresource for {spec.reference}: {text}")


def _too_large(fault: str) -> Halt:
    message = f"the HPA controller does not decide for what is too large: {fault}"
    return _unreachable(TOO_LARGE, message, fault, f"the HPA is too large: {fault}", spec_error=True)


def _failed(text: str, error: str, *, spec_error: bool = False) -> Halt:
    message = f"the HPA controller was unable to get the target's current scale: {text}"
    return _unreachable("FailedGetScale", message, text, error, spec_error=spec_error)


def _unreachable(reason: str, message: str, text: str, error: str, *, spec_error: bool = False) -> Halt:
    return Halt(
        kind=UNREACHABLE, reason=reason, message=message, event=reason, text=text, error=error, spec_error=spec_error
    )


def _unobservable(reason: str, text: str) -> Halt:
    return Halt(kind=UNOBSERVABLE, reason=reason, message=text, event=reason, text=text)


_DISABLED: Final = Halt(
    kind=DISABLED,
    reason="ScalingDisabled",
    message="scaling is disabled since the replica count of the target is zero",
)
_DISABLED_BY_GATE: Final = Halt(
    kind=DISABLED,
    reason=ZERO_DISABLED,
    message=(
        "scaling is disabled since the replica count of the target is zero; minReplicas 0 does not wake it while the"
        " feature gate HPAScaleToZero is off"
    ),
    text="; minReplicas 0 does not wake it without the feature gate HPAScaleToZero",
)
_NO_SELECTOR: Final = Halt(
    kind=UNOBSERVABLE,
    reason="InvalidSelector",
    message="the HPA target's scale is missing a selector",
    event="SelectorRequired",
    text="selector is required",
)
