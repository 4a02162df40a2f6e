"""The metric policy of a converted ScaledObject: its formula, and which metrics let the target sleep."""

from typing import Any

from hpad.api.problem import Invalid, required
from hpad.manifests.keda import fallbacks, modifiers
from hpad.manifests.keda.conversion import Conversion
from hpad.manifests.keda.fields import Fields
from hpad.manifests.keda.formula import Unreadable
from hpad.manifests.keda.modifiers import Modifiers


def formula(own: Modifiers | None, spec: Fields, conversion: Conversion, prefix: str) -> str:
    """Carries over the scaling modifiers. Returns the policy over the metrics of the formula; "" without one."""
    behavior = fallbacks.behavior_of(spec)
    if own is None:
        if behavior == fallbacks.MODIFIERS:
            field = spec.object("fallback").at("behavior")
            raise Invalid(required("spec.advanced.scalingModifiers.formula", f"{field} {behavior} needs it"))
        return ""
    before = len(conversion.metrics)
    try:
        text = modifiers.apply(own, conversion, prefix)
    except Unreadable as error:
        conversion.truncate(before)
        conversion.constants.clear()
        instead = "compute it in one Prometheus query, or write hpad.io/metric-policy; the largest proposal wins"
        conversion.note_loss(own.path, f'"{own.formula}" is not carried over: {error}: {instead}')
        fallbacks.note_modifiers(spec, conversion)
        return ""
    text = _with_last_resort(text, spec, conversion, prefix)
    return _only(text, conversion, own)


def _with_last_resort(text: str, spec: Fields, conversion: Conversion, prefix: str) -> str:
    """Returns the policy with the replicas of the fallback behind it, where the formula handles failures itself."""
    if fallbacks.behavior_of(spec) != fallbacks.MODIFIERS:
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
    asleep = own or _function("max", external)
    others = [index for index in range(len(conversion.metrics)) if index not in modifiers.indices(asleep)]
    if idle:
        others.append(conversion.add_constant(f"{prefix}-minimum", idle, "spec.minReplicaCount"))
    whole = _function("max", [asleep, *others]) if others else own
    if to_zero and others:
        whole = f"min({whole}, 1000*{asleep})"
    if whole and (own or (to_zero and others)):
        conversion.policy = lambda addresses: modifiers.addressed(whole, addresses)
    if to_zero and not idle and others and not own:
        text = "wake no target and keep none awake, as in KEDA: hpad.io/metric-policy says so"
        conversion.note_change("spec.triggers", f"cpu and memory {text}")


def _function(name: str, parts: list[Any]) -> str:
    texts = [part if isinstance(part, str) else f"#{part}" for part in parts]
    return texts[0] if len(texts) == 1 else f"{name}({', '.join(texts)})"
