"""Converts KEDA's trigger `kubernetes-workload`.

Source: KEDA 2.21, "Kubernetes Workload"; kubernetes_workload_scaler.go.
"""

from typing import Any, Final

from hpad.api import selector as selectors
from hpad.api.selector import Operator, Requirement, SelectorError
from hpad.manifests.keda.conversion import Source
from hpad.manifests.keda.trigger import Trigger

_OPERATORS: Final = {
    Operator.IN: "In",
    Operator.NOT_IN: "NotIn",
    Operator.NOT_EQUALS: "NotIn",
    Operator.EXISTS: "Exists",
    Operator.DOES_NOT_EXIST: "DoesNotExist",
}
_EQUAL: Final = (Operator.EQUALS, Operator.DOUBLE_EQUALS)


def kubernetes_workload(trigger: Trigger) -> None:
    """Adds the number of pods, or of their nodes; raises Invalid."""
    text = trigger.needed("podSelector")
    try:
        requirements = selectors.parse(text).requirements
    except SelectorError as error:
        raise trigger.invalid("podSelector", text, str(error)) from None
    value, activation = trigger.target("value"), trigger.number("activationValue")
    selector = _selector(requirements)
    if selector is None or not requirements:
        reason = "a selector of a metric has =, !=, in, notin and the existence of labels, one of them at least"
        trigger.note_loss("podSelector", f'"{text}" is not carried over, so neither is the trigger: {reason}')
        return
    metric = "workload_nodes" if trigger.metadata.truth("groupByNode") else "workload_pods"
    source = Source(path=trigger.path, adapter="kubernetes-workload", metric=metric)
    trigger.external(source, value, activation, selector)


def _selector(requirements: tuple[Requirement, ...]) -> dict[str, Any] | None:
    """Returns the LabelSelector of requirements; None for one that it cannot express."""
    labels = {each.key: each.values[0] for each in requirements if each.operator in _EQUAL}
    others = [each for each in requirements if each.operator not in _EQUAL]
    if not all(each.operator in _OPERATORS for each in others):
        return None
    expressions = [
        {"key": each.key, "operator": _OPERATORS[each.operator]}
        | ({"values": list(each.values)} if each.values else {})
        for each in others
    ]
    found = {"matchLabels": labels, "matchExpressions": expressions}
    return {name: part for name, part in found.items() if part}
