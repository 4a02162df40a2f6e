"""Every series hpad exports, in one private registry.

Those of the original bear its names, labels and buckets, so that dashboards keep working. Series with fixed labels
exist from the start, at zero; those of one HPA vanish with it.
"""

import asyncio
from collections.abc import Callable

import prometheus_client
from prometheus_client import registry

from hpad.telemetry.controller import ACTIONS, ERRORS, Hpas, QueueSeries, Reconciles
from hpad.telemetry.process import STORE_OPERATIONS, Process, Sharing, Stores
from hpad.telemetry.sources import BLAMES, SOURCE_STATES, SourceFigures, Sources

__all__ = [
    "ACTIONS",
    "BLAMES",
    "CONTENT_TYPE",
    "ERRORS",
    "SOURCE_STATES",
    "STORE_OPERATIONS",
    "QueueSeries",
    "SourceFigures",
    "Telemetry",
]

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_PLAIN_1_0_0


class Telemetry(Hpas, Reconciles, Sharing, Sources, Stores, Process):
    """Built once; every room reports to it through a method that says what happened. Seconds throughout.

    It is all its groups of series at once, a file each: who reports need not know which of them a series is in.
    """

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no hint there
        self._before_scrape: list[Callable[[], None]] = []
        super().__init__(registry.CollectorRegistry())
        self.queue = QueueSeries(self._registry)

    def before_scrape(self, callback: Callable[[], None]) -> None:
        """Have a function called, on the loop, before the series are read; it sets gauges that only then matter."""
        self._before_scrape.append(callback)

    async def exposition(self) -> bytes:
        """The text for a scrape. Rendered in a thread: many HPAs must not hold up the loop."""
        for callback in self._before_scrape:
            callback()
        self.look_at_process()
        return await asyncio.to_thread(prometheus_client.generate_latest, self._registry)
