"""How the proposals of the metrics became the count, as lines: one row per stage, with the count after it."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from hpad.engine import trace
from hpad.engine.behavior import DISABLED, MIN_CHANGE, PERCENT
from hpad.engine.outlook.words import clock, names, span
from hpad.engine.render.text import BAD, GOOD, PLAIN, QUIET, WARN, Line, Span, line

_WIDTH: Final = 16
"""Columns of the names of the stages."""


_MOST_NAMES: Final = 5
"""The number of pods that are named."""


class _Stage(NamedTuple):
    """One stage: its name, the replicas after it (None: unknown), what it did, and further lines."""

    name: str
    replicas: int | None
    text: str = ""
    more: tuple[str, ...] = ()
    style: str = PLAIN
    text_style: str = PLAIN


def count_lines(made: trace.Trace) -> Iterator[Line]:
    """Yields the stages; a stage that changed the count is marked."""
    stages = list(_stages(made))
    digits = max(len(str(stage.replicas)) for stage in stages if stage.replicas is not None)
    before: int | None = None
    for stage in stages:
        changed = stage.replicas is not None and before is not None and stage.replicas != before
        style = stage.style or (WARN if changed else PLAIN)
        count = "-" if stage.replicas is None else str(stage.replicas)
        head = f"  {stage.name:<{_WIDTH}}"
        hang = len(head) + digits + 2
        yield line(head, Span(f"{count:>{digits}}", style), "  ", Span(stage.text, stage.text_style), hang=hang)
        for each in stage.more:
            yield line(" " * hang, Span(each, QUIET), hang=hang + 2)
        before = stage.replicas


def _stages(made: trace.Trace) -> Iterator[_Stage]:
    yield _Stage("now", made.replicas.current)
    if made.chosen is not None:
        yield _wanted(made, made.chosen)
    if made.stabilization is not None:
        yield _windows(made, made.stabilization)
        yield _policies(made, made.stabilization)
    if made.bounds is not None:
        yield _bounds(made, made.bounds)
    if made.spared is not None:
        yield _spared(made.spared)
    yield _write(made)


def _wanted(made: trace.Trace, chosen: trace.ChosenTrace) -> _Stage:
    failing = [metric.address for metric in made.metrics if metric.error and metric.fallback is None]
    failed = f"{names(failing)} {'fails' if len(failing) == 1 else 'fail'}" if failing else ""
    if chosen.policy:
        return _by_policy(made, chosen, failed)
    if chosen.metric is None:
        others = any(metric.proposal is not None for metric in made.metrics)
        rest = ", and the other metrics want fewer" if others else ""
        return _Stage("metrics want", None, f"{failed or 'all metrics are left out'}{rest}: the count stays", style=BAD)
    proposals = sum(metric.proposal is not None for metric in made.metrics)
    largest = f", the largest of {proposals}" if proposals > 1 else ""
    return _Stage("metrics want", chosen.replicas, f"by {chosen.metric}{largest}{failed and f'; {failed}'}")


def _by_policy(made: trace.Trace, chosen: trace.ChosenTrace, failed: str) -> _Stage:
    """Returns the metric policy with the proposals of its metrics; a failed one has none."""
    counts = ", ".join(
        f"{metric.address} {'-' if metric.proposal is None else metric.proposal}" for metric in made.metrics
    )
    if chosen.metric is None:
        text = f"{failed or 'all metrics are left out'}, so {chosen.policy} is uncertain: the count stays"
        return _Stage("metrics want", None, text, (counts,), BAD)
    more = f"; {failed}" if failed else ""
    return _Stage("metrics want", chosen.replicas, f"by the metric policy {chosen.policy}{more}", (counts,))


def _windows(made: trace.Trace, step: trace.StabilizationTrace) -> _Stage:
    held = step.held_by
    if held is None:
        up = "" if step.up_window_seconds is None else f"scale-up {span(step.up_window_seconds)}, "
        return _Stage(
            "after windows", step.stabilized, f"({up}scale-down {span(step.down_window_seconds)})", text_style=QUIET
        )
    grows = step.recommended > step.stabilized
    window = (step.up_window_seconds or 0) if grows else step.down_window_seconds
    since = f"{held.replicas} was recommended at {clock(held.time, made.time)}"
    if step.first:
        since = "no earlier recommendation is known, so the present count counts as one"
    until = "" if step.frees_at is None else f" until {clock(step.frees_at, made.time)}"
    text = f"{since}; the {'scale-up' if grows else 'scale-down'} window ({span(window)}) holds it{until}"
    return _Stage("after windows", step.stabilized, text)


def _policies(made: trace.Trace, step: trace.StabilizationTrace) -> _Stage:
    found, count = made.policies, step.stabilized
    if found is None:
        return _Stage("after policies", count)
    limited = found.limited and made.bounds is not None
    if limited and made.bounds is not None:
        count = made.bounds.before
    name = "scaleUp" if found.direction == trace.UP else "scaleDown"
    if not found.select:
        return _Stage("after policies", count, f"at most {found.allows}: the larger of twice the count and 4")
    if found.select == DISABLED:
        return _Stage("after policies", count, f"{name}.selectPolicy is Disabled")
    least = "the smallest" if found.select == MIN_CHANGE else "the largest"
    several = f", {least} change of {len(found.rules)} policies" if len(found.rules) > 1 else ""
    more = tuple(_policy(made, found, rule) for rule in found.rules)
    bound = "at most" if found.direction == trace.UP else "no fewer than"
    return _Stage("after policies", count, f"{name} allows {bound} {found.allows}{several}", more)


def _policy(made: trace.Trace, found: trace.PoliciesTrace, rule: trace.PolicyTrace) -> str:
    size = f"{rule.value}%" if rule.type == PERCENT else f"{rule.value} pod{'' if rule.value == 1 else 's'}"
    text = f"{size} in {span(rule.period_seconds)}: from {rule.start} to {rule.allows}"
    if not rule.used:
        return text
    done = "added" if found.direction == trace.UP else "removed"
    counts = "it counts" if rule.used == 1 else "the first of them counts"
    frees = "" if rule.frees_at is None else f", {counts} until {clock(rule.frees_at, made.time)}"
    return f"{text}; {rule.used} {done}{frees}"


def _bounds(made: trace.Trace, bounds: trace.BoundsTrace) -> _Stage:
    counts = made.replicas
    text, style = f"(min {counts.min}, max {counts.max})", QUIET
    if bounds.applied:
        style = PLAIN
        text = f"the {bounds.applied} is {counts.max if bounds.applied == 'maximum' else counts.min}"
        if bounds.applied == "minimum" and counts.zero_disabled:
            text += ": minReplicas 0 counts as 1 while the feature gate HPAScaleToZero is off"
    if counts.schedule:
        text += f"; open windows: {counts.schedule}"
    return _Stage("after min, max", bounds.after, text, text_style=style)


def _spared(found: trace.SparedTrace) -> _Stage:
    """Returns the floor at the busy pods, and the pods that go first."""
    text = f"{found.busy} busy, {found.unknown} unknown, {found.idle} idle"
    if found.error:
        text = f"it is unknown what the pods are doing: {found.error}"
    elif found.floor is not None:
        text += f": no fewer than {found.floor}"
    first = ", ".join(found.first[:_MOST_NAMES])
    more = len(found.first) - _MOST_NAMES
    named = (f"first to go: {first}{f' and {more} more' if more > 0 else ''}",) if first else ()
    return _Stage(
        "after busy pods", found.after, text, named, text_style=PLAIN if found.after != found.before else QUIET
    )


def _write(made: trace.Trace) -> _Stage:
    write = made.write
    if write is None:
        return _Stage("written", None, "nothing to write", text_style=QUIET)
    if write.outcome == trace.WRITTEN:
        return _Stage("written", made.replicas.desired, _conflicts(len(write.attempts) - 1), style=GOOD)
    if write.outcome == trace.WITHHELD:
        left = made.replicas.current if made.replicas.target is None else made.replicas.target
        return _Stage("not written", left, write.reason, style=WARN)
    verb = "uncertain" if write.outcome == trace.UNCERTAIN else "not written"
    return _Stage(verb, None if write.outcome == trace.UNCERTAIN else made.replicas.current, write.reason, style=BAD)


def _conflicts(count: int) -> str:
    if not count:
        return ""
    return f"after {count} {'conflict' if count == 1 else 'conflicts'} with other writes"
