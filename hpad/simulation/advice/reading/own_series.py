"""What Prometheus has from hpad itself: the only past of Autoscalers, which kube-state-metrics does not know.

hpad exports an Autoscaler under its local name, `hpa_name="autoscaler/web"`. Values are in base units: of a utilization
the share of the requests; of an AverageValue those of one replica, or while there is none the total.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.engine.conditions import SCALING_ACTIVE
from hpad.engine.spec import UTILIZATION, CompiledMetric
from hpad.engine.stage import INVALID_METRICS, TARGET_UNREADABLE
from hpad.simulation.advice.past import Column
from hpad.simulation.advice.reading.answers import Answers
from hpad.simulation.advice.reading.hpa_status import HpaStatus, StatusReader, counted, merged, of_each
from hpad.simulation.advice.reading.series import EXPRESSIONS, Series, SeriesLabels
from hpad.simulation.history import is_total, metrics_of
from hpad.simulation.prometheus import TimeGrid

SOURCE: Final = "the series of hpad"
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
        escaped = address.replace("\\", "\\\\").replace('"', '\\"')
        return self._series.of("values", f'{self._series.hpas([key])},metric="{escaped}"', self._grid.step)


def _known(failed: Column, replicas: Column) -> Column:
    """Returns 1 where it failed, 0 where hpad had another decision, and None where nothing is known."""
    return [
        1.0 if each is not None else None if count is None else 0.0
        for each, count in zip(failed, replicas, strict=True)
    ]


def _converted(hpa: HorizontalPodAutoscaler, metric: CompiledMetric, column: Column, replicas: Column) -> Column:
    if metric.kind == UTILIZATION:
        column = [None if value is None else 100 * value for value in column]
    if not is_total(metric):
        return of_each(hpa, column, replicas)
    return [
        None if value is None or count is None else value * max(1.0, count)
        for value, count in zip(column, counted(hpa, replicas), strict=True)
    ]
