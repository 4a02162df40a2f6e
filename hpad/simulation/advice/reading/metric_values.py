"""The values of the metrics of HPAs: from cAdvisor and the requests, from other queries, or from the status."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.api.sample import CONTAINER_RESOURCE, RESOURCE, PastPromQL
from hpad.api.text import quoted
from hpad.engine.spec import AVERAGE_VALUE, UTILIZATION, VALUE, CompiledMetric, compiled_spec
from hpad.simulation.advice.past import MetricReading
from hpad.simulation.advice.reading.answers import Answers
from hpad.simulation.advice.reading.hpa_status import (
    OWN_SERIES,
    OwnSeriesReader,
    StatusReader,
    counted,
    merged,
    of_each,
)
from hpad.simulation.advice.reading.pod_usage import PodUsage
from hpad.simulation.advice.reading.series import QueueExpressions, Series
from hpad.simulation.backlog import Rates
from hpad.simulation.history import Column, is_total, metrics_of, pointwise
from hpad.simulation.prometheus import FoundSeries, QueryError, TimeGrid

_RESOURCES: Final = ("cpu", "memory")
_TARGET_TYPES: Final = {UTILIZATION: "utilization", AVERAGE_VALUE: "average", VALUE: "value"}
"""By the kind of a metric target: the label metric_target_type of kube_horizontalpodautoscaler_status_target_metric."""


class MetricValues:
    """What was read of the metrics of one HPA, by their addresses; as in HpaPast."""

    def __init__(self) -> None:
        self.columns: dict[str, Column] = {}
        self.readings: dict[str, MetricReading] = {}
        self.unrequested: dict[str, Sequence[str]] = {}
        self.queues: dict[str, Rates] = {}
        self.seen: dict[str, Column] = {}


class _Metric(NamedTuple):
    hpa: HorizontalPodAutoscaler
    address: str
    metric: CompiledMetric
    values: MetricValues

    @property
    def is_of_resource(self) -> bool:
        return self.metric.type in (RESOURCE, CONTAINER_RESOURCE)


class MetricReader:
    """Reads the metrics of a few HPAs. `own` has the PromQL of metrics by HPA and address."""

    def __init__(
        self,
        answers: Answers,
        series: Series,
        grid: TimeGrid,
        own: Mapping[tuple[Key, str], PastPromQL],
        of_hpad: OwnSeriesReader | None = None,
    ) -> None:
        self._answers = answers
        self._series = series
        self._grid = grid
        self._own = own
        self._of_hpad = of_hpad

    def read(
        self, hpas: Sequence[HorizontalPodAutoscaler], replicas: Mapping[Key, Column], status: StatusReader
    ) -> dict[Key, MetricValues]:
        """Returns the metrics of each HPA; `replicas` are the counts. A metric that fails says so."""
        found = {hpa.key: MetricValues() for hpa in hpas}
        every = [
            _Metric(hpa, address, metric, found[hpa.key]) for hpa in hpas for address, metric in metrics_of(hpa).items()
        ]
        self._see([each for each in every if each.is_of_resource and not each.hpa.key.kind], replicas, status)
        for each in every:
            try:
                self._read(each)
            except QueryError as error:
                self._fail(each, str(error))
        left = [each for each in every if each.address not in (*each.values.columns, *each.values.queues)]
        if self._of_hpad is not None:
            self._from_hpad([each for each in left if each.hpa.key.kind], replicas, self._of_hpad)
        if others := [each for each in left if not each.hpa.key.kind]:
            self._from_status(others, replicas, status)
        return found

    def _see(self, of_pods: Sequence[_Metric], replicas: Mapping[Key, Column], status: StatusReader) -> None:
        """Reads from the status what HPAs decided on: a rate of cAdvisor is a mean of minutes, and late."""
        try:
            rows = status.rows("values", [each.hpa.key for each in of_pods]) if of_pods else {}
        except QueryError:
            return  # the values of the metric itself remain
        for each in of_pods:
            fitting = self._fitting(each, rows)
            if fitting and not _is_ambiguous(each):
                each.values.seen[each.address] = of_each(each.hpa, merged(fitting), replicas[each.hpa.key])

    def _read(self, each: _Metric) -> None:
        """Reads a metric from elsewhere than the status, if that is possible."""
        queue = self._series.queues.get(str(each.hpa.key), {}).get(each.address)
        own = self._own.get((each.hpa.key, each.address))
        if queue is not None:
            self._read_queue(each, queue)
        elif own is not None:
            self._read_own(each, own)
        elif each.is_of_resource and each.metric.name in _RESOURCES:
            self._read_resource(each)

    def _read_queue(self, each: _Metric, queue: QueueExpressions) -> None:
        self._keep(each, queue.messages, self._summed(queue.messages), f"the queue in {self._series.file}")
        rates = _rates(each.address, queue.per_replica)
        for name, expression in ((rates.published, queue.published), (rates.acked, queue.acked)):
            each.values.columns[name] = self._summed(expression)
        each.values.queues[each.address] = rates

    def _read_own(self, each: _Metric, own: PastPromQL) -> None:
        """Reads what the metric's own source asks; of a queue the rates as well, if Prometheus has both."""
        if own.problem:
            self._fail(each, f"{_NO_QUERY} ({own.problem})")
            return
        self._keep(each, own.values, self._summed(own.values), "the query of its source")
        if not (each.address in each.values.columns and own.published and own.acked):
            return
        columns = [self._summed(expression) for expression in (own.published, own.acked)]
        if all(any(value is not None for value in column) for column in columns):
            rates = _rates(each.address)
            each.values.columns |= zip((rates.published, rates.acked), columns, strict=True)
            each.values.queues[each.address] = rates

    def _read_resource(self, each: _Metric) -> None:
        usage = PodUsage(self._series, self._grid.step, each.hpa, each.metric)
        shape = usage.shape(self._answers, self._grid)
        if each.metric.kind == UTILIZATION:
            each.values.unrequested[each.address] = shape.unrequested
            expression, source = usage.utilization(shape), "cAdvisor and the requests"
        else:
            expression, source = usage.mean(shape), "cAdvisor"
        self._keep(each, expression, merged(self._answers.ranged(expression, self._grid), self._grid.points), source)

    def _summed(self, expression: str) -> list[float | None]:
        """Returns the sum of the series of an expression."""
        return merged(self._answers.ranged(f"sum({expression})", self._grid), self._grid.points)

    def _keep(self, each: _Metric, expression: str, column: Column, source: str) -> None:
        if any(value is not None for value in column):
            each.values.columns[each.address] = column
            each.values.readings[each.address] = MetricReading(source, expression)
        else:
            self._fail(each, f"no value from {source}", expression)

    def _fail(self, each: _Metric, problem: str, expression: str = "") -> None:
        each.values.readings[each.address] = MetricReading("", expression, problem)

    def _from_hpad(self, left: Sequence[_Metric], replicas: Mapping[Key, Column], of_hpad: OwnSeriesReader) -> None:
        for each in left:
            try:
                expression, column = of_hpad.values(each.hpa, replicas[each.hpa.key]).get(each.address, ("", ()))
            except QueryError as error:
                self._fail(each, str(error))
            else:
                self._keep(each, expression, column, OWN_SERIES)

    def _from_status(self, left: Sequence[_Metric], replicas: Mapping[Key, Column], status: StatusReader) -> None:
        try:
            rows = status.rows("values", [each.hpa.key for each in left])
        except QueryError as error:
            for each in left:
                self._fail(each, str(error))
            return
        for each in left:
            found = self._fitting(each, rows)
            if not found:
                known = each.values.readings.get(each.address, MetricReading("", problem=_NO_QUERY))
                self._fail(each, f"{known.problem}, nor from the status of the HPA", known.expression)
            elif _is_ambiguous(each):
                self._fail(each, "the status of the HPA has another metric of that name, and no sign which is which")
            else:
                self._keep_status(each, merged(found), replicas[each.hpa.key])

    def _fitting(self, each: _Metric, rows: Mapping[Key, Sequence[FoundSeries]]) -> list[FoundSeries]:
        label = self._series.labels_of("values").container
        return [row for row in rows.get(each.hpa.key, ()) if _fits(row, each, label)]

    def _keep_status(self, each: _Metric, column: Column, replicas: Column) -> None:
        source = "the status of the HPA"
        if is_total(each.metric):
            # Averages: of a metric with an AverageValue, LoadHistory has the total.
            column = pointwise(
                lambda value, count: value * count if count else None, column, counted(each.hpa, replicas)
            )
            source = f"{source}, times its replicas"
        else:
            column = of_each(each.hpa, column, replicas)
        kind = _TARGET_TYPES[each.metric.kind]
        more = f",metric_name={quoted(each.metric.name)},metric_target_type={quoted(kind)}"
        expression = self._series.of("values", self._series.hpas([each.hpa.key]) + more, self._grid.step)
        self._keep(each, expression, column, source)


_NO_QUERY: Final = "no value from a query of its source"


def _rates(address: str, per_replica: float | None = None) -> Rates:
    return Rates(f"{address} published", f"{address} acked", per_replica)


def _fits(row: FoundSeries, each: _Metric, label: str) -> bool:
    """Returns whether a series of the status is of this metric. `label` names the container of a ContainerResource.

    Before kube-state-metrics 2.17 there is no such label. A scrape adds it to the series of other metrics, with the
    container of kube-state-metrics itself.
    """
    labels, metric = row.labels, each.metric
    container = labels.get(label, "")
    own = {other.query.container for other in compiled_spec(each.hpa).metrics if other.type == CONTAINER_RESOURCE}
    return (
        labels.get("metric_name") == metric.name
        and labels.get("metric_target_type") == _TARGET_TYPES.get(metric.kind)
        and (container == metric.query.container if metric.type == CONTAINER_RESOURCE else container not in own)
    )


def _is_ambiguous(each: _Metric) -> bool:
    def identity(metric: CompiledMetric) -> tuple[str, str, str]:
        return metric.name, metric.kind, metric.query.container if metric.type == CONTAINER_RESOURCE else ""

    return [identity(metric) for metric in compiled_spec(each.hpa).metrics].count(identity(each.metric)) > 1
