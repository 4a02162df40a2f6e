"""How the sources of metrics fare."""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from prometheus_client import registry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hpad.telemetry.series import Series

SOURCE_STATES: Final = ("ok", "failing", "open", "trial", "idle", "broken")
BLAMES: Final = ("spec", "source", "cluster", "bug")


class SourceFigures(Protocol):
    """What the series of a metric source are made of."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def asked(self) -> int: ...
    @property
    def hits(self) -> int: ...
    @property
    def retries(self) -> int: ...


class _PerSource(registry.Collector):
    """What the sources count themselves, as they told it last."""

    def __init__(self) -> None:
        self.figures: Sequence[SourceFigures] = ()

    def collect(self) -> Iterator[Metric]:
        state = GaugeMetricFamily("hpad_source_state", "1 for the state it is in", labels=["source", "state"])
        asked = CounterMetricFamily("hpad_source_questions", "Metrics that HPAs asked for", labels=["source"])
        hits = CounterMetricFamily("hpad_source_cache_hits", "Those answered without a call", labels=["source"])
        retries = CounterMetricFamily("hpad_source_retries", "Attempts after a failed one", labels=["source"])
        for each in self.figures:
            for name in SOURCE_STATES:
                state.add_metric([each.name, name], float(each.state == name))
            asked.add_metric([each.name], each.asked)
            hits.add_metric([each.name], each.hits)
            retries.add_metric([each.name], each.retries)
        yield from (state, asked, hits, retries)


class Sources(Series):
    """Fed by whoever asks them."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        super().__init__(to)
        self._per_source = _PerSource()
        to.register(self._per_source)
        self._answers = self._histogram("hpad_source_answer_seconds", "Time a metric source took to answer", ["source"])
        self._source_errors = self._counter("hpad_source_errors", "Questions without a sample", ["source", "blame"])

    def source(self, name: str) -> None:
        """A metric source is configured: its series start at zero."""
        self._answers.labels(name)
        for blame in BLAMES:
            self._source_errors.labels(name, blame)

    def sources(self, figures: Sequence[SourceFigures]) -> None:
        """What the sources have counted up to now."""
        self._per_source.figures = figures

    def answered(self, source: str, seconds: float, blame: str | None = None) -> None:
        """A metric source answered one question, or failed to (`blame` says through whose fault)."""
        self._answers.labels(source).observe(seconds)
        if blame is not None:
            self._source_errors.labels(source, blame).inc()
