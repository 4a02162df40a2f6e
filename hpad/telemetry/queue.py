"""The series of the workqueue, with the names and buckets that client-go gives them."""

from typing import Final

import prometheus_client
from prometheus_client import registry

_NAME: Final = "horizontalpodautoscaler"
_BUCKETS: Final = tuple(1e-8 * 10**k for k in range(12))


class QueueSeries:
    """Fed by the queue as it works."""

    def __init__(self, to: registry.CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> prometheus_client.Gauge:
            return prometheus_client.Gauge(f"workqueue_{name}", text, ["name"], registry=to).labels(_NAME)

        def histogram(name: str, text: str) -> prometheus_client.Histogram:
            made = prometheus_client.Histogram(f"workqueue_{name}", text, ["name"], registry=to, buckets=_BUCKETS)
            return made.labels(_NAME)

        adds = prometheus_client.Counter("workqueue_adds", "Keys added to the queue", ["name"], registry=to)
        self._adds = adds.labels(_NAME)
        retries = prometheus_client.Counter("workqueue_retries", "Keys put back for a failure", ["name"], registry=to)
        retries.labels(_NAME)  # stays at zero: the next turn is the retry
        self._depth = gauge("depth", "Keys that wait for a worker")
        self._waited = histogram("queue_duration_seconds", "How long a key waited for a worker")
        self._worked = histogram("work_duration_seconds", "How long a key was worked on")
        self.unfinished = gauge("unfinished_work_seconds", "Time spent so far on keys in work, summed")
        self.longest = gauge("longest_running_processor_seconds", "Time spent so far on the key longest in work")

    def added(self) -> None:
        self._adds.inc()

    def depth(self, keys: int) -> None:
        self._depth.set(keys)

    def waited(self, seconds: float) -> None:
        self._waited.observe(seconds)

    def worked(self, seconds: float) -> None:
        self._worked.observe(seconds)
