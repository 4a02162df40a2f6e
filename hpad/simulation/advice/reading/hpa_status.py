"""What the status and the bounds of HPAs were: replica counts, minReplicas, maxReplicas, and failing conditions.

`OwnSeriesReader` reads the same, and the values of metrics, for Autoscalers from the series of hpad.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from hpad.api.hpa import HorizontalPodAutoscaler, titled
from hpad.api.metadata import Key
from hpad.api.text import quoted, shown
from hpad.engine.annotations import PLAIN
from hpad.engine.conditions import ABLE_TO_SCALE, SCALING_ACTIVE
from hpad.engine.spec import UTILIZATION, CompiledMetric
from hpad.engine.stage import INVALID_METRICS, TARGET_UNREADABLE
from hpad.simulation.advice.reading.answers import Answers
from hpad.simulation.advice.reading.series import EXPRESSIONS, Series, SeriesLabels
from hpad.simulation.history import Column, HistoryError, is_total, metrics_of, pointwise
from hpad.simulation.prometheus import FoundSeries, TimeGrid, combined

_CONDITIONS: Final = (SCALING_ACTIVE, ABLE_TO_SCALE)
_UNWRITTEN: Final = 120.0
"""Seconds in which a new HPA may show zero replicas: a period until its status is written, and a scrape."""


def counted(hpa: HorizontalPodAutoscaler, replicas: Column) -> Column:
    """Returns the counts without the spare replicas, which share the values that hpad reports (`hpad.io/spare`)."""
    own = PLAIN.of(hpa).controls.spare
    return replicas if own is None else pointwise(lambda count: own.beneath(round(count)), replicas)


def of_each(hpa: HorizontalPodAutoscaler, column: Column, replicas: Column) -> Column:
    """Returns what each replica shows, of values per counted replica."""
    fewer = counted(hpa, replicas)
    if fewer is replicas:
        return column
    return pointwise(lambda value, part, count: value * part / count if count else None, column, fewer, replicas)


class HpaStatus(NamedTuple):
    """The columns of one HPA, as in HpaPast."""

    failing: Mapping[str, Column]
    replicas: Column
    desired: Column
    minimum: Column
    maximum: Column


class StatusReader:
    """Reads the status of a few HPAs at once. `with_conditions`: their conditions are known."""

    def __init__(self, answers: Answers, series: Series, grid: TimeGrid, *, with_conditions: bool) -> None:
        self._answers = answers
        self._series = series
        self._grid = grid
        self._with_conditions = with_conditions

    def read(self, hpas: Sequence[HorizontalPodAutoscaler]) -> dict[Key, HpaStatus]:
        """Returns the columns of each HPA. Raises QueryError, and HistoryError if several clusters are mixed up."""
        keys = [hpa.key for hpa in hpas]
        gaps: Column = [None] * self._grid.points
        counts = self.rows("current", keys)
        for key, rows in counts.items():
            _check_one_cluster(key, rows)
        names = ("desired", "minimum", "maximum")
        current, desired, minimum, maximum = (
            {key: merged(rows) for key, rows in found.items()}
            for found in (counts, *(self.rows(name, keys) for name in names))
        )
        current, desired = ({key: self._written(each) for key, each in found.items()} for found in (current, desired))
        failing = self._failing(hpas, current, minimum)
        columns = (current, desired, minimum, maximum)
        return {key: HpaStatus(failing.get(key, {}), *(each.get(key, gaps) for each in columns)) for key in keys}

    def _written(self, column: list[float | None]) -> list[float | None]:
        """Returns the counts of an HPA without the zeros that stand there until its first status is written."""
        known = [index for index, value in enumerate(column) if value is not None]
        first = next((index for index in known if column[index]), 0)
        if not known or known[0] == 0 or (first - known[0]) * self._grid.step > _UNWRITTEN:
            return column
        return [None] * first + column[first:]

    def rows(self, name: str, keys: Iterable[Key], more: str = "", condition: str = "") -> dict[Key, list[FoundSeries]]:
        """Returns the series of an expression by HPA. Raises QueryError.

        `more` are further matchers, `condition` is one of the values, such as " == 1".
        """
        wanted = list(dict.fromkeys(keys))
        expression = self._series.of(name, self._series.hpas(wanted) + more, self._grid.step)
        found: dict[Key, list[FoundSeries]] = {}
        for each in self._answers.ranged(f"({expression}){condition}" if condition else expression, self._grid):
            key = self._key(name, each.labels)
            if key in wanted:
                found.setdefault(key, []).append(each)
        return found

    def _key(self, name: str, labels: Mapping[str, str]) -> Key:
        names = self._series.labels_of(name)
        return Key.of(labels.get(names.namespace, ""), labels.get(names.hpa, ""))

    def _failing(
        self, hpas: Sequence[HorizontalPodAutoscaler], current: Mapping[Key, Column], minimum: Mapping[Key, Column]
    ) -> dict[Key, dict[str, Column]]:
        """Returns the columns of HpaPast.failing for each HPA that has counts."""
        if not self._with_conditions:
            return {}
        # Only what is not well is read: most HPAs have nothing of it.
        more = f',condition=~"{"|".join(_CONDITIONS)}",status!="true"'
        rows = self.rows("conditions", [hpa.key for hpa in hpas], more, " == 1")
        return {
            key: _failing(hpa, rows.get(key, ()), current[key], minimum.get(key), self._grid)
            for hpa in hpas
            if (key := hpa.key) in current
        }


def _check_one_cluster(key: Key, rows: Sequence[FoundSeries]) -> None:
    """Raises HistoryError if the series of an HPA are of several clusters, whose values would be mixed."""
    for label in {label for row in rows for label in row.labels if "cluster" in label.lower()}:
        clusters = sorted({row.labels.get(label, "") for row in rows})
        if len(clusters) > 1:
            text = f"Prometheus knows {titled(key)} of several clusters, {label} {shown(clusters[:10])}"
            raise HistoryError(f"{text}; say which in the file of --series: matchers: {label}={quoted(clusters[-1])}")


def _failing(
    hpa: HorizontalPodAutoscaler, rows: Iterable[FoundSeries], replicas: Column, minimum: Column | None, grid: TimeGrid
) -> dict[str, Column]:
    """Returns the columns of one HPA."""
    found: dict[str, Column] = {SCALING_ACTIVE: pointwise(lambda count: 0.0, replicas)}
    known: dict[tuple[str, str], list[FoundSeries]] = {}
    for row in rows:
        known.setdefault((row.labels.get("condition", ""), row.labels.get("status", "")), []).append(row)
    for condition in _CONDITIONS:
        base = pointwise(lambda count: 0.0, replicas)
        for index, value in enumerate(merged(known.get((condition, "unknown"), ()), grid.points)):
            if value is not None:
                base[index] = None
        failed = merged(known.get((condition, "false"), ()), grid.points)
        times = [index for index, value in enumerate(failed) if value is not None]
        if condition == SCALING_ACTIVE:
            times = [index for index in times if not _is_off(index, replicas, minimum)]
        found |= _by_reason(hpa, condition, base, times, grid)
    return found


def _is_off(index: int, replicas: Column, minimum: Column | None) -> bool:
    """Returns whether scaling was switched off by a count of 0 (reason ScalingDisabled), which is no failure."""
    return replicas[index] == 0 and (minimum is None or minimum[index] != 0)


def _by_reason(
    hpa: HorizontalPodAutoscaler, condition: str, base: list[float | None], times: Sequence[int], grid: TimeGrid
) -> dict[str, Column]:
    """Returns a column for the time since which the condition is as now, by its reason, and one for the time before."""
    now = next((each for each in hpa.status.conditions if each.type == condition and each.status == "False"), None)
    since = math.inf
    if now is not None and now.reason and times:
        begin = grid.begin if now.last_transition_time is None else now.last_transition_time.timestamp()
        since = (begin - grid.begin) / grid.step
    found: dict[str, Column] = {}
    before, after = [index for index in times if index < since], [index for index in times if index >= since]
    if before or condition == SCALING_ACTIVE:
        found[condition] = _with_ones(base, before)
    if after and now is not None:
        found[now.reason] = _with_ones(base, after)
    return found


def _with_ones(base: Sequence[float | None], times: Iterable[int]) -> list[float | None]:
    column = list(base)
    for index in times:
        column[index] = 1.0
    return column


def merged(rows: Sequence[FoundSeries], points: int = 0) -> list[float | None]:
    """Returns one column of several series of the same thing, such as those of two exporters: the largest values."""
    column = combined(rows, len(rows[0].values) if rows else points, max)
    shared: dict[float | None, float | None] = {}  # equal counts are one object: memory matters
    return [shared.setdefault(value, value) for value in column]


# What Prometheus has from hpad itself: the only past of Autoscalers, which kube-state-metrics does not know.
#
# hpad exports an Autoscaler under its local name, `hpa_name="autoscaler/web"`. Values are in base units: of a
# utilization the share of the requests; of an AverageValue those of one replica, or while there is none the total.

OWN_SERIES: Final = "the series of hpad"
_EXPRESSIONS: Final[Mapping[str, str]] = {
    **EXPRESSIONS,
    "current": "hpad_hpa_current_replicas{<<.HPAs>>}",
    "desired": "hpad_hpa_decision{<<.HPAs>>}",
    "minimum": "hpad_hpa_min_replicas{<<.HPAs>>}",
    "maximum": "hpad_hpa_max_replicas{<<.HPAs>>}",
    "values": "hpad_hpa_metric_value{<<.HPAs>>}",
    "conditions": "hpad_hpa_held_by{<<.HPAs>>}",
}
_LABEL: Final = "hpa_name"
_EXPORTED: Final = "exported_namespace"
_REASONS: Final[Mapping[str, str]] = {INVALID_METRICS: SCALING_ACTIVE, TARGET_UNREADABLE: "FailedGetScale"}
"""What held the count because something could not be read, and the name of it in HpaPast.failing."""


class OwnSeriesReader:
    """Reads the past of a few Autoscalers at once. Methods raise QueryError."""

    def __init__(self, answers: Answers, series: Series, grid: TimeGrid) -> None:
        plain = series._replace(expressions=_EXPRESSIONS, state=SeriesLabels(hpa=_LABEL))
        exported = plain.of("current", f'{_EXPORTED}!=""', grid.step)
        if answers.coarse(f"count({exported})", grid):
            plain = plain._replace(state=SeriesLabels(namespace=_EXPORTED, hpa=_LABEL))
        self._grid = grid
        self._series = plain
        self._status = StatusReader(answers, plain, grid, with_conditions=False)

    def read(self, hpas: Sequence[HorizontalPodAutoscaler]) -> dict[Key, HpaStatus]:
        """Returns the columns of each Autoscaler."""
        keys = [hpa.key for hpa in hpas]
        found = self._status.read(hpas)
        held = self._status.rows("conditions", keys, f',reason=~"{"|".join(_REASONS)}"', " == 1")
        for key, status in found.items():
            reasons = {
                name: merged([row for row in held.get(key, ()) if row.labels.get("reason") == reason])
                for reason, name in _REASONS.items()
            }
            failing = {name: _known(column, status.replicas) for name, column in reasons.items() if column}
            found[key] = status._replace(failing=failing)
        return found

    def values(self, hpa: HorizontalPodAutoscaler, replicas: Column) -> dict[str, tuple[str, Column]]:
        """Returns the expression and the values of each metric by its address, in the units of LoadHistory."""
        rows = self._status.rows("values", [hpa.key]).get(hpa.key, ())
        found = {}
        for address, metric in metrics_of(hpa).items():
            own = [row for row in rows if row.labels.get("metric") == address]
            if own:
                column = _converted(hpa, metric, merged(own), replicas)
                found[address] = (self._expression(hpa.key, address), column)
        return found

    def _expression(self, key: Key, address: str) -> str:
        return self._series.of("values", f"{self._series.hpas([key])},metric={quoted(address)}", self._grid.step)


def _known(failed: Column, replicas: Column) -> Column:
    """Returns 1 where it failed, 0 where hpad had another decision, and None where nothing is known."""
    return [
        1.0 if each is not None else None if count is None else 0.0
        for each, count in zip(failed, replicas, strict=True)
    ]


def _converted(hpa: HorizontalPodAutoscaler, metric: CompiledMetric, column: Column, replicas: Column) -> Column:
    if metric.kind == UTILIZATION:
        column = pointwise(lambda share: 100 * share, column)
    if not is_total(metric):
        return of_each(hpa, column, replicas)
    return pointwise(lambda value, count: value * max(1.0, count), column, counted(hpa, replicas))
