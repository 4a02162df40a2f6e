"""Is there anything to measure?"""

from typing import Final

import msgspec

from hpad.api import selector
from hpad.api.sample import AdapterError, Query
from hpad.api.selector import Selector, SelectorError
from hpad.engine.spec import CompiledMetric, CompiledSpec
from hpad.engine.view import View

UNREACHABLE: Final = "unreachable"
STALE_CACHE: Final = "StaleCache"
DISABLED: Final = "disabled"
UNOBSERVABLE: Final = "unobservable"
ZERO_DISABLED: Final = "ScaleToZeroDisabled"
"""A reason of its own for what only the feature gate HPAScaleToZero can change."""


class Halt(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing can or may be measured; the target stays as it is.

    `kind` is unreachable (its scale can't be read, or what is known is too old), disabled (it was set to zero) or
    unobservable (its pods can't be told). `reason` and `message` are those of the condition, `event` the reason of the
    event and `text` its message.
    """

    kind: str
    reason: str
    message: str
    event: str = ""
    text: str = ""
    spec_error: bool = False

    def __str__(self) -> str:
        if self.kind == DISABLED:
            return f"keep 0: scaling is disabled while the target is set to zero replicas{self.text}"
        return f"cannot decide: {self.text}"


class Clamp(msgspec.Struct, frozen=True):
    """The replica count lies outside min and max: it is set to the nearer one, whatever the metrics say."""

    replicas: int
    reason: str

    def __str__(self) -> str:
        return f"the {'maximum' if 'above' in self.reason else 'minimum'} is {self.replicas}"


class Proceed(msgspec.Struct, frozen=True):
    """The metrics decide."""

    metrics: tuple[CompiledMetric, ...]
    pods: Selector

    @property
    def queries(self) -> tuple[Query | AdapterError, ...]:
        """What to ask, one entry per metric of the spec and in its order; an error where there is nothing to ask."""
        return tuple(
            msgspec.structs.replace(metric.query, pods=self.pods if metric.of_pods else None)
            if metric.error is None
            else AdapterError(metric.error, blame="spec")
            for metric in self.metrics
        )

    def __str__(self) -> str:
        return f"{len(self.metrics)} metrics to measure over the pods of {self.pods}"


Verdict = Proceed | Clamp | Halt


def examine(view: View) -> Verdict:
    """Decide whether metrics are needed at all; the order of the checks is that of the HPA controller."""
    spec, scale = view.spec, view.scale
    if spec.version_error is not None:
        return _unreachable(spec.version_error, spec_error=True)
    if scale is None or view.scale_error is not None:
        text = view.scale_error or "the target's scale is unknown"
        return _stale(text) if view.stale else _unreachable(text, spec_error=False)
    current = scale.spec.replicas
    if current == 0:
        if not (view.scaled_to_zero and (spec.min_replicas != 0 or spec.has_object_or_external)):
            return _DISABLED_FOR_GOOD if view.scale_to_zero_disabled else _DISABLED
    elif current > spec.max_replicas:
        return Clamp(spec.max_replicas, "Current number of replicas above Spec.MaxReplicas")
    elif current < spec.min_replicas:
        return Clamp(spec.min_replicas, "Current number of replicas below Spec.MinReplicas")
    return _observe(view, spec, scale.status.selector)


def _observe(view: View, spec: CompiledSpec, text: str) -> Proceed | Halt:
    """Tell the target's pods, or why they can't be told."""
    if not text:
        return _NO_SELECTOR
    try:
        pods = selector.parse(text)
    except SelectorError as error:
        text = f"couldn't convert selector into a corresponding internal selector object: {error}"
        return _unobservable("InvalidSelector", text)
    if view.competing_hpas:
        namespace, name = spec.key
        names = " ".join(sorted(f"{namespace}/{rival}" for rival in {name, *view.competing_hpas}))
        message = f"pods by selector {text} are controlled by multiple HPAs: [{names}]"
        return _unobservable("AmbiguousSelector", message)
    return Proceed(spec.metrics, pods)


def _unreachable(text: str, *, spec_error: bool) -> Halt:
    message = f"the HPA controller was unable to get the target's current scale: {text}"
    event = "FailedGetScale"
    return Halt(kind=UNREACHABLE, reason=event, message=message, event=event, text=text, spec_error=spec_error)


def _stale(text: str) -> Halt:
    """A reason of its own: nothing is wrong with the target, and alerts are to tell the two apart."""
    message = f"the HPA controller does not decide on what may be out of date: {text}"
    return Halt(kind=UNREACHABLE, reason=STALE_CACHE, message=message, event=STALE_CACHE, text=text)


def _unobservable(reason: str, text: str) -> Halt:
    return Halt(kind=UNOBSERVABLE, reason=reason, message=text, event=reason, text=text)


_DISABLED: Final = Halt(
    kind=DISABLED,
    reason="ScalingDisabled",
    message="scaling is disabled since the replica count of the target is zero",
)
_DISABLED_FOR_GOOD: Final = Halt(
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
