"""Reads the past of HPAs from Prometheus: of many HPAs in one query where that is possible, a few at a time in memory.

Labels that begin with `exported_`, as where Prometheus scrapes with honor_labels: false, are found out.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.api.sample import PastPromQL
from hpad.api.text import shown
from hpad.engine.spec import compiled_spec
from hpad.simulation.advice.past import HpaPast, MetricReading
from hpad.simulation.advice.reading.answers import LESS, AnswerFolder, Answers
from hpad.simulation.advice.reading.hpa_status import HpaStatus, OwnSeriesReader, StatusReader
from hpad.simulation.advice.reading.metric_values import MetricReader, MetricValues
from hpad.simulation.advice.reading.series import DEFAULT, Series, SeriesLabels
from hpad.simulation.history import REPLICAS, HistoryError, LoadHistory, named
from hpad.simulation.prometheus import QueriedPrometheus, QueryError, TimeGrid

_AT_ONCE: Final = 2
"""Queries at the same time."""
_AHEAD: Final = 2
"""Batches that are read beside the one that is taken."""
_VALUES: Final = 100_000
"""Values of one answer about: it decides how many HPAs are asked for at once."""
_MOST_HPAS: Final = 50
_FEW: Final = 12
"""Times of a look at all pods of a cluster."""
_LONGEST_NAMES: Final = 2_000
"""Characters of the names of a batch, since they are in URLs."""


class ReadingOptions(NamedTuple):
    """How the past is read.

    `own` has the PromQL of metrics that hpad's own sources have, by HPA and address, or why they have none.
    `most_samples` bounds the values of all HPAs together. `cache` is a folder for answers: a command that broke off
    continues there, with the times of the first attempt, and it is emptied in the end. `progress` is told the HPAs that
    are read, their number, and the values so far.
    """

    own: Mapping[tuple[Key, str], PastPromQL] = {}
    most_samples: int = 100_000_000
    cache: Path | None = None
    progress: Callable[[int, int, int], None] = lambda done, of, samples: None


def read(
    server: QueriedPrometheus,
    hpas: Sequence[HorizontalPodAutoscaler],
    begin: datetime,
    end: datetime,
    step: float,
    series: Series = DEFAULT,
    options: ReadingOptions = ReadingOptions(),  # noqa: B008 (it is immutable)
) -> Iterator[HpaPast]:
    """Yields the past of each HPA from `begin` to `end` every `step` seconds, a few HPAs at a time, by namespace.

    A query that fails is repeated a few times. If it still fails, the HPAs or metrics that it is about say so. Raises
    HistoryError if there is nothing to be read at all, or too much. Blocks.
    """
    grid = TimeGrid.between(begin, end, step)
    _check(hpas, grid, series, options)
    folder = None if options.cache is None else AnswerFolder(options.cache, server.url)
    if folder is not None:
        grid = folder.resumed(grid)
    with Answers(server, options.most_samples, folder) as answers:
        reader = _Reader(answers, grid, series, options, hpas)
        failed = False
        for done, past in enumerate(reader.pasts(hpas), start=1):
            failed = failed or bool(past.problem)
            options.progress(done, len(hpas), answers.samples)
            yield past
    if folder is not None and not failed:
        folder.clear()


def _check(hpas: Sequence[HorizontalPodAutoscaler], grid: TimeGrid, series: Series, options: ReadingOptions) -> None:
    values = grid.points * sum(2 + len(compiled_spec(hpa).metrics) for hpa in hpas)
    if values > options.most_samples:
        text = f"{len(hpas):,} HPAs at {grid.points:,} times have about {values:,} values"
        raise HistoryError(f"{text}, more than {options.most_samples:,}; {LESS}")
    known = {str(hpa.key): hpa for hpa in hpas}
    for key, queues in series.queues.items():
        if key not in known:
            continue  # the command may be about a part of the HPAs
        for address in queues:
            if address not in named(known[key]):
                metrics = ", ".join(named(known[key]))
                raise HistoryError(
                    f"{series.file}: queues.{key}: there is no metric {shown(address)}; it has {metrics}"
                )


class _Reader:
    def __init__(
        self,
        answers: Answers,
        grid: TimeGrid,
        series: Series,
        options: ReadingOptions,
        hpas: Sequence[HorizontalPodAutoscaler],
    ) -> None:
        self._answers = answers
        self._grid = grid
        self._times = grid.times
        autoscalers = [hpa for hpa in hpas if hpa.key.kind]
        try:
            self._series = _with_labels(answers, grid, series, needed=len(autoscalers) < len(hpas))
            known = _is_known(answers, grid, self._series, "conditions")
            self._of_hpad = OwnSeriesReader(answers, series, grid) if autoscalers else None
        except QueryError as error:
            raise HistoryError(f"Prometheus: {error}") from None
        self._status = StatusReader(answers, self._series, grid, with_conditions=known)
        self._metrics = MetricReader(answers, self._series, grid, options.own, self._of_hpad)

    def pasts(self, hpas: Sequence[HorizontalPodAutoscaler]) -> Iterator[HpaPast]:
        """Yields the pasts; the next batches are read meanwhile."""
        pool = ThreadPoolExecutor(_AT_ONCE, "prometheus")
        ahead: deque[Future[list[HpaPast]]] = deque()
        try:
            for batch in _batches(hpas, self._grid.points):
                ahead.append(pool.submit(self._batch, batch))
                if len(ahead) > _AHEAD:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            self._answers.stop()
            pool.shutdown(cancel_futures=True)

    def _batch(self, hpas: Sequence[HorizontalPodAutoscaler]) -> list[HpaPast]:
        of_hpad = self._of_hpad if hpas[0].key.kind else None
        try:
            status = self._status.read(hpas) if of_hpad is None else of_hpad.read(hpas)
        except QueryError as error:
            return [self._unread(hpa, str(error)) for hpa in hpas]
        replicas = {key: each.replicas for key, each in status.items()}
        values = self._metrics.read(hpas, replicas, self._status)
        return [self._past(hpa, status[hpa.key], values[hpa.key]) for hpa in hpas]

    def _past(self, hpa: HorizontalPodAutoscaler, status: HpaStatus, values: MetricValues) -> HpaPast:
        columns = {REPLICAS: status.replicas, **values.columns}
        read = (*columns.values(), status.desired)
        return HpaPast(
            hpa=hpa,
            load=LoadHistory(self._times, columns),
            desired=status.desired,
            minimum=status.minimum,
            maximum=status.maximum,
            failing=status.failing,
            readings=values.readings,
            unrequested={address: names for address, names in values.unrequested.items() if names},
            queues=values.queues,
            seen=values.seen,
            samples=sum(value is not None for column in read for value in column),
        )

    def _unread(self, hpa: HorizontalPodAutoscaler, problem: str) -> HpaPast:
        gaps: list[float | None] = [None] * self._grid.points
        return HpaPast(
            hpa=hpa,
            load=LoadHistory(self._times, {REPLICAS: gaps}),
            desired=gaps,
            minimum=gaps,
            maximum=gaps,
            readings={address: MetricReading("", problem=problem) for address in named(hpa)},
            problem=problem,
        )


def _batches(hpas: Sequence[HorizontalPodAutoscaler], points: int) -> Iterator[list[HorizontalPodAutoscaler]]:
    """Yields the HPAs in the order of their namespaces, a few at a time; then the Autoscalers."""
    most = min(_MOST_HPAS, max(1, _VALUES // points))
    batch: list[HorizontalPodAutoscaler] = []
    length = 0
    for hpa in sorted(hpas, key=lambda hpa: (hpa.key.kind, hpa.key)):
        length += len(str(hpa.key))
        full = len(batch) == most or length > _LONGEST_NAMES
        if batch and (full or batch[0].key.kind != hpa.key.kind):
            yield batch
            batch, length = [], len(str(hpa.key))
        batch.append(hpa)
    if batch:
        yield batch


def _with_labels(answers: Answers, grid: TimeGrid, series: Series, *, needed: bool) -> Series:
    """Returns the series with the names of their labels.

    Raises HistoryError if there are no HPAs in Prometheus, and some are `needed`.
    """
    if series.state is None:
        state = _labels(answers, grid, series, {"current": ("namespace", "hpa"), "cpu_requests": ("pod", "container")})
        series = series._replace(state=state)
    if series.cadvisor is None:
        cadvisor = _labels(answers, grid, series, {"cpu_usage": ("namespace", "pod", "container")})
        series = series._replace(cadvisor=cadvisor)
    if needed and not _is_known(answers, grid, series, "current"):
        shape = series.of("current", f'{(series.state or SeriesLabels()).hpa}!=""', grid.step)
        text = "is kube-state-metrics scraped? Other names of series: --series"
        raise HistoryError(f"Prometheus has no value of {shape} in the whole time; {text}")
    return series


def _labels(answers: Answers, grid: TimeGrid, series: Series, asked: Mapping[str, Sequence[str]]) -> SeriesLabels:
    found = {}
    for name, labels in asked.items():
        for label in labels:
            plain = getattr(SeriesLabels(), label)
            expression = series.of(name, f'exported_{plain}!=""', grid.step)
            if answers.coarse(f"count({expression})", grid, _FEW):
                found[label] = f"exported_{plain}"
    return SeriesLabels(**found)


def _is_known(answers: Answers, grid: TimeGrid, series: Series, name: str) -> bool:
    """Returns whether an expression of HPAs has any value."""
    matchers = f'{series.labels_of(name).hpa}!=""'
    return bool(answers.coarse(f"count({series.of(name, matchers, grid.step)})", grid))
