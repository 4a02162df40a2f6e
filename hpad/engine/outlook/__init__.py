"""The outlook of a decision: what would have to change for the next step, and when it comes by itself.

Everything follows from the trace. Each condition suffices: once it holds, and all else stays as it is, the count
changes; just before, it does not.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from hpad.engine import trace
from hpad.engine.outlook import forecast, pods, policy, stops
from hpad.engine.outlook.directions import growing, shrinking, stuck
from hpad.engine.outlook.forecast import Course
from hpad.engine.outlook.policy import has_policy
from hpad.engine.outlook.scheduled import scheduled
from hpad.engine.outlook.types import BLOCKED, FALLBACK, PODS, READING, STEP, Outlook
from hpad.engine.outlook.words import clock, names, replicas


class _Decision(NamedTuple):
    """A trace, the state after its decision, and what the metrics ask for (None: they could not decide)."""

    made: trace.Trace
    state: Course
    recommended: int | None


def outlook(made: trace.Trace) -> tuple[Outlook, ...]:
    """Returns the outlooks of a decision: the next step first, then what else may change the count."""
    stopped, state = stops.stopped(made), forecast.course(made)
    if stopped is not None or state is None:
        return (*(() if stopped is None else (stopped,)), *scheduled(made, None))
    recommended = None if made.stabilization is None else made.stabilization.recommended
    decision = _Decision(made, state, recommended)
    if made.spared is not None and made.spared.after > made.spared.before:
        return (_busy(made.spared), *growing(made, state, recommended), *scheduled(made, state.count))
    found = [
        *(_unread(decision) if recommended is None else _next(decision, recommended)),
        *_pods(decision),
        *_fallbacks(decision),
        *scheduled(made, state.count),
        *growing(made, state, recommended),
        *shrinking(made, state, recommended),
    ]
    return tuple(found)


def _busy(found: trace.SparedTrace) -> Outlook:
    """Returns what keeps the count above what the metrics and limits ask for."""
    text = f"shrinks to {found.before} as pods finish their work (hpad.io/keep-busy)"
    if found.error:
        text = f"shrinks to {found.before} once it is known what the pods are doing (hpad.io/keep-busy): {found.error}"
    elif found.unknown:
        text += f"; of {found.unknown} it is unknown"
    return Outlook(kind=BLOCKED, text=text, replicas=found.before)


def _next(decision: _Decision, recommended: int) -> Iterator[Outlook]:
    """Yields the step that comes by itself, or why what the metrics ask for never comes."""
    made, state, _ = decision
    step = forecast.next_step(state, recommended)
    if step is not None:
        text = f"{_arrow(state, step)} {_when(state, step, recommended)}, if {_still(made, state, recommended)}"
        yield Outlook(kind=STEP, text=text, at=step.at, replicas=step.replicas)
    elif recommended != state.count:
        yield stuck(made, state, recommended)


def _arrow(state: Course, step: forecast.Step) -> str:
    return f"{state.count} -> {step.replicas}"


def _when(state: Course, step: forecast.Step, recommended: int) -> str:
    if step.at is None:
        return "with the next reconcile"
    at, grows = clock(step.at, state.now), recommended > state.count
    if step.held_by == forecast.WINDOW:
        return f"once the {'scale-up' if grows else 'scale-down'} window frees at {at}"
    return f"once the {'scaleUp' if grows else 'scaleDown'} policies allow it at {at}"


def _still(made: trace.Trace, state: Course, recommended: int) -> str:
    if recommended < state.count and len(made.metrics) > 1 and not has_policy(made):
        return f"no metric wants more than {recommended}"
    if has_policy(made):
        return f"the metric policy still asks for {recommended}"
    metric = "" if made.chosen is None else made.chosen.metric
    return f"{metric} still wants {recommended}"


def _recommended(decision: _Decision, changes: Mapping[str, int | None]) -> int | None:
    """Returns what the metrics would ask for with these proposals by address (None: the metric is left out).

    None where they could not decide (`hpad.engine.recommend`).
    """
    if has_policy(decision.made):
        return policy.recommended(decision.made, changes, decision.state.count)
    failed, largest = False, -1
    for metric in decision.made.metrics:
        if metric.address in changes:
            proposal = changes[metric.address]
        elif metric.error and metric.fallback is None:
            failed = True
            continue
        else:
            proposal = metric.proposal
        largest = largest if proposal is None else max(largest, proposal, 0)
    return None if largest < 0 or (failed and largest < decision.state.count) else largest


def failing(metrics: Sequence[trace.MetricTrace]) -> list[str]:
    """Returns the addresses of the metrics that fail and have no fallback in force."""
    return [metric.address for metric in metrics if metric.error and metric.fallback is None]


def _unread(decision: _Decision) -> Iterator[Outlook]:
    """Yields what follows once the failing metrics can be read, and want no more than the others."""
    made, state, _ = decision
    missing = failing(made.metrics) or [metric.address for metric in made.metrics]
    faults = {metric.fault for metric in made.metrics if metric.address in missing}
    readable = f"{names(missing)} can be {'measured' if faults <= {trace.PODS, trace.SPEC} else 'read'}"
    # What a metric policy would give depends on the values of the failing metrics.
    recommended = None if has_policy(made) else _recommended(decision, dict.fromkeys(missing))
    step = None if recommended is None else forecast.next_step(state, recommended)
    if step is None:
        text = f"stays at {state.count} until {readable}"
        yield Outlook(kind=READING, text=text, metrics=tuple(missing))
        return
    since = "" if step.at is None else f"from {clock(step.at, state.now)} on, "
    most = f"{'wants' if len(missing) == 1 else 'want'} at most {recommended}"
    text = f"{_arrow(state, step)} {since}once {readable} and {most}"
    yield Outlook(kind=READING, text=text, at=step.at, replicas=step.replicas, metrics=tuple(missing))


def _pods(decision: _Decision) -> Iterator[Outlook]:
    """Yields the pods that have to count for a step."""
    made, state, _ = decision
    if state.count != made.replicas.current:  # the new pods will change everything
        return
    waiting = [(metric, pods.waiting(metric, state.count, made.gates)) for metric in made.metrics]
    several = sum(found is not None for _, found in waiting) > 1
    for metric, found in waiting:
        step = None if found is None else _with_pods(decision, metric, found.proposal)
        if found is None or step is None:
            continue
        since = "" if step.at is None else f"from {clock(step.at, state.now)} on, "
        # Pods that several metrics wait for change the proposals of all of them.
        verb = "grows" if found.proposal > state.count else "shrinks"
        head, best = (f"{verb} ", "") if several else (f"{_arrow(state, step)} ", _best(decision, metric, found, step))
        yield Outlook(
            kind=PODS,
            text=f"{head}{since}once {pods.described(found)}{best}",
            at=step.at,
            replicas=None if several else step.replicas,
            metrics=(metric.address,),
            pods=tuple(pod.name for pod in found.pods),
            needed=found.needed,
        )


def _best(decision: _Decision, metric: trace.MetricTrace, found: pods.Waiting, step: forecast.Step) -> str:
    """Returns the count with all of the pods, where it is another one."""
    more = _with_pods(decision, metric, found.with_all)
    return "" if more is None or more.replicas == step.replicas else f" ({more.replicas} with all of them)"


def _with_pods(decision: _Decision, metric: trace.MetricTrace, proposal: int) -> forecast.Step | None:
    """Returns the step that a new proposal of one metric leads to; None where it changes nothing."""
    state, before = decision.state, decision.recommended
    recommended = _recommended(decision, {metric.address: proposal})
    if recommended is None or recommended == before or (recommended > state.count) != (proposal > state.count):
        return None
    return forecast.next_step(state, recommended)


def _fallbacks(decision: _Decision) -> Iterator[Outlook]:
    """Yields the fallbacks in force, and those to begin."""
    made, state, _ = decision
    for metric in made.metrics:
        if metric.fallback is not None:
            text, at = f"{_replaced(metric)} until it can be read", metric.fallback.until
            until = "" if at is None else f", or {clock(at, state.now)}"
            yield Outlook(kind=FALLBACK, text=text + until, at=at, metrics=(metric.address,))
        if metric.next_fallback is not None:
            yield _to_begin(decision, metric, metric.next_fallback)


def _replaced(metric: trace.MetricTrace) -> str:
    if metric.fallback is None or metric.fallback.ignored or metric.proposal is None:
        return f"{metric.address} is left out"
    return f"{metric.address} counts as {replicas(metric.proposal)}"


def _to_begin(decision: _Decision, metric: trace.MetricTrace, begins: trace.NextFallbackTrace) -> Outlook:
    state = decision.state
    recommended = _recommended(decision, {metric.address: begins.replicas})
    # While other metrics decide, the count may change before that time.
    is_unknown = recommended is None or decision.recommended is not None
    step = None if recommended is None or is_unknown else forecast.step_at(state, recommended, begins.at)
    effect = "left out" if begins.replicas is None else f"counted as {replicas(begins.replicas)}"
    leads = "" if step is None else f": {_arrow(state, step)}"
    return Outlook(
        kind=FALLBACK,
        text=f"{metric.address} is {effect} from {clock(begins.at, state.now)} on, unless it can be read{leads}",
        at=begins.at,
        replicas=None if step is None else step.replicas,
        metrics=(metric.address,),
    )
