"""Counters and histograms that a reconcile updates: plain numbers, which become series in a scrape.

Those of prometheus_client find their series by a lock and a table of labels, and take another lock for each number:
with some fifteen updates for each reconcile this was a twentieth of its CPU time. All updates come from the event loop;
a thread may collect meanwhile.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from prometheus_client import registry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString


class Counts(registry.Collector):
    """A counter for each combination of label values."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        self._head = name, text, labels
        self._counts: dict[tuple[str, ...], float] = {}

    def create(self, *values: str) -> None:
        """Creates the series of these label values, at zero."""
        self._counts.setdefault(values, 0)

    def count(self, *values: str) -> None:
        """Adds one to the series of these label values."""
        self._counts[values] = self._counts.get(values, 0) + 1

    def collect(self) -> Iterator[Metric]:
        name, text, labels = self._head
        family = CounterMetricFamily(name, text, labels=labels)
        for values, number in self._counts.copy().items():
            family.add_metric(values, number)
        yield family


class Observations:
    """One histogram: the number of observations up to each bound, and their sum."""

    __slots__ = ("_bounds", "_numbers", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._numbers = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, amount: float) -> None:
        """Adds one observation."""
        self._numbers[bisect_left(self._bounds, amount)] += 1
        self._sum += amount

    def cumulated(self) -> tuple[list[tuple[str, float]], float]:
        """Returns the observations up to each bound, which is text, and the sum of all."""
        whole, buckets, total = self._numbers.copy(), [], 0
        for bound, number in zip((*self._bounds, float("inf")), whole, strict=True):
            total += number
            text = str(floatToGoString(bound))  # type: ignore[no-untyped-call]  # the library has no hint there
            buckets.append((text, float(total)))
        return buckets, self._sum


class Histograms(registry.Collector):
    """A histogram for each combination of label values; `bounds` are the upper bounds of its buckets, ascending."""

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        self._head = name, text, labels
        self._bounds = tuple(bounds)
        self._of: dict[tuple[str, ...], Observations] = {}

    def of(self, *values: str) -> Observations:
        """Returns the histogram of these label values, which exists from then on."""
        found = self._of.get(values)
        if found is None:
            found = self._of[values] = Observations(self._bounds)
        return found

    def collect(self) -> Iterator[Metric]:
        name, text, labels = self._head
        family = HistogramMetricFamily(name, text, labels=labels)
        for values, found in self._of.copy().items():
            buckets, total = found.cumulated()
            family.add_metric(values, buckets, total)
        yield family
