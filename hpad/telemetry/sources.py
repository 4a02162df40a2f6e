"""Series of the metric sources."""

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from prometheus_client import registry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hpad.telemetry.series import SeriesFactory

SOURCE_STATES: Final = ("ok", "failing", "open", "trial", "idle", "broken")
BLAMES: Final = ("spec", "source", "cluster", "bug")


class SourceFigures(Protocol):
    """What a metric source counts itself."""

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
    """Exports the figures that the sources reported last."""

    def __init__(self) -> None:
        self.figures: Sequence[SourceFigures] = ()

    def collect(self) -> Iterator[Metric]:
        state = GaugeMetricFamily("hpad_source_state", "1 for the state of the source", labels=["source", "state"])
        asked = CounterMetricFamily("hpad_source_questions", "Metrics that HPAs asked for", labels=["source"])
        hits = CounterMetricFamily("hpad_source_cache_hits", "Metrics answered without a call", labels=["source"])
        retries = CounterMetricFamily("hpad_source_retries", "Attempts after a failed one", labels=["source"])
        for each in self.figures:
            for name in SOURCE_STATES:
                state.add_metric([each.name, name], float(each.state == name))
            asked.add_metric([each.name], each.asked)
            hits.add_metric([each.name], each.hits)
            retries.add_metric([each.name], each.retries)
        yield from (state, asked, hits, retries)


class SourceSeries:
    """Calls to metric sources, and the state of each source."""

    def __init__(self, make: SeriesFactory) -> None:
        self._per_source = _PerSource()
        make.registry.register(self._per_source)
        self._answers = make.histogram(
            "hpad_source_answer_seconds", "Duration of a call to a metric source", ["source"]
        )
        self._errors = make.counter("hpad_source_errors", "Calls that returned an error", ["source", "blame"])

    def configured(self, name: str) -> None:
        """Creates the series of a configured source, at zero."""
        self._answers.labels(name)
        for blame in BLAMES:
            self._errors.labels(name, blame)

    def report(self, figures: Sequence[SourceFigures]) -> None:
        """Replaces the figures of all sources."""
        self._per_source.figures = figures

    def answered(self, source: str, seconds: float, blame: str | None = None) -> None:
        """Counts one call to a source; `blame` says whose fault an error is (None: no error)."""
        self._answers.labels(source).observe(seconds)
        if blame is not None:
            self._errors.labels(source, blame).inc()
