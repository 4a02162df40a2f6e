"""Reads the past of HPAs from Prometheus."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.engine.spec import UTILIZATION, compiled_spec
from hpad.simulation import prometheus
from hpad.simulation.advice.past import HpaPast, MetricReading
from hpad.simulation.advice.series import DEFAULT, Series
from hpad.simulation.history import REPLICAS, HistoryError, LoadHistory, named
from hpad.simulation.prometheus import QueriedPrometheus


def _silent(done: int, of: int, samples: int) -> None:
    """Reports nothing."""


class ReadingOptions(NamedTuple):
    """How the past is read.

    `own` has the PromQL of metrics whose values other queries have, by HPA and address; the sum of its series is the
    value. `most_samples` bounds the values of all HPAs together. `cache` is a folder for answers, so that a command
    that broke off can continue. `progress` is told the HPAs that are read, their number, and the values so far.
    """

    own: Mapping[tuple[Key, str], str] = {}
    most_samples: int = 100_000_000
    cache: Path | None = None
    progress: Callable[[int, int, int], None] = _silent


def read(
    server: QueriedPrometheus,
    hpas: Sequence[HorizontalPodAutoscaler],
    begin: datetime,
    end: datetime,
    step: float,
    series: Series = DEFAULT,
    options: ReadingOptions = ReadingOptions(),  # noqa: B008 (it is immutable)
) -> Iterator[HpaPast]:
    """Yields the past of each HPA from `begin` to `end` every `step` seconds, a few HPAs at a time.

    Raises HistoryError. Blocks.
    """
    samples = 0
    for done, hpa in enumerate(hpas, start=1):
        past = _past(server, hpa, begin, end, step, series)
        samples += past.samples
        options.progress(done, len(hpas), samples)
        yield past


def _past(
    server: QueriedPrometheus,
    hpa: HorizontalPodAutoscaler,
    begin: datetime,
    end: datetime,
    step: float,
    series: Series,
) -> HpaPast:
    hpas = f'namespace="{hpa.key.namespace}",horizontalpodautoscaler="{hpa.key.name}"'
    pods = f'namespace="{hpa.key.namespace}",pod=~"{hpa.spec.scale_target_ref.name}-[4-9bcdf]{{1,10}}-[a-z0-9]{{5}}"'

    def filled(expression: str) -> str:
        values = {"<<.HPAs>>": hpas, "<<.Pods>>": pods, "<<.Window>>": f"{max(2 * step, 120):g}s"}
        for name, value in values.items():
            expression = expression.replace(name, value)
        return expression

    def column(expression: str) -> Sequence[float | None] | None:
        try:
            return prometheus.read(server, {"": filled(expression)}, begin, end, step).columns[""]
        except HistoryError:
            return None

    replicas = column(series.current)
    count = int((end - begin).total_seconds() // step) + 1
    gaps: list[float | None] = [None] * count
    columns = {REPLICAS: gaps if replicas is None else replicas}
    readings = {}
    usage = f"sum({series.cpu_usage}) / sum({series.cpu_requests})"
    for address, metric in zip(named(hpa), compiled_spec(hpa).metrics, strict=True):
        values = column(f"100 * {usage}") if metric.is_cpu and metric.kind == UTILIZATION else None
        readings[address] = MetricReading("cAdvisor and the requests", filled(usage))
        if values is None:
            readings[address] = MetricReading("", problem="not readable")
        else:
            columns[address] = values
    times = [begin.timestamp() + index * step for index in range(count)]
    desired, minimum, maximum = (column(each) for each in (series.desired, series.minimum, series.maximum))
    return HpaPast(
        hpa=hpa,
        load=LoadHistory(times, columns),
        desired=desired or gaps,
        minimum=minimum or gaps,
        maximum=maximum or gaps,
        readings=readings,
        samples=count * (len(columns) + 3),
    )
