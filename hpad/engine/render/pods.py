"""The pods of a metric as lines of a table: those that do not count first, then the busiest."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from hpad.api import amounts
from hpad.api.amounts import Unit
from hpad.api.quantity import parse_milli, truncated
from hpad.engine.pods import IGNORED, MISSING, READY, UNREADY
from hpad.engine.render.text import BAD, PLAIN, QUIET, WARN, Line, Span, labelled, line, table
from hpad.engine.spec import UTILIZATION
from hpad.engine.trace.metric_types import MetricTrace, PodTrace
from hpad.engine.trace.pods import LACKING, UNLISTED

_OTHERS: Final = (UNREADY, MISSING, LACKING, UNLISTED, IGNORED)
_STYLES: Final = {READY: PLAIN, IGNORED: QUIET, UNLISTED: QUIET}
_MOST_READY: Final = 5
_MOST_OTHERS: Final = 10
_INDENT: Final = 6
_UNITS: Final = {unit.value: unit for unit in Unit}


def pod_lines(metric: MetricTrace, *, all_pods: bool, hint: str) -> Iterator[Line]:
    """Yields the number of pods in each group and a table, of all pods or of the most interesting ones."""
    if not metric.pods:
        return
    yield labelled("Pods", _counts(metric.pods, metric.pods_omitted), indent=4, width=11)
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
    """Returns the pods that need attention, then the busiest ones."""
    others = [pod for pod in metric.pods if _lacks_request(metric, pod)]
    for group in _OTHERS:
        others += [pod for pod in metric.pods if pod.group == group and not _lacks_request(metric, pod)]
    ready = [pod for pod in metric.pods if pod.group == READY and not _lacks_request(metric, pod)]
    return [*others[:_MOST_OTHERS], *sorted(ready, key=_value, reverse=True)[:_MOST_READY]]


def _lacks_request(metric: MetricTrace, pod: PodTrace) -> bool:
    """Whether the metric fails, or would fail, because this pod has no request."""
    return _is_utilization(metric) and pod.request is None and pod.group not in (LACKING, UNLISTED)


def _is_utilization(metric: MetricTrace) -> bool:
    """Whether the metric target is a percentage of the requests."""
    return metric.target is not None and metric.target.type == UTILIZATION


def _value(pod: PodTrace) -> int:
    return 0 if pod.value is None else parse_milli(pod.value)


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
