"""The outlook where the metrics do not decide: a stopped target, an unreadable scale, a write that was not made."""

from hpad.engine import trace
from hpad.engine.examine import AMBIGUOUS_SELECTOR, DISABLED, STALE_CACHE, UNREACHABLE, ZERO_DISABLED
from hpad.engine.outlook.types import STOPPED, Outlook
from hpad.engine.outlook.words import clock
from hpad.engine.view import TOO_LARGE


def stopped(made: trace.Trace) -> Outlook | None:
    """Returns what has to happen before the metrics decide, or before their decision is written; None: nothing."""
    if made.halt is not None:
        return Outlook(kind=STOPPED, text=_halted(made, made.halt))
    if made.pause is not None:
        return _paused(made, made.pause)
    if made.write is not None and made.write.outcome != trace.WRITTEN and made.replicas.target is None:
        return _unwritten(made, made.write)
    if made.chosen is None:
        low, high = made.replicas.min, made.replicas.max
        return Outlook(kind=STOPPED, text=f"the metrics decide with the next reconcile, between {low} and {high}")
    if not made.metrics:
        return Outlook(kind=STOPPED, text="decides once spec.metrics has a metric")
    return None


def _paused(made: trace.Trace, pause: trace.PauseTrace) -> Outlook:
    text = f"stays at {made.replicas.current} while the HPA is paused"
    until = "" if pause.until is None else f", until {clock(pause.until, made.time)}"
    return Outlook(kind=STOPPED, text=text + until, at=pause.until)


def _halted(made: trace.Trace, halt: trace.HaltTrace) -> str:
    target = f"{made.target.kind}/{made.target.name}"
    if halt.reason == STALE_CACHE:
        return "decides again once hpad's view of the cluster is up to date"
    if halt.reason == TOO_LARGE:
        return f"decides once it is within the limits of hpad: {halt.message}"
    if halt.kind == UNREACHABLE:
        return f"decides again once the scale of {target} can be read"
    if halt.kind == DISABLED:
        return _asleep(made, halt.reason == ZERO_DISABLED)
    if halt.reason == AMBIGUOUS_SELECTOR:
        return f"decides again once no other HPA selects the pods of {target}"
    return f"decides again once the scale of {target} has a valid selector"


def _asleep(made: trace.Trace, by_gate: bool) -> str:
    """Returns what wakes a target with zero replicas."""
    count = max(1, made.replicas.min)
    command = f"kubectl scale -n {made.namespace} --replicas={count} {made.target.kind.lower()}/{made.target.name}"
    text = f"stays at 0 until a client sets its replicas: {command}"
    if by_gate:
        return f"{text}; minReplicas 0 wakes it only with the feature gate HPAScaleToZero"
    if made.replicas.min == 0:
        return f"{text}; metrics wake only a target that an autoscaler took to zero"
    return text


def _unwritten(made: trace.Trace, write: trace.WriteTrace) -> Outlook:
    desired, current = made.replicas.desired, made.replicas.current
    if write.outcome == trace.UNCERTAIN:
        text = f"the next reconcile reads whether {desired} was written, and decides again"
        return Outlook(kind=STOPPED, text=text)
    if write.outcome == trace.FAILED:
        text = f"{current} -> {desired} is tried again with the next reconcile"
        return Outlook(kind=STOPPED, text=text, replicas=desired)
    text = f"stays at {current} while the other HPA scales the target: delete it, or set competing_hpas: write"
    return Outlook(kind=STOPPED, text=text)
