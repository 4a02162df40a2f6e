"""The metric policy and the fallback of a converted ScaledObject."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from hpad.api.problem import Invalid, invalid, required
from hpad.engine import fallback_policy
from hpad.engine.fallback_policy import Fallback
from hpad.manifests.keda import modifiers
from hpad.manifests.keda.conversion import Conversion
from hpad.manifests.keda.fields import Fields
from hpad.manifests.keda.modifiers import Modifiers, UnreadableFormula
from hpad.manifests.keda.scaling import POLLING_SECONDS


def formula(own: Modifiers | None, spec: Fields, conversion: Conversion, prefix: str) -> str:
    """Carries over the scaling modifiers. Returns the policy over the metrics of the formula; "" without one."""
    behavior = behavior_of(spec)
    if own is None:
        if behavior == MODIFIERS:
            field = spec.object("fallback").at("behavior")
            raise Invalid(required("spec.advanced.scalingModifiers.formula", f"{field} {behavior} needs it"))
        return ""
    before = len(conversion.metrics)
    try:
        text = modifiers.apply(own, conversion, prefix)
    except UnreadableFormula as error:
        conversion.truncate(before)
        conversion.constants.clear()
        instead = "compute it in one Prometheus query, or write hpad.io/metric-policy; the largest proposal wins"
        conversion.note_loss(own.path, f'"{own.formula}" is not carried over: {error}: {instead}')
        note_modifiers(spec, conversion)
        return ""
    text = _with_last_resort(text, spec, conversion, prefix)
    return _only(text, conversion, own)


def _with_last_resort(text: str, spec: Fields, conversion: Conversion, prefix: str) -> str:
    """Returns the policy with the replicas of the fallback behind it, where the formula handles failures itself."""
    if behavior_of(spec) != MODIFIERS:
        return text
    fields = spec.object("fallback")
    replicas, threshold = fields.count("replicas", 0), fields.count("failureThreshold", 0)
    if threshold:
        note = "is left out: hpad takes the next metric of first() from the first failure on"
        conversion.note_change(fields.at("failureThreshold"), note)
    if not replicas:
        return text
    constant = conversion.add_constant(f"{prefix}-fallback", replicas, fields.at("replicas"))
    return f"first({text}, #{constant})"


def _only(text: str, conversion: Conversion, own: Modifiers) -> str:
    """Removes the metrics that the formula replaces. Returns the policy with the new indices."""
    used = modifiers.indices(text)
    dropped = {index for index in conversion.external() if index not in used}
    for name, index in conversion.names.items():
        if index in dropped and name not in modifiers.names_of(own):
            conversion.note_change(
                own.path, f'does not use the trigger "{name}", which decides nothing and is left out'
            )
    return modifiers.renumbered(text, conversion.drop(dropped))


def set_policy(own: str, idle: int, conversion: Conversion, prefix: str, *, to_zero: bool) -> None:
    """Sets the metric policy: the formula, and what makes the target sleep by its External metrics alone.

    In KEDA cpu and memory neither wake a target nor keep it awake: scale_handler.go: getScaledObjectState.
    """
    external = conversion.external()
    asleep = own or _largest(external)
    decisive = modifiers.indices(asleep)
    others = [index for index in range(len(conversion.metrics)) if index not in decisive]
    if idle:
        others.append(conversion.add_constant(f"{prefix}-minimum", idle, "spec.minReplicaCount"))
    whole = _largest([asleep, *others]) if others else own
    if to_zero and others:
        whole = f"min({whole}, 1000*{asleep})"
    if whole and (own or (to_zero and others)):
        conversion.policy = lambda addresses: modifiers.addressed(whole, addresses)
    if to_zero and not idle and others and not own:
        text = "wake no target and keep none awake, as in KEDA: hpad.io/metric-policy says so"
        conversion.note_change("spec.triggers", f"cpu and memory {text}")


def _largest(parts: Sequence[str | int]) -> str:
    texts = [part if isinstance(part, str) else f"#{part}" for part in parts]
    return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"


# Carries over `spec.fallback` as `hpad.io/fallback`.
#
# Source: KEDA 2.21, "ScaledObject specification"; pkg/fallback/fallback.go: doFallback.

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
    if not conversion.external():
        fields.skip()
        conversion.note_change("spec.fallback", "is left out: KEDA has none for cpu and memory")
        return None
    replicas, threshold = fields.count("replicas", 0), fields.count("failureThreshold", 3)
    if behavior == HOLD:
        _note_unneeded(fields, conversion)
        return _HOLD
    if not replicas:
        return _without_replicas(fields, behavior, conversion)
    seconds = threshold * spec.count("pollingInterval", POLLING_SECONDS)
    after = timedelta(seconds=min(seconds, _MAX_SECONDS))  # timedelta overflows far beyond 68 years
    return Fallback(kind=_COUNTED[behavior], replicas=replicas, after=after)


def _without_replicas(fields: Fields, behavior: str, conversion: Conversion) -> Fallback:
    """Returns the fallback to 0 replicas, or more: hpad never scales to zero for a metric that fails."""
    if behavior == "currentReplicasIfHigher":
        _note_unneeded(fields, conversion)
    else:
        text = "0 is not carried over: a failed metric never scales to zero; the replicas are held"
        conversion.note_loss(fields.at("replicas"), text)
    return _HOLD


def _note_unneeded(fields: Fields, conversion: Conversion) -> None:
    for name in ("replicas", "failureThreshold"):
        if name in fields:
            conversion.note_change(fields.at(name), "is left out: hpad holds the replicas from the first failure on")


def note_modifiers(spec: Fields, conversion: Conversion) -> None:
    """Notes a fallback within a formula that is not carried over."""
    if behavior_of(spec) == MODIFIERS:
        spec.object("fallback").skip()
        conversion.note_loss("spec.fallback", "is not carried over, as the formula is not; the replicas are held")
