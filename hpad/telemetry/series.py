"""What all groups of series are made with."""

from collections.abc import Sequence
from typing import Final

import prometheus_client
from prometheus_client import registry

ORIGINAL: Final = "horizontal_pod_autoscaler_controller_"
"""How the names of the original's own series begin."""
_BUCKETS: Final = tuple(0.001 * 2**k for k in range(15))


class Series:
    """A group of series. Each makes its own at the start, in the registry that it is given, and calls `super()`."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        self._registry = to

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(name, text, labels, registry=self._registry)

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> prometheus_client.Counter:
        return prometheus_client.Counter(name, text, labels, registry=self._registry)

    def _histogram(
        self, name: str, text: str, labels: Sequence[str] = (), buckets: Sequence[float] = _BUCKETS
    ) -> prometheus_client.Histogram:
        """With the original's buckets for durations, unless told otherwise."""
        return prometheus_client.Histogram(name, text, labels, registry=self._registry, buckets=buckets)
