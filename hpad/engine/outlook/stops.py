"""The outlook where the metrics do not decide: a stopped target, an unreadable scale, a write that was not made."""

from hpad.engine.decide import Decision
from hpad.engine.examine import AMBIGUOUS_SELECTOR, DISABLED, STALE_CACHE, UNREACHABLE, ZERO_DISABLED, Halt
from hpad.engine.outlook.types import STOPPED, Outlook
from hpad.engine.settle import Outcome
from hpad.engine.turn import Reconcile
from hpad.engine.view import TOO_LARGE, View
from hpad.engine.words import clock


def stopped(record: Reconcile) -> Outlook | None:
    """Returns what has to happen before the metrics decide, or before their decision is written; None: nothing."""
    view, decision, outcome = record.view, record.decision, record.outcome
    if isinstance(decision.verdict, Halt):
        return Outlook(kind=STOPPED, text=_halted(view, decision.verdict))
    if view.paused is not None:
        return _paused(view)
    if outcome is not None and not outcome.written and view.shadow is None:
        return _unwritten(decision, outcome)
    if decision.recommendation is None:
        low, high = view.min_replicas, view.max_replicas
        return Outlook(kind=STOPPED, text=f"the metrics decide with the next reconcile, between {low} and {high}")
    if not decision.proposals:
        return Outlook(kind=STOPPED, text="decides once spec.metrics has a metric")
    return None


def _paused(view: View) -> Outlook:
    until = view.controls.paused_until
    text = f"stays at {view.replicas} while the HPA is paused"
    return Outlook(kind=STOPPED, text=text + ("" if until is None else f", until {clock(until, view.now)}"), at=until)


def _halted(view: View, halt: Halt) -> str:
    scaled = view.hpa.spec.scale_target_ref
    target = f"{scaled.kind}/{scaled.name}"
    if halt.reason == STALE_CACHE:
        return "decides again once hpad's view of the cluster is up to date"
    if halt.reason == TOO_LARGE:
        return f"decides once it is within the limits of hpad: {halt.message}"
    if halt.kind == UNREACHABLE:
        return f"decides again once the scale of {target} can be read"
    if halt.kind == DISABLED:
        return _asleep(view, by_gate=halt.reason == ZERO_DISABLED)
    if halt.reason == AMBIGUOUS_SELECTOR:
        return f"decides again once no other HPA selects the pods of {target}"
    return f"decides again once the scale of {target} has a valid selector"


def _asleep(view: View, *, by_gate: bool) -> str:
    """Returns what wakes a target with zero replicas."""
    metadata, target = view.hpa.metadata, view.hpa.spec.scale_target_ref
    count = max(1, view.min_replicas)
    command = f"kubectl scale -n {metadata.namespace} --replicas={count} {target.kind.lower()}/{target.name}"
    text = f"stays at 0 until a client sets its replicas: {command}"
    if by_gate:
        return f"{text}; minReplicas 0 wakes it only with the feature gate HPAScaleToZero"
    if view.min_replicas == 0:
        return f"{text}; metrics wake only a target that an autoscaler took to zero"
    return text


def _unwritten(decision: Decision, outcome: Outcome) -> Outlook:
    desired, current = decision.desired, decision.current
    if outcome.unsure and outcome.withheld is None:
        text = f"the next reconcile reads whether {desired} was written, and decides again"
        return Outlook(kind=STOPPED, text=text)
    if outcome.withheld is None:
        text = f"{current} -> {desired} is tried again with the next reconcile"
        return Outlook(kind=STOPPED, text=text, replicas=desired)
    text = f"stays at {current} while the other HPA scales the target: delete it, or set competing_hpas: write"
    return Outlook(kind=STOPPED, text=text)
