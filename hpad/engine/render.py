"""A decision as lines of text: the metrics, how their proposals became the count, and what comes next."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final

from hpad.api import amounts
from hpad.api.amounts import Unit
from hpad.api.quantity import parse_milli, truncated
from hpad.engine import trace
from hpad.engine.conditions import Event
from hpad.engine.outlook.types import BLOCKED, STEP, STOPPED, Outlook
from hpad.engine.pods import IGNORED, MISSING, READY, UNREADY
from hpad.engine.spec import UTILIZATION
from hpad.engine.stage import INVALID_METRICS, NOW, WRITE, WRITE_FAILED
from hpad.engine.styled import BAD, BLANK, GOOD, PLAIN, QUIET, STRONG, WARN, Line, Span, labelled, line, table
from hpad.engine.trace.metric_types import MetricTrace, PodTrace
from hpad.engine.trace.pods import LACKING, UNLISTED
from hpad.engine.turn import TimingTrace
from hpad.engine.words import replicas, span

_WIDTH: Final = 11
_STAGE_WIDTH: Final = 16
"""Columns of the names of the stages."""
_BULLET: Final = "  - "
_OTHERS: Final = (UNREADY, MISSING, LACKING, UNLISTED, IGNORED)
_STYLES: Final = {READY: PLAIN, IGNORED: QUIET, UNLISTED: QUIET}
_MOST_READY: Final = 5
_MOST_OTHERS: Final = 10
_INDENT: Final = 6
_UNITS: Final = {unit.value: unit for unit in Unit}


def lines(
    made: trace.Trace,
    outlooks: Sequence[Outlook] = (),
    *,
    now: datetime | None = None,
    notes: Sequence[str] = (),
    all_pods: bool = False,
    hint: str = "",
) -> Iterator[Line]:
    """Yields the whole decision, after `notes` about the HPA.

    `now` adds for how long something is past or ahead. `hint` follows the number of pods that a long list leaves out.
    """
    yield from _head(made, now, notes)
    if made.metrics:
        yield BLANK
        yield line(Span("Metrics:", STRONG))
        for metric in made.metrics:
            yield from _metric(metric, all_pods=all_pods, hint=hint)
    if made.halt is None:
        yield BLANK
        yield line(Span("Replicas:", STRONG))
        yield from _stages(made.stages)
    yield from _tail(made)
    if outlooks:
        yield BLANK
        yield line(Span("Next:", STRONG))
        for outlook in outlooks:
            yield line(_BULLET, *_outlook(outlook, now), hang=len(_BULLET))


def _head(made: trace.Trace, now: datetime | None, notes: Sequence[str]) -> Iterator[Line]:
    counts, target = made.replicas, made.target
    ago = "" if now is None else f", {_ago(made.time, now)}"
    yield labelled("HPA", str(made.key), width=_WIDTH)
    scaled = f"{target.kind}/{target.name}"
    if made.halt is None or counts.observed:
        present = next((f" {stage.text}" for stage in made.stages if stage.stage == NOW and stage.text), "")
        scaled += f", {replicas(counts.current)}{present}, min {counts.min}, max {counts.max}"
    yield labelled("Target", scaled, width=_WIDTH)
    yield labelled("Time", f"{made.time:%Y-%m-%d %H:%M:%SZ}{ago}", width=_WIDTH)
    for note in notes:
        yield labelled("Note", Span(note, WARN), width=_WIDTH)
    yield labelled("Decision", Span(made.sentence, _mood(made)), width=_WIDTH)
    if made.halt is not None:
        message = "" if made.halt.message in made.sentence else f": {made.halt.message}"
        yield labelled("Reason", f"{made.halt.reason}{message}", width=_WIDTH)


def _ago(moment: datetime, now: datetime) -> str:
    return f"{span(max(0, round((now - moment).total_seconds())))} ago"


def _mood(made: trace.Trace) -> str:
    """Returns the style of the sentence: bad where something failed, good where the count changed."""
    if made.error or (made.write is not None and made.write.outcome in (trace.FAILED, trace.UNCERTAIN)):
        return BAD
    return GOOD if made.write is not None and made.write.outcome == trace.WRITTEN else PLAIN


def _metric(metric: MetricTrace, *, all_pods: bool, hint: str) -> Iterator[Line]:
    """Yields one metric. `hint` says how to see all pods of a long list."""
    style = BAD if metric.proposal is None else WARN if metric.fallback is not None else PLAIN
    yield line("  ", Span(metric.address, STRONG), " ", Span(metric.verdict, style), hang=4)
    for fact in metric.facts:
        text = Span(fact.text, BAD if fact.text == metric.error else PLAIN)
        yield labelled(fact.label, text, indent=4, width=_WIDTH)
    yield from _pod_lines(metric, all_pods=all_pods, hint=hint)


def _stages(stages: Sequence[trace.StageTrace]) -> Iterator[Line]:
    """Yields a row per stage, with the count after it; a stage that changed the count is marked."""
    digits = max((len(str(stage.replicas)) for stage in stages if stage.replicas is not None), default=1)
    before: int | None = None
    for stage in stages:
        changed = stage.replicas is not None and before is not None and stage.replicas != before
        style, text_style = _styles(stage, changed=changed)
        count = "-" if stage.replicas is None else str(stage.replicas)
        head = f"  {stage.label:<{_STAGE_WIDTH}}"
        hang = len(head) + digits + 2
        yield line(head, Span(f"{count:>{digits}}", style), "  ", Span(stage.text, text_style), hang=hang)
        for each in stage.more:
            yield line(" " * hang, Span(each, QUIET), hang=hang + 2)
        before = stage.replicas


def _styles(stage: trace.StageTrace, *, changed: bool) -> tuple[str, str]:
    """Returns the styles of the count and of the text of a stage."""
    if stage.held_by in (INVALID_METRICS, WRITE_FAILED):
        return BAD, PLAIN
    if stage.stage == WRITE and stage.replicas is not None:
        return WARN if stage.held_by else GOOD, PLAIN
    return (WARN, PLAIN) if changed else (PLAIN, QUIET)


def _tail(made: trace.Trace) -> Iterator[Line]:
    if made.events or made.timing is not None:
        yield BLANK
    if made.events:
        yield labelled("Events", *_events(made.events), width=_WIDTH)
    if made.timing is not None:
        yield labelled("Timing", Span(_timing(made.timing), QUIET), width=_WIDTH)


def _events(events: Sequence[Event]) -> Iterator[Span]:
    """Yields the reasons of the events; their messages repeat the decision in the words of Kubernetes."""
    for index, event in enumerate(events):
        style = WARN if event.type == "Warning" else PLAIN
        yield Span(f"{', ' if index else ''}{event.reason} ({event.type})", style)


def _timing(timing: TimingTrace) -> str:
    stages = ("observe", "gather", "act", "publish")
    parts = ", ".join(f"{stage} {_seconds(getattr(timing, stage))}" for stage in stages)
    return f"{parts}; {_seconds(timing.late)} late"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}s" if seconds >= 1 else f"{seconds * 1000:.0f}ms"


def _outlook(outlook: Outlook, now: datetime | None) -> Iterator[Span]:
    """Yields the text. `now` adds to its time how far ahead or past that is."""
    styles = {STEP: STRONG, BLOCKED: WARN, STOPPED: WARN}
    style = styles.get(outlook.kind, PLAIN)
    if outlook.at is None or now is None:
        yield Span(outlook.text, style)
        return
    left = round((outlook.at - now).total_seconds())
    yield Span(outlook.text.removesuffix(outlook.rest), style)
    yield Span(f" (in {span(left)})" if left > 0 else f" ({span(-left)} ago)", QUIET)
    if outlook.rest:
        yield Span(outlook.rest, style)


def _pod_lines(metric: MetricTrace, *, all_pods: bool, hint: str) -> Iterator[Line]:
    """Yields the number of pods in each group and a table, of all pods or of the most interesting ones."""
    if not metric.pods:
        return
    yield labelled("Pods", _counts(metric.pods, metric.pods_omitted), indent=4, width=_WIDTH)
    shown = metric.pods if all_pods else _chosen(metric)
    yield from table(_rows(metric, shown), _INDENT)
    left = len(metric.pods) - len(shown)
    if left:
        yield line(Span(f"{' ' * _INDENT}and {left} more{hint}", QUIET), hang=_INDENT)


def _counts(pods: Sequence[PodTrace], omitted: int) -> str:
    found = Counter(pod.group for pod in pods)
    groups = ", ".join(f"{found[group]} {group}" for group in (READY, *_OTHERS) if found[group])
    return f"{groups}, and {omitted} that are not listed here" if omitted else groups


def _chosen(metric: MetricTrace) -> list[PodTrace]:
    """Returns the pods that need attention, then the busiest ones, those with a resize first."""
    others = [pod for pod in metric.pods if _lacks_request(metric, pod)]
    for group in _OTHERS:
        others += [pod for pod in metric.pods if pod.group == group and not _lacks_request(metric, pod)]
    ready = [pod for pod in metric.pods if pod.group == READY and not _lacks_request(metric, pod)]
    return [*others[:_MOST_OTHERS], *sorted(ready, key=_order, reverse=True)[:_MOST_READY]]


def _lacks_request(metric: MetricTrace, pod: PodTrace) -> bool:
    """Whether the metric fails, or would fail, because this pod has no request.

    An ignored pod keeps the reason for that; if it has no request either, the error of the metric names it.
    """
    return _is_utilization(metric) and pod.request is None and pod.group not in (LACKING, UNLISTED, IGNORED)


def _is_utilization(metric: MetricTrace) -> bool:
    """Whether the metric target is a percentage of the requests."""
    return metric.target is not None and metric.target.type == UTILIZATION


def _order(pod: PodTrace) -> tuple[bool, int]:
    return bool(pod.why), 0 if pod.value is None else parse_milli(pod.value)


def _rows(metric: MetricTrace, pods: Sequence[PodTrace]) -> list[list[Span | str]]:
    """Returns the header and one row per pod; columns that are empty in all rows are left out."""
    percent = _is_utilization(metric)
    heads = ["POD", "GROUP", "VALUE", *(["REQUEST", "USED"] if percent else []), "COUNTS AS", "WHY"]
    rows = [_row(metric, pod, percent=percent) for pod in pods]
    kept = [index for index in range(len(heads)) if any(row[index] for row in rows)]
    styled: list[list[Span | str]] = [[Span(heads[index], QUIET) for index in kept]]
    for pod, row in zip(pods, rows, strict=True):
        style = BAD if _lacks_request(metric, pod) else _STYLES.get(pod.group, WARN)
        styled.append([Span(row[index] or "-" if heads[index] != "WHY" else row[index], style) for index in kept])
    return styled


def _row(metric: MetricTrace, pod: PodTrace, *, percent: bool) -> list[str]:
    value, request = _shown(metric, pod.value), _shown(metric, pod.request)
    relation = [request, _used(pod)] if percent else []
    why = f"it has no {metric.name} request" if _lacks_request(metric, pod) else pod.why
    return [pod.name, pod.group, value, *relation, _shown(metric, pod.assumed), why]


def _shown(metric: MetricTrace, text: str | None) -> str:
    if text is None:
        return ""
    milli, shown_in = parse_milli(text), _UNITS[metric.unit or Unit.COUNT.value]
    return amounts.exact(milli, shown_in) if shown_in is Unit.CORES else amounts.rounded(milli, 0, shown_in)


def _used(pod: PodTrace) -> str:
    """Returns the usage in percent of the request; "" where one of them is unknown."""
    if pod.value is None or pod.request is None or not parse_milli(pod.request):
        return ""
    return f"{truncated(parse_milli(pod.value) * 100, parse_milli(pod.request))}%"
