"""The stages of a trace: the count after each, and what it did, in words."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hpad.api.behavior import DISABLED, MIN_CHANGE, PERCENT
from hpad.engine import controls, stage, trace
from hpad.engine.stage import Stage
from hpad.engine.trace.metric_types import MetricTrace
from hpad.engine.words import WITHOUT_ZERO, clock, names, span

_MOST_NAMES: Final = 5
"""The number of pods that are named."""

_Words = tuple[str, tuple[str, ...]]
"""What a stage did, and further lines."""


def rows(made: trace.Trace, stages: Sequence[Stage]) -> Iterator[trace.StageTrace]:
    """Yields the stages with their words, of a trace that has all other fields."""
    for each in stages:
        label, words = _STAGES[each.name]
        text, more = words(made)
        label = label or _written(made)
        yield trace.StageTrace(
            stage=each.name, label=label, replicas=each.replicas, text=text, more=more, held_by=each.holds
        )


def _written(made: trace.Trace) -> str:
    """Returns the label of the write."""
    outcomes = {trace.WITHHELD: "not written", trace.FAILED: "not written", trace.UNCERTAIN: "uncertain"}
    return "written" if made.write is None else outcomes.get(made.write.outcome, "written")


def _now(made: trace.Trace) -> _Words:
    counts, found = made.replicas, made.spare
    notes = [] if counts.target is None else [f"the target has {counts.target}"]
    if counts.target is None and counts.observed != counts.current:
        notes.append(f"{counts.observed} reported")
    if found is not None and found.counted < counts.current:
        notes.append(f"{counts.current - found.counted} spare")
    text = f"({', '.join(notes)})" if notes else ""
    return text if counts.target is None else f"in shadow {text}", ()


def _halted(made: trace.Trace) -> _Words:
    return "" if made.halt is None else f"{made.halt.reason}: {made.halt.message}", ()


def _wanted(made: trace.Trace) -> _Words:
    chosen = made.chosen
    assert chosen is not None
    failing = [metric.address for metric in made.metrics if metric.error and metric.fallback is None]
    failed = f"{names(failing)} {'fails' if len(failing) == 1 else 'fail'}" if failing else ""
    more = f"; {failed}" if failed else ""
    if chosen.policy:
        text = f"by the metric policy {chosen.policy}{more}"
        if chosen.metric is None:
            text = f"{failed or 'all metrics are left out'}, so {chosen.policy} is uncertain: the count stays"
        return text, (", ".join(map(_proposed, made.metrics)),)
    proposals = sum(metric.proposal is not None for metric in made.metrics)
    if chosen.metric is None:
        rest = ", and the other metrics want fewer" if proposals else ""
        return f"{failed or 'all metrics are left out'}{rest}: the count stays", ()
    largest = f", the largest of {proposals}" if proposals > 1 else ""
    return f"by {chosen.metric}{largest}{more}", ()


def _proposed(metric: MetricTrace) -> str:
    return f"{metric.address} {'-' if metric.proposal is None else metric.proposal}"


def _with_spare(made: trace.Trace) -> _Words:
    """Returns how many are on top of what the metrics want, and why."""
    found = made.spare
    assert found is not None
    written = f"{controls.written(controls.SPARE, made.kind)}: {found.amount}"
    return f"{found.clause or 'none while no replica is wanted'} ({written})", ()


def _windows(made: trace.Trace) -> _Words:
    step = made.stabilization
    assert step is not None
    held = step.held_by
    if held is None:
        up = "" if step.up_window_seconds is None else f"scale-up {span(step.up_window_seconds)}, "
        return f"({up}scale-down {span(step.down_window_seconds)})", ()
    grows = step.recommended > step.stabilized
    window = (step.up_window_seconds or 0) if grows else step.down_window_seconds
    since = f"{held.replicas} was recommended at {clock(held.time, made.time)}"
    if step.first:
        since = "no earlier recommendation is known, so the present count counts as one"
    until = "" if step.frees_at is None else f" until {clock(step.frees_at, made.time)}"
    return f"{since}; the {'scale-up' if grows else 'scale-down'} window ({span(window)}) holds it{until}", ()


def _policies(made: trace.Trace) -> _Words:
    if made.policies is None:
        return "", ()
    text, more = _allowance(made, made.policies)
    return f"{text}{_reached_first(made, made.policies)}", more


def _reached_first(made: trace.Trace, found: trace.PoliciesTrace) -> str:
    """Returns the minimum or maximum that stops the count before the policies do; "" if they would not stop it."""
    bounds, up = made.bounds, found.direction == trace.UP
    bound = stage.MAXIMUM if up else stage.MINIMUM
    if bounds is None or bounds.applied != bound:
        return ""
    is_beyond = bounds.before > found.allows if up else bounds.before < found.allows
    return f"; the {bound} is reached first" if is_beyond else ""


def _allowance(made: trace.Trace, found: trace.PoliciesTrace) -> _Words:
    """Returns the count that the policies of one direction allow, and what each of them allows."""
    name = "scaleUp" if found.direction == trace.UP else "scaleDown"
    if not found.select:
        return f"at most {found.allows}: the larger of twice the count and 4", ()
    if found.select == DISABLED:
        return f"{name}.selectPolicy is Disabled", ()
    least = "the smallest" if found.select == MIN_CHANGE else "the largest"
    several = f", {least} change of {len(found.rules)} policies" if len(found.rules) > 1 else ""
    more = tuple(_policy(made, found, rule) for rule in found.rules)
    bound = "at most" if found.direction == trace.UP else "no fewer than"
    return f"{name} allows {bound} {found.allows}{several}", more


def _policy(made: trace.Trace, found: trace.PoliciesTrace, rule: trace.PolicyTrace) -> str:
    size = f"{rule.value}%" if rule.type == PERCENT else f"{rule.value} pod{'' if rule.value == 1 else 's'}"
    text = f"{size} in {span(rule.period_seconds)}: from {rule.start} to {rule.allows}"
    if not rule.used:
        return text
    done = "added" if found.direction == trace.UP else "removed"
    counts = "it counts" if rule.used == 1 else "the first of them counts"
    frees = "" if rule.frees_at is None else f", {counts} until {clock(rule.frees_at, made.time)}"
    return f"{text}; {rule.used} {done}{frees}"


def _bounds(made: trace.Trace) -> _Words:
    counts, bounds = made.replicas, made.bounds
    text = f"(min {counts.min}, max {counts.max})"
    if bounds is not None and bounds.why:
        text = bounds.why
    elif bounds is not None and bounds.applied:
        text = f"the {bounds.applied} is {counts.max if bounds.applied == 'maximum' else counts.min}"
        if bounds.applied == "minimum" and counts.zero_disabled:
            text += f": {WITHOUT_ZERO}"
    return f"{text}; open windows: {counts.schedule}" if counts.schedule else text, ()


def _budgeted(made: trace.Trace) -> _Words:
    """Returns what the budget has for the HPA, and what the others hold and want."""
    found = made.budgeted
    assert found is not None
    if found.allotment is None:
        return f"{found.budget}: {found.error}", ()
    text = f"{found.budget} ({found.amount}) has {found.having}"
    others = f"{found.others} other HPA{' holds' if found.others == 1 else 's hold'}"
    if found.others:
        text += f"; {others} {found.others_hold} and want{'s' if found.others == 1 else ''} {found.others_want}"
    return text, (found.error,) if found.error else ()


def _spared(made: trace.Trace) -> _Words:
    """Returns the floor at the busy pods, and the pods that go first."""
    found = made.spared
    assert found is not None
    counted = "" if found.most_busy is None else f" (at most {found.most_busy} busy in all)"
    text = f"{found.busy} busy, {found.unknown} unknown, {found.idle} idle{counted}"
    if found.error:
        text = f"it is unknown what the pods are doing: {found.error}"
    elif found.floor is not None:
        text += f": no fewer than {found.floor}"
    first = ", ".join(found.first[:_MOST_NAMES])
    more = len(found.first) - _MOST_NAMES
    return text, (f"first to go: {first}{f' and {more} more' if more > 0 else ''}",) if first else ()


def _write(made: trace.Trace) -> _Words:
    write = made.write
    if write is None:
        return "nothing to write", ()
    conflicts = len(write.attempts) - 1
    if write.outcome != trace.WRITTEN or not conflicts:
        return write.reason, ()
    return f"after {conflicts} {'conflict' if conflicts == 1 else 'conflicts'} with other writes", ()


_STAGES: Final[dict[str, tuple[str, Callable[[trace.Trace], _Words]]]] = {
    stage.NOW: ("now", _now),
    stage.HALT: ("stopped", _halted),
    stage.METRICS: ("metrics want", _wanted),
    stage.SPARE: ("with spare", _with_spare),
    stage.WINDOWS: ("after windows", _windows),
    stage.POLICIES: ("after policies", _policies),
    stage.BOUNDS: ("after min, max", _bounds),
    stage.BUDGET: ("within budget", _budgeted),
    stage.BUSY: ("after busy pods", _spared),
    stage.WRITE: ("", _write),
}
"""The label of each stage, and its words; that of the write depends on its outcome."""
