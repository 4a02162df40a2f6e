"""Builds series in one registry, with the histogram buckets that the Kubernetes controller uses for durations."""

from collections.abc import Sequence
from typing import Final

import prometheus_client
from prometheus_client import registry

KUBERNETES: Final = "horizontal_pod_autoscaler_controller_"
"""Prefix of the series that the Kubernetes controller exports too (`pkg/controller/podautoscaler/metrics`)."""
_DURATION_BUCKETS: Final = tuple(0.001 * 2**k for k in range(15))


class SeriesFactory:
    """Makes gauges, counters and histograms that belong to one registry."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        self.registry = to

    def gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(name, text, labels, registry=self.registry)

    def counter(self, name: str, text: str, labels: Sequence[str] = ()) -> prometheus_client.Counter:
        return prometheus_client.Counter(name, text, labels, registry=self.registry)

    def histogram(
        self, name: str, text: str, labels: Sequence[str] = (), buckets: Sequence[float] = _DURATION_BUCKETS
    ) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(name, text, labels, registry=self.registry, buckets=buckets)
