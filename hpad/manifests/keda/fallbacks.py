"""Carries over `spec.fallback` as `hpad.io/fallback`.

Source: KEDA 2.21, "ScaledObject specification"; pkg/fallback/fallback.go: doFallback.
"""

from datetime import timedelta
from typing import Final

from hpad.api.problem import Invalid, invalid
from hpad.engine import fallback_policy
from hpad.engine.fallback_policy import Fallback
from hpad.manifests.keda.conversion import Conversion
from hpad.manifests.keda.fields import Fields
from hpad.manifests.keda.timing import POLLING_SECONDS

STATIC: Final = "static"
HOLD: Final = "currentReplicas"
MODIFIERS: Final = "scalingModifiers"
_COUNTED: Final = {
    STATIC: fallback_policy.REPLICAS,
    "currentReplicasIfHigher": fallback_policy.AT_LEAST,
    "currentReplicasIfLower": fallback_policy.AT_MOST,
}
_MAX_SECONDS: Final = 2**31 - 1
_HOLD: Final = Fallback(kind=fallback_policy.HOLD)


def behavior_of(spec: Fields) -> str:
    """Returns the behavior of the fallback, "" without a fallback. Raises Invalid."""
    if "fallback" not in spec:
        return ""
    fields = spec.object("fallback")
    behavior = fields.text("behavior") or STATIC
    if behavior not in (*_COUNTED, HOLD, MODIFIERS):
        known = ", ".join((*_COUNTED, HOLD, MODIFIERS))
        raise Invalid(invalid(fields.at("behavior"), behavior, f"must be one of {known}"))
    return behavior


def fallback(spec: Fields, conversion: Conversion) -> Fallback | None:
    """Returns the fallback policy of the external metrics. failureThreshold, in polls, becomes seconds."""
    behavior = behavior_of(spec)
    if not behavior or behavior == MODIFIERS:
        return None
    fields = spec.object("fallback")
    replicas, threshold = fields.count("replicas", 0), fields.count("failureThreshold", 3)
    if behavior == HOLD:
        _note_unneeded(fields, conversion, ("replicas", "failureThreshold"))
        return _HOLD
    if not replicas:
        return _without_replicas(fields, behavior, conversion)
    seconds = threshold * spec.count("pollingInterval", POLLING_SECONDS)
    after = timedelta(seconds=min(seconds, _MAX_SECONDS))  # timedelta overflows far beyond 68 years
    return Fallback(kind=_COUNTED[behavior], replicas=replicas, after=after)


def _without_replicas(fields: Fields, behavior: str, conversion: Conversion) -> Fallback:
    """Returns the fallback to 0 replicas, or more: hpad never scales to zero for a metric that fails."""
    if behavior == "currentReplicasIfHigher":
        _note_unneeded(fields, conversion, ("replicas", "failureThreshold"))
    else:
        text = "0 is not carried over: a failed metric never scales to zero; the replicas are held"
        conversion.note_loss(fields.at("replicas"), text)
    return _HOLD


def _note_unneeded(fields: Fields, conversion: Conversion, names: tuple[str, ...]) -> None:
    for name in names:
        if name in fields:
            conversion.note_change(fields.at(name), "is left out: hpad holds the replicas from the first failure on")


def note_modifiers(spec: Fields, conversion: Conversion) -> None:
    """Notes a fallback within a formula that is not carried over."""
    if behavior_of(spec) == MODIFIERS:
        spec.object("fallback").skip()
        conversion.note_loss("spec.fallback", "is not carried over, as the formula is not; the replicas are held")
