"""The metadata of a ScaledObject: what of it an HPA has, and KEDA's annotations.

Source: KEDA, "Pause scaling" and "ScaledObject specification" (2.21).
"""

import copy
from typing import Any, Final

from hpad.manifests.keda.fields import Fields
from hpad.manifests.keda.found import Found, Note

_PREFIX: Final = "autoscaling.keda.sh/"
_PAUSED, _PAUSED_REPLICAS = f"{_PREFIX}paused", f"{_PREFIX}paused-replicas"
_SWITCHES: Final = {
    "paused-scale-in": "is carried over as spec.behavior.scaleDown.selectPolicy Disabled",
    "paused-scale-out": "is carried over as spec.behavior.scaleUp.selectPolicy Disabled",
    "force-activation": "is carried over as minReplicas of 1 or more",
}
_NEEDLESS: Final = ("scaledobject.keda.sh/transfer-hpa-ownership", "validations.keda.sh/hpa-ownership")
_BY_SERVERS: Final = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "selfLink", "managedFields"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")
"""What strconv.ParseBool takes for false; KEDA takes any other text for true."""


def paused(annotations: Fields) -> Note | None:
    """Why no HPA may be written: it would scale what KEDA has been told to leave alone."""
    for name in (_PAUSED_REPLICAS, _PAUSED):
        if name in annotations and (name == _PAUSED_REPLICAS or annotations.text(name) not in _FALSE):
            return Note(
                annotations.at(name),
                "the ScaledObject is paused: no HPA is written, since it would scale at once, and nothing else of the "
                "ScaledObject is carried over; remove the annotation and convert again when it may scale",
            )
    return None


def switches(annotations: Fields, found: Found) -> set[str]:
    """Which of KEDA's other switches are on, by their names without prefix."""
    on = set()
    for name, instead in _SWITCHES.items():
        if (_PREFIX + name) in annotations and annotations.text(_PREFIX + name) not in _FALSE:
            found.note(annotations.at(_PREFIX + name), instead)
            on.add(name)
    return on


def behavior(handed_on: Fields, on: set[str]) -> dict[str, Any]:
    """The behavior of the HPA that KEDA makes, with the directions closed that a switch closes."""
    made: dict[str, Any] = copy.deepcopy(handed_on.get("behavior") or {})
    for switch, direction in (("paused-scale-in", "scaleDown"), ("paused-scale-out", "scaleUp")):
        if switch in on and isinstance(made, dict):
            rules = made.get(direction)
            made[direction] = {**(rules if isinstance(rules, dict) else {}), "selectPolicy": "Disabled"}
    return made


def metadata(given: Fields, name: Any, own: dict[str, str], found: Found) -> dict[str, Any]:
    """The HPA's metadata: namespace, labels and annotations, without KEDA's own, with hpad's."""
    for each in _BY_SERVERS:
        given.get(each)
    finalizers = given.get("finalizers", [])
    if not isinstance(finalizers, list) or not all(str(each).endswith(".keda.sh") for each in finalizers):
        found.lose(given.at("finalizers"), "is not carried over")
    made: dict[str, Any] = {"name": name}
    made |= {key: given.get(key) for key in ("namespace", "labels") if given.get(key)}
    kept = _annotations(given.object("annotations"), own, found)
    return {**made, "annotations": kept} if kept else made


def _annotations(given: Fields, own: dict[str, str], found: Found) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name in given:
        text = given.get(name)
        if name in own:
            found.lose(given.at(name), f"is not carried over: what KEDA's fields say is written there: {own[name]}")
        elif name in _NEEDLESS:
            found.note(given.at(name), "is left out: it has no effect without KEDA")
        elif name == _LAST_APPLIED:
            continue
        elif name in (_PAUSED, *(_PREFIX + switch for switch in _SWITCHES)):
            if str(text) in _FALSE:
                found.note(given.at(name), "is left out: it is off")
        elif "keda.sh/" in name:
            found.lose(given.at(name), "is not carried over")
        else:
            kept[name] = text
    return kept | own
