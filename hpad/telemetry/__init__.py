"""Every series that hpad exports, in one private registry.

Series that the Kubernetes controller exports too have its names, labels and buckets, so that dashboards keep working.
Series with fixed labels exist from the start, at zero. The series of an HPA end when the HPA is deleted.
"""

import asyncio
import gc
from collections.abc import Callable

import prometheus_client
from prometheus_client import registry

from hpad.telemetry.controller import ControllerSeries, QueueSeries
from hpad.telemetry.series import (
    BudgetSeries,
    DecisionHistorySeries,
    ElectionSeries,
    NotifySeries,
    ProcessSeries,
    SeriesFactory,
    SettingsSeries,
    SourceSeries,
    StoreSeries,
)

CONTENT_TYPE = prometheus_client.CONTENT_TYPE_PLAIN_1_0_0


class Telemetry:
    """All series, in one attribute per package that reports them.

    A series without labels is a public attribute of its group; the others are reported by methods. Durations are in
    seconds.
    """

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # the library has no hint there
        self.registry = registry.CollectorRegistry()
        self._before_scrape: list[Callable[[], None]] = []
        make = SeriesFactory(self.registry)
        self.controller = ControllerSeries(make)
        self.queue = QueueSeries(make)
        self.sources = SourceSeries(make)
        self.election = ElectionSeries(make)
        self.store = StoreSeries(make)
        self.decision_history = DecisionHistorySeries(make)
        self.settings = SettingsSeries(make)
        self.budgets = BudgetSeries(make)
        self.notify = NotifySeries(make)
        self.process = ProcessSeries(make)

    def before_scrape(self, callback: Callable[[], None]) -> None:
        """Registers a function that is called on the event loop before each scrape, to set gauges."""
        self._before_scrape.append(callback)

    async def exposition(self) -> bytes:
        """Returns the text for a scrape. Renders it in a thread, because thousands of HPAs would block the loop."""
        for callback in self._before_scrape:
            callback()
        self.process.sample()
        return await asyncio.to_thread(_rendered, self.registry)


def _rendered(series: registry.CollectorRegistry) -> bytes:
    """Returns the text of all series.

    Meanwhile no garbage is collected: what is made here is freed at the end, but with thousands of HPAs it would start
    dozens of searches, each of which stops the event loop.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return prometheus_client.generate_latest(series)
    finally:
        if collects:
            gc.enable()
