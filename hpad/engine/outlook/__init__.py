"""The outlook of a decision: what would have to change for the next step, and when it comes by itself.

It is found by asking the stages of the engine again: with another reading, at another time, with other pods. Each
condition suffices: once it holds, and all else stays as it is, the count changes; just before, it does not. That takes
many decisions, so it is made on request only.
"""

from collections.abc import Iterator, Mapping
from typing import assert_never

from hpad.engine import spare
from hpad.engine.addresses import addresses
from hpad.engine.budget import Budgeted
from hpad.engine.decision import Decision
from hpad.engine.deletion_costs import Spared
from hpad.engine.examine import (
    AMBIGUOUS_SELECTOR,
    DISABLED,
    INVALID_SPEC,
    STALE_CACHE,
    UNREACHABLE,
    ZERO_DISABLED,
    Halt,
)
from hpad.engine.outlook import after, readings
from hpad.engine.outlook.after import Next, Step
from hpad.engine.outlook.directions import failing, growing, has_policy, leader, named, room_in_budget, shrinking, stuck
from hpad.engine.outlook.types import BLOCKED, FALLBACK, PODS, READING, SCHEDULE, STEP, STOPPED, Outlook
from hpad.engine.propose import Proposal
from hpad.engine.recommend import Upcoming, last_good_until, next_fallback, replaced
from hpad.engine.settle import Outcome
from hpad.engine.stage import LAST_REPLICA, STABILIZATION
from hpad.engine.trace.make import next_bounds
from hpad.engine.trace.metrics import OF_PODS, SPEC, fault
from hpad.engine.turn import Reconcile, recommended
from hpad.engine.view import TOO_LARGE, View, Withheld
from hpad.engine.words import clock, names, replicas


def outlook(record: Reconcile) -> tuple[Outlook, ...]:
    """Returns the outlooks of a decision: the next step first, then what else may change the count."""
    stops, state = _stopped(record), after.after(record)
    spared, budgeted = record.decision.spared, record.decision.budgeted
    if stops is not None or state is None:
        return (*(() if stops is None else (stops,)), *_scheduled(record.view, None))
    if spared is not None and spared.held:
        return (_busy(spared), *growing(state), *_scheduled(record.view, state.count))
    grows = state.recommended is None or state.total(state.recommended) > state.count
    if budgeted is not None and budgeted.held and grows:
        return (_shared(budgeted), *_scheduled(record.view, state.count), *shrinking(state))
    recommended = state.recommended
    found = [
        *(_unread(state) if recommended is None or _keeps_spare(state) else _next(state, recommended)),
        *_pods(state),
        *_fallbacks(state),
        *_scheduled(record.view, state.count),
        *growing(state),
        *shrinking(state),
    ]
    return tuple(found)


def _keeps_spare(state: Next) -> bool:
    """Whether a metric fails, so that the target keeps more spare replicas than it has to have."""
    found, asked = state.record.decision.recommendation, state.recommended
    return found is not None and found.invalid > 0 and asked is not None and state.total(asked) < state.count


def _shared(found: Budgeted) -> Outlook:
    """Returns what keeps the count below what the metrics and limits ask for."""
    when = f"the budget {found.budget} has room: others shrink, or its amount is raised"
    if found.unknown:
        when = f"the other HPAs of the budget {found.budget} have had a first reconcile, and it has room"
    if found.allotment is None:
        when = f"it is known what the budget {found.budget} has for it: {found.error}"
    text = f"grows towards {found.wanted} once {when}"
    return Outlook(kind=BLOCKED, text=text, replicas=found.wanted)


def _busy(found: Spared) -> Outlook:
    """Returns what keeps the count above what the metrics and limits ask for."""
    text = f"shrinks to {found.wanted} as pods finish their work (hpad.io/keep-busy)"
    if found.error:
        text = f"shrinks to {found.wanted} once it is known what the pods are doing (hpad.io/keep-busy): {found.error}"
    elif found.most_busy is not None and found.replicas > found.most_busy:
        when = "once no pod holds unfinished work, or it is known which do"
        text = f"shrinks to {found.wanted} {when} (hpad.io/keep-busy); {found.holding}"
    elif found.most_busy is not None:
        text += f"; {found.holding}"
    elif found.unknown:
        text += f"; of {found.unknown} it is unknown"
    return Outlook(kind=BLOCKED, text=text, replicas=found.wanted)


def _next(state: Next, recommended: int) -> Iterator[Outlook]:
    """Yields the step that comes by itself, or why what the metrics ask for never comes."""
    step = after.next_step(state, recommended)
    if step is not None:
        head, rest = f"{_arrow(state, step)} {_when(state, step, recommended)}", f", if {_still(state, recommended)}"
        if step.replicas > state.count and state.view.controls.budget is not None:
            rest += f" and {room_in_budget(state)}"
        yield Outlook(kind=STEP, text=head + rest, at=step.at, rest=rest, replicas=step.replicas)
    elif state.total(recommended) != state.count:
        yield stuck(state, recommended)


def _arrow(state: Next, step: Step) -> str:
    return f"{state.count} -> {step.replicas}"


def _when(state: Next, step: Step, recommended: int) -> str:
    if step.at is None:
        return "with the next reconcile"
    at, grows = clock(step.at, state.view.now), state.total(recommended) > state.count
    if step.held_by == STABILIZATION:
        return f"once the {'scale-up' if grows else 'scale-down'} window frees at {at}"
    if step.held_by == LAST_REPLICA:
        return f"once the last replica may go at {at}"
    return f"once the {'scaleUp' if grows else 'scaleDown'} policies allow it at {at}"


def _still(state: Next, recommended: int) -> str:
    if has_policy(state):
        return f"the metric policy still asks for {recommended}"
    if recommended < state.counted and len(state.record.decision.proposals) > 1:
        return f"no metric wants more than {recommended}"
    return f"{leader(state)} still wants {recommended}"


def _recommended(state: Next, changes: Mapping[int, Proposal]) -> int | None:
    """Returns what the metrics would ask for with these proposals by index; None where they could not decide."""
    proposals = [changes.get(index, each) for index, each in enumerate(state.record.decision.proposals)]
    found = recommended(state.own, proposals)
    return None if found.leader is None else max(0, found.replicas)


def _unread(state: Next) -> Iterator[Outlook]:
    """Yields what follows once the failing metrics can be read, and want no more than the others."""
    proposals, answers = state.record.decision.proposals, state.record.answers
    missing = failing(state) or list(proposals)
    indices = [index for index, each in enumerate(proposals) if any(each is other for other in missing)]
    faults = {fault(proposals[index], answers[index]) for index in indices}
    metrics = tuple(named(state, missing))
    readable = f"{names(metrics)} can be {'measured' if faults <= {OF_PODS, SPEC} else 'read'}"
    # What a metric policy would give depends on the values of the failing metrics.
    without = {index: replaced(proposals[index], None) for index in indices}
    recommended = None if has_policy(state) else _recommended(state, without)
    step = None if recommended is None else after.next_step(state, recommended)
    if step is None:
        yield Outlook(kind=READING, text=f"stays at {state.count} until {readable}", metrics=metrics)
        return
    rest = f"once {readable} and {'wants' if len(missing) == 1 else 'want'} at most {recommended}"
    text, rest = _from_then(state, step, _arrow(state, step), rest)
    yield Outlook(kind=READING, text=text, at=step.at, rest=rest, replicas=step.replicas, metrics=metrics)


def _from_then(state: Next, step: Step, head: str, condition: str) -> tuple[str, str]:
    """Returns the text of a step that also waits for a condition, and what is behind its time."""
    if step.at is None:
        return f"{head} {condition}", ""
    rest = f", {condition}"
    return f"{head} from {clock(step.at, state.view.now)} on{rest}", rest


def _pods(state: Next) -> Iterator[Outlook]:
    """Yields the pods that have to count for a step."""
    if state.settled:  # the new pods will change everything
        return
    metrics = addresses(state.view.spec.metrics)
    waiting = [readings.waiting(state, index) for index in range(len(state.record.decision.proposals))]
    several = sum(found is not None for found in waiting) > 1
    for index, found in enumerate(waiting):
        step = None if found is None else _with_pods(state, index, found.proposal)
        if found is None or step is None:
            continue
        # Pods that several metrics wait for change the proposals of all of them.
        verb = "grows" if found.proposal.replicas > state.counted else "shrinks"
        head, best = (verb, "") if several else (_arrow(state, step), _best(state, index, found, step))
        text, rest = _from_then(state, step, head, f"once {readings.described(found)}{best}")
        yield Outlook(
            kind=PODS,
            text=text,
            at=step.at,
            rest=rest,
            replicas=None if several else step.replicas,
            metrics=(metrics[index],),
            pods=tuple(pod.name for pod in found.pods),
            needed=found.needed,
        )


def _best(state: Next, index: int, found: readings.Waiting, step: Step) -> str:
    """Returns the count with all of the pods, where it is another one."""
    more = _with_pods(state, index, found.with_all)
    return "" if more is None or more.replicas == step.replicas else f" ({more.replicas} with all of them)"


def _with_pods(state: Next, index: int, proposal: Proposal) -> Step | None:
    """Returns the step that a new proposal of one metric leads to; None where it changes nothing."""
    recommended = _recommended(state, {index: proposal})
    if recommended is None or recommended == state.recommended:
        return None
    if (recommended > state.counted) != (proposal.replicas > state.counted):
        return None
    return after.next_step(state, recommended)


def _fallbacks(state: Next) -> Iterator[Outlook]:
    """Yields the fallbacks in force, and those to begin."""
    view, metrics = spare.counting(state.record.view), addresses(state.view.spec.metrics)
    if not view.fallback_policies:
        return
    for index, proposal in enumerate(state.record.decision.proposals):
        if proposal.fallback:
            text, at = (
                f"{_counts_as(metrics[index], proposal)} until it can be read",
                last_good_until(view, index, proposal),
            )
            until = "" if at is None else f", or {clock(at, view.now)}"
            yield Outlook(kind=FALLBACK, text=text + until, at=at, metrics=(metrics[index],))
        upcoming = None if proposal.error is None else next_fallback(view, index, proposal)
        if upcoming is not None:
            yield _to_begin(state, index, upcoming)


def _counts_as(metric: str, proposal: Proposal) -> str:
    return f"{metric} is left out" if proposal.ignored else f"{metric} counts as {replicas(proposal.replicas)}"


def _to_begin(state: Next, index: int, begins: Upcoming) -> Outlook:
    metric = addresses(state.view.spec.metrics)[index]
    then = replaced(state.record.decision.proposals[index], begins.replicas)
    recommended = _recommended(state, {index: then})
    # While other metrics decide, the count may change before that time.
    is_unknown = recommended is None or state.recommended is not None
    step = None if recommended is None or is_unknown else after.step_at(state, recommended, begins.at)
    effect = "left out" if begins.replicas is None else f"counted as {replicas(begins.replicas)}"
    rest = ", unless it can be read" + ("" if step is None else f": {_arrow(state, step)}")
    return Outlook(
        kind=FALLBACK,
        text=f"{metric} is {effect} from {clock(begins.at, state.view.now)} on{rest}",
        at=begins.at,
        rest=rest,
        replicas=None if step is None else step.replicas,
        metrics=(metric,),
    )


def _stopped(record: Reconcile) -> Outlook | None:
    """Returns what has to happen before the metrics decide, or before their decision is written; None: nothing."""
    view, decision, outcome = record.view, record.decision, record.outcome
    if isinstance(decision.verdict, Halt):
        return Outlook(kind=STOPPED, text=_halted(view, decision.verdict))
    if view.paused is not None:
        return _paused(view)
    if outcome is not None and not outcome.written and view.shadow is None:
        return _unwritten(view, decision, outcome)
    if decision.recommendation is None:
        if decision.spared is not None and decision.spared.held:
            return _busy(decision.spared)
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
    if halt.reason == INVALID_SPEC:
        return f"decides once its spec is valid: {halt.text}"
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
        return f"{text}; metrics wake only a target that the HPA took to zero"
    return text


def _unwritten(view: View, decision: Decision, outcome: Outcome) -> Outlook:
    desired, current = decision.desired, decision.current
    if outcome.withheld is not None:
        return _withheld(view, decision, outcome.withheld)
    if outcome.unsure:
        text = f"the next reconcile reads whether {desired} was written, and decides again"
        return Outlook(kind=STOPPED, text=text)
    text = f"{current} -> {desired} is tried again with the next reconcile"
    return Outlook(kind=STOPPED, text=text, replicas=desired)


def _withheld(view: View, decision: Decision, why: Withheld) -> Outlook:
    match why.reason:
        case "Paused":
            return _paused(view)
        case "DryRun" | "Shadow":  # a recording that has no shadow
            return Outlook(kind=STOPPED, text=f"stays at {decision.current}: {why.message}")
        case "CompetingHPA":
            held = f"stays at {decision.current} while the other HPA scales the target"
            return Outlook(kind=STOPPED, text=f"{held}: delete it, or set competing_hpas: write")
        case _:
            assert_never(why.reason)


def _scheduled(view: View, count: int | None) -> tuple[Outlook, ...]:
    """Returns the next change of minimum and maximum; `count` is the present one, None where no count is written.

    A count outside the bounds is set to the nearer one without metrics.
    """
    bounds = next_bounds(view)
    if bounds is None:
        return ()
    begins = bounds.at
    at, sets = clock(begins, view.now), f"the schedule sets min {bounds.min}, max {bounds.max}"
    after = None if count is None else min(max(count, bounds.min), bounds.max)
    if after == count:
        return (Outlook(kind=SCHEDULE, text=f"from {at} on {sets}", at=begins, rest=f" {sets}"),)
    text, rest = f"{count} -> {after} from {at} on: {sets}", f": {sets}"
    return (Outlook(kind=SCHEDULE, text=text, at=begins, rest=rest, replicas=after),)
