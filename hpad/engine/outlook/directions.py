"""The outlook of one direction: the readings at which the count grows or shrinks, or what blocks the direction."""

from collections.abc import Iterator, Sequence
from typing import Final

from hpad.engine import trace
from hpad.engine.outlook import forecast, thresholds
from hpad.engine.outlook.estimate import of_pods
from hpad.engine.outlook.forecast import Course
from hpad.engine.outlook.policy import has_policy
from hpad.engine.outlook.thresholds import Situation
from hpad.engine.outlook.types import BLOCKED, GROWTH, SHRINKING, Outlook, Threshold
from hpad.engine.outlook.words import clock, crossing, names, span

_MOST: Final = 4
"""Metrics in one sentence."""


def growing(made: trace.Trace, state: Course, recommended: int | None) -> Iterator[Outlook]:
    """Yields the readings above which the count grows, unless the metrics ask for more already."""
    if recommended is not None and recommended > state.count:
        return
    step = forecast.next_step(state, state.count + 1)
    if step is None:
        yield Outlook(kind=BLOCKED, text=f"cannot grow: {_block(made, state, state.count + 1)}")
        return
    if has_policy(made):  # one metric beyond a threshold need not change the value of the policy
        return
    situation = _situation(made, state)
    found = [(metric, thresholds.growth(metric, situation)) for metric in made.metrics]
    crossings = [(metric, threshold) for metric, threshold in found if threshold is not None]
    if not crossings:
        return
    wait = _wait(made, step, state, up=True)
    yield Outlook(
        kind=GROWTH,
        text=f"grows once {_joined(crossings, 'or', situation)}{wait}{_ready(crossings, situation)}",
        thresholds=tuple(threshold for _, threshold in crossings),
    )


def shrinking(made: trace.Trace, state: Course, recommended: int | None) -> Iterator[Outlook]:
    """Yields the readings below which the count shrinks, unless the metrics ask for less already."""
    if recommended is None or recommended < state.count or state.count == 0:
        return
    step = forecast.next_step(state, state.count - 1)
    if step is None:
        yield Outlook(kind=BLOCKED, text=f"cannot shrink: {_block(made, state, state.count - 1)}")
        return
    if step.replicas > state.count:  # without spec.behavior, a past recommendation makes the count grow first
        return
    if has_policy(made):
        return
    obstacle = _obstacle(made, state)
    if obstacle:
        yield Outlook(kind=BLOCKED, text=f"cannot shrink while {obstacle}")
        return
    situation = _situation(made, state)
    keeping = [metric for metric in made.metrics if not metric.error and (metric.proposal or 0) >= state.count]
    crossings = []
    for metric in keeping:
        threshold = thresholds.shrinking(metric, situation)
        if threshold is None:
            yield from _without_threshold(metric)
            return
        crossings.append((metric, threshold))
    if crossings:
        wait = _wait(made, step, state, up=False)
        yield Outlook(
            kind=SHRINKING,
            text=f"shrinks once {_joined(crossings, 'and', situation)}{wait}{_ready(crossings, situation)}",
            thresholds=tuple(threshold for _, threshold in crossings),
        )


def stuck(made: trace.Trace, state: Course, recommended: int) -> Outlook:
    """Returns why the count never follows what the metrics ask for."""
    metric = "" if made.chosen is None else f" by {made.chosen.metric}"
    metric = " by the metric policy" if has_policy(made) else metric
    return Outlook(kind=BLOCKED, text=f"{recommended} wanted{metric}, but {_block(made, state, recommended)}")


def _block(made: trace.Trace, state: Course, recommended: int) -> str:
    holder, grows = forecast.holder(state, recommended), recommended > state.count
    if holder == forecast.MAXIMUM:
        return f"maxReplicas is {state.high}"
    if holder == forecast.MINIMUM and made.replicas.zero_disabled:
        return "minReplicas 0 counts as 1 while the feature gate HPAScaleToZero is off"
    if holder == forecast.MINIMUM:
        return f"minReplicas is {state.low}"
    rules = _rules(made, up=grows)
    is_disabled = rules is not None and rules.select == "Disabled"
    field = f"spec.behavior.{'scaleUp' if grows else 'scaleDown'}"
    return f"{field}.selectPolicy is Disabled" if is_disabled else f"{field} allows nothing"


def _rules(made: trace.Trace, *, up: bool) -> trace.DirectionTrace | None:
    if made.behavior is None:
        return None
    return made.behavior.up if up else made.behavior.down


def _situation(made: trace.Trace, state: Course) -> Situation:
    settled = state.count != made.replicas.current
    observed = state.count if settled else made.replicas.observed
    return Situation(state.count, observed, made.gates, settled)


def _obstacle(made: trace.Trace, state: Course) -> str:
    """Returns the failing metrics that keep the count from shrinking."""
    failing = [metric.address for metric in made.metrics if metric.error and metric.fallback is None]
    if failing:
        return f"{names(failing)} cannot be read"
    replaced = [metric.address for metric in made.metrics if metric.error and (metric.proposal or 0) >= state.count]
    return f"the fallback of {names(replaced)} is in force" if replaced else ""


def _without_threshold(metric: trace.MetricTrace) -> Iterator[Outlook]:
    missing = [pod.name for pod in metric.pods if pod.group == trace.MISSING]
    if missing:
        values = "has no value" if len(missing) == 1 else "have no values"
        yield Outlook(kind=BLOCKED, text=f"cannot shrink while {names(missing)} {values} for {metric.address}")


def _joined(crossings: Sequence[tuple[trace.MetricTrace, Threshold]], last: str, situation: Situation) -> str:
    found = [crossing(metric, threshold, settled=situation.settled) for metric, threshold in crossings]
    if len(found) > _MOST:
        found = [*found[: _MOST - 1], f"{len(found) - _MOST + 1} more metrics cross theirs"]
    return f" {last} ".join(found)


def _ready(crossings: Sequence[tuple[trace.MetricTrace, Threshold]], situation: Situation) -> str:
    """Returns on which pods thresholds per pod rely where the count has just changed."""
    if not situation.settled or not any(of_pods(metric) for metric, _ in crossings):
        return ""
    pods = {1: "its pod", 2: "both pods"}.get(situation.replicas, f"all {situation.replicas} pods")
    return f", with {pods} ready"


def _wait(made: trace.Trace, step: forecast.Step, state: Course, *, up: bool) -> str:
    """Returns for how long a reading has to stay, and from when on policies allow the step."""
    rules = _rules(made, up=up)
    window = 0.0 if rules is None else rules.window_seconds
    since = ""
    if step.at is not None and step.held_by == forecast.POLICIES:
        since = f", from {clock(step.at, state.now)} on"
    return f" for {span(window)}{since}" if window else since
