"""Bugs in a reconcile are counted and logged once, and stop no other HPA; one in the dispatcher ends the controller."""

import asyncio

import pytest
import structlog
from prometheus_client import CollectorRegistry
from support import virtual_time
from support.controller import Bench, hpa
from support.virtual_time import in_virtual_time

from hpad.api.metadata import Key
from hpad.controller.planning import Schedule
from hpad.telemetry import Telemetry
from hpad.telemetry.controller import QueueSeries
from hpad.telemetry.series import SeriesFactory


@in_virtual_time
async def test_a_bug_in_one_reconcile_is_counted_and_stops_no_other() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    bench = Bench(hpa("bad"), hpa("web"), workers=1)
    bench.metrics.values["bad"] = fail
    await bench.advance(149)
    series = (await bench.telemetry.exposition()).decode()
    assert len(bench.metrics.times("web")) >= 10
    bugs = float(series.split("\nhpad_bugs_total ")[1].split()[0])
    assert bugs == len(bench.metrics.times("bad")) >= 10


@in_virtual_time
async def test_a_bug_is_logged_once_per_hpa_and_cause_and_once_at_its_end() -> None:
    async def divide_by_zero() -> None:
        raise ZeroDivisionError

    async def miss_a_key() -> None:
        raise LookupError

    bench = Bench(hpa("one"), hpa("other"), workers=1)
    bench.metrics.values.update(one=divide_by_zero, other=divide_by_zero)
    bench.controller.start()
    with structlog.testing.capture_logs() as logged:
        await asyncio.sleep(300)
        bench.metrics.values["one"] = miss_a_key
        await asyncio.sleep(300)
        bench.metrics.values["one"] = 5
        await asyncio.sleep(300)
        await bench.controller.stop(0)
    lines = [line for line in logged if line["event"].startswith(("bug:", "the reconcile"))]
    *begins, end = [(line["hpa"], line["log_level"]) for line in lines]
    assert sorted(begins[:2]) == [("default/one", "error"), ("default/other", "error")]
    assert begins[2:] == [("default/one", "error")]
    assert end == ("default/one", "info")
    assert lines[-1]["times"] >= 38


@in_virtual_time
async def test_a_bug_in_planning_skips_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next turn comes one period later."""

    def plan(schedule: Schedule, key: Key, *, scaled: bool) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Schedule, "plan", plan)
    bench = Bench(hpa("web"))
    await bench.advance(149)
    assert len(bench.metrics.times("web")) >= 9


def test_a_bug_in_the_dispatcher_is_raised_by_wait_stopped() -> None:
    class Broken(QueueSeries):
        def waited(self, seconds: float) -> None:
            raise ZeroDivisionError

    class Failing(Telemetry):
        def __init__(self) -> None:
            super().__init__()
            self.queue = Broken(SeriesFactory(CollectorRegistry()))

    async def main() -> None:
        bench = Bench(hpa("web"), telemetry=Failing())
        bench.controller.start()
        try:
            await bench.controller.wait_stopped()
        finally:
            await bench.controller.stop(0)

    with pytest.raises(ZeroDivisionError):
        virtual_time.run(main())
