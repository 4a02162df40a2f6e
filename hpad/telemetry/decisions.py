"""Series of the last decision about each HPA: its metrics, the counts of the stages, and the reasons that hold it.

An HPA has five or six of these series, three for each metric, and one for each reason that holds it.
"""

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Final, NamedTuple

import structlog
from prometheus_client import registry
from prometheus_client.core import GaugeMetricFamily, Metric

from hpad.api.metadata import Key
from hpad.telemetry.series import SeriesFactory


class MetricFigures(NamedTuple):
    """One metric of an HPA; None where there is no figure. `target` and `value` are in base units.

    `address` is the canonical address of the metric (`hpad.engine.addresses`), unique within the HPA.
    """

    address: str
    target: float | None
    value: float | None
    proposal: int | None


class HpaFigures(NamedTuple):
    """The last decision about an HPA, in replicas; None where there is no figure. `held_by` has distinct reasons."""

    minimum: int
    maximum: int
    current: int | None
    recommendation: int | None
    decision: int | None
    held_by: tuple[str, ...]
    metrics: tuple[MetricFigures, ...]
    shadow: int | None = None


_OF_HPAS: Final[tuple[tuple[str, str, Callable[[HpaFigures], int | None]], ...]] = (
    ("min_replicas", "The fewest replicas that the metrics may ask for", attrgetter("minimum")),
    ("max_replicas", "maxReplicas of the HPA", attrgetter("maximum")),
    ("current_replicas", "Replicas that the target had when the HPA was last decided", attrgetter("current")),
    ("recommendation", "Replicas before spec.behavior and limits; none where the metrics did not decide",
     attrgetter("recommendation")),
    ("decision", "Replicas after them, written or not; none where nothing was decided", attrgetter("decision")),
    ("shadow_replicas", "Replicas that the target would have; in shadow mode and in a dry run only",
     attrgetter("shadow")),
)  # fmt: skip
_OF_METRICS: Final[tuple[tuple[str, str, Callable[[MetricFigures], float | None]], ...]] = (
    ("target", "Metric target: cores, bytes, a count, or a ratio to the request", attrgetter("target")),
    ("value", "Usage that is compared with the target, in its unit; none while the metric fails", attrgetter("value")),
    ("proposal", "Replicas that the metric proposes; none while it fails without a fallback", attrgetter("proposal")),
)
_LABELS: Final = ("namespace", "hpa_name")


class DecisionSeries(registry.Collector):
    """The last decision about each HPA; its figures are worked out in a scrape, and become series."""

    def __init__(self, make: SeriesFactory) -> None:
        self._decided: dict[Key, Callable[[], HpaFigures]] = {}
        self._log = structlog.get_logger("hpad.telemetry")
        self._failed: set[Key] = set()
        make.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yields one family after the other, all of the same moment."""
        figures = dict(self._worked_out())
        for name, text, of_hpa in _OF_HPAS:
            family = GaugeMetricFamily(f"hpad_hpa_{name}", text, labels=_LABELS)
            for key, each in figures.items():
                count = of_hpa(each)
                if count is not None:
                    family.add_metric(tuple(key), count)
            yield family
        for name, text, of_metric in _OF_METRICS:
            family = GaugeMetricFamily(f"hpad_hpa_metric_{name}", text, labels=[*_LABELS, "metric"])
            for (namespace, hpa), each in figures.items():
                for metric in each.metrics:
                    value = of_metric(metric)
                    if value is not None:
                        family.add_metric((namespace, hpa, metric.address), value)
            yield family
        text = "1 for each reason that holds the replicas from what the metrics ask for"
        family = GaugeMetricFamily("hpad_hpa_held_by", text, labels=[*_LABELS, "reason"])
        for (namespace, hpa), each in figures.items():
            for reason in each.held_by:
                family.add_metric((namespace, hpa, reason), 1)
        yield family

    def decided(self, key: Key, figures: Callable[[], HpaFigures]) -> None:
        """Replaces the decision about an HPA. `figures` works out its figures, and is called in a thread."""
        self._decided[key] = figures

    def forget(self, key: Key) -> None:
        """Removes the series of an HPA."""
        self._decided.pop(key, None)

    def _worked_out(self) -> Iterator[tuple[Key, HpaFigures]]:
        """Yields the figures of each HPA. One that fails has no series, and is logged once."""
        for key, figures in self._decided.copy().items():  # the event loop goes on while a thread renders the series
            try:
                yield key, figures()
            except Exception:  # noqa: BLE001  # a bug of one HPA must not take the series of all
                if key not in self._failed:
                    self._failed.add(key)
                    self._log.exception("bug: the series of an HPA could not be worked out", hpa=str(key))
