"""The heartbeat under virtual time: pace, isolation, deletion; seen in the state of a small world."""

import asyncio
import itertools
from typing import Any

import msgspec
import pytest
import structlog
from prometheus_client import CollectorRegistry
from support import virtual_time
from support.controller import Bench, hpa

from hpad.api.metadata import Key
from hpad.api.sample import Asker
from hpad.telemetry import Telemetry
from hpad.telemetry.controller import QueueSeries


def run(main: Any) -> Any:
    return virtual_time.run(main())


class RoundingLoop(virtual_time.VirtualLoop):
    """As uvloop has it: timers fire at whole milliseconds, half of them early. Not more of them than are needed."""

    timers = 0

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        self.timers += 1
        assert self.timers < 10_000, "a timer that fires early calls for the next one, and so on"
        return super().call_at(round(when, 3), callback, *args, context=context)


def test_a_turn_that_comes_a_moment_early_is_the_one_that_was_planned() -> None:
    async def main() -> tuple[Bench, str]:
        bench = Bench(*(hpa(f"app-{n}") for n in range(20)), workers=10)
        await bench.advance(150)
        return bench, (await bench.telemetry.exposition()).decode()

    with asyncio.Runner(loop_factory=RoundingLoop) as runner:
        bench, series = runner.run(main())
    assert [len(bench.metrics.times(f"app-{n}")) for n in range(20)] == [10] * 20
    assert "hpad_reconcile_lateness_seconds_count 200.0" in series


def test_every_hpa_is_reconciled_once_a_period_and_spread_over_it() -> None:
    async def main() -> Bench:
        bench = Bench(*(hpa(f"app-{n}") for n in range(200)), workers=10)
        await bench.advance(150)
        return bench

    bench = run(main)
    first: list[float] = []
    for n in range(200):
        times = bench.metrics.times(f"app-{n}")
        assert len(times) == 10
        assert all(abs(later - earlier - 15) < 1e-6 for earlier, later in itertools.pairwise(times))
        first.append(times[0])
    for start in range(0, 15, 3):
        assert 20 <= sum(start <= at < start + 3 for at in first) <= 60


def test_a_few_hpas_begin_at_once() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"), hpa("api"))
        await bench.advance(0.001)
        return bench

    assert [at for at, _ in run(main).metrics.asked] == [0, 0]


def test_metrics_are_told_which_hpa_asks() -> None:
    async def main() -> Bench:
        web = hpa("web")
        metadata = msgspec.structs.replace(web.metadata, labels={"tier": "front", "team": "a"})
        bench = Bench(msgspec.structs.replace(web, metadata=metadata))
        await bench.advance(0.001)
        return bench

    labels = (("team", "a"), ("tier", "front"))
    assert run(main).metrics.askers == [Asker(name="web", target_kind="Deployment", target_name="web", labels=labels)]


def test_a_changed_spec_runs_at_once_and_keeps_the_rhythm() -> None:
    async def main() -> list[float]:
        bench = Bench(hpa("web"))
        bench.controller.start()
        await asyncio.sleep(31)
        regular = bench.metrics.times("web")[1:]
        await asyncio.sleep((regular[0] - 31 + 7) % 15)
        changed = asyncio.get_running_loop().time()
        bench.source.put(hpa("web", goal=5))
        await asyncio.sleep(15)
        await bench.controller.stop(5)
        times = bench.metrics.times("web")
        assert changed in times
        return [at - regular[0] for at in times if at > regular[0] and at != changed]

    assert all(offset % 15 == pytest.approx(0, abs=1e-6) or 15 - offset % 15 < 1e-6 for offset in run(main))


@pytest.mark.parametrize(("before", "left_out"), [(3, True), (7, True), (8, False), (14, False)])
def test_between_a_rescale_out_of_turn_and_the_next_turn_is_half_a_period(before: int, left_out: bool) -> None:
    """So many seconds before its next turn the spec of an HPA changes, and with it the count."""

    async def main() -> list[float]:
        bench = Bench(hpa("web"))
        bench.controller.start()
        await asyncio.sleep(31)
        regular = bench.metrics.times("web")[-1]
        await asyncio.sleep((regular - before - 31) % 15)
        changed = asyncio.get_running_loop().time()
        bench.source.put(hpa("web", goal=5))
        await asyncio.sleep(46)
        await bench.controller.stop(5)
        assert bench.cluster.writes == [2]
        return [round(at - changed) for at in bench.metrics.times("web") if at >= changed]

    turns = [before, before + 15, before + 30]
    assert run(main)[:3] == [0, *(turns[1:] if left_out else turns[:2])]


@pytest.mark.parametrize("name", ["web", "api", "shop", "cart", "mail", "auth"])
def test_a_new_hpa_that_scales_has_half_a_period_until_its_next_turn(name: str) -> None:
    async def main() -> list[float]:
        bench = Bench(hpa(name))
        bench.metrics.values[name] = 20
        await bench.advance(40)
        return bench.metrics.times(name)

    first, second, third = run(main)[:3]
    assert first == 0
    assert 7.5 <= second <= 22.5
    assert third - second == pytest.approx(15)


def test_a_status_written_by_anybody_is_no_reason_to_run() -> None:
    async def main() -> int:
        bench = Bench(hpa("web"))
        bench.controller.start()
        await asyncio.sleep(0.001)
        held = bench.source.get(Key("default", "web"))
        for version in range(5):
            metadata = msgspec.structs.replace(held.metadata, resource_version=str(version))
            bench.source.put(msgspec.structs.replace(held, metadata=metadata))
        await asyncio.sleep(0.001)
        await bench.controller.stop(5)
        return len(bench.metrics.asked)

    assert run(main) == 1


def test_a_metric_that_hangs_holds_up_nobody_else() -> None:
    """And its own HPA is given up before the period is over, counted, and tried again in the next one."""

    async def hang() -> None:
        await asyncio.sleep(3600)

    async def main() -> tuple[Bench, str]:
        bench = Bench(hpa("slow"), hpa("web"), workers=2)
        bench.metrics.values["slow"] = hang
        await bench.advance(151)
        return bench, (await bench.telemetry.exposition()).decode()

    bench, series = run(main)
    assert len(bench.metrics.times("web")) >= 10
    assert len(bench.metrics.times("slow")) >= 10
    total = 'reconciliations_total{action="none",error="internal"} '
    assert float(series.split(total)[1].split()[0]) >= 9


def test_a_source_that_hangs_for_many_holds_up_nobody_else() -> None:
    """Waiting takes no worker: two of them serve everybody while three hundred HPAs wait for nothing."""

    async def hang() -> None:
        await asyncio.sleep(9)

    async def main() -> Bench:
        bench = Bench(hpa("web"), *(hpa(f"slow-{n}") for n in range(300)), workers=2)
        for n in range(300):
            bench.metrics.values[f"slow-{n}"] = hang
        await bench.advance(151)
        return bench

    times = run(main).metrics.times("web")
    assert len(times) >= 10
    assert all(abs(later - earlier - 15) < 0.01 for earlier, later in itertools.pairwise(times))


def test_one_worker_is_enough() -> None:
    """Who comes back from waiting for metrics finds it free, however long nobody else has a turn."""

    async def answer() -> int:
        await asyncio.sleep(1)
        return 20

    async def main() -> Bench:
        bench = Bench(hpa("web"), workers=1)
        bench.metrics.values["web"] = answer
        await bench.advance(50)
        return bench

    bench = run(main)
    assert len(bench.metrics.times("web")) >= 3
    assert bench.cluster.writes == [2]


def test_of_more_than_can_be_done_what_is_begun_is_finished() -> None:
    """A hundred HPAs, of which one a second can be written: no more wait for metrics that take long than can be
    written, within the period, once those have come."""

    async def answer() -> int:
        await asyncio.sleep(5)
        return 10_000

    async def main() -> tuple[int, int]:
        bench = Bench(*(hpa(f"web-{number}") for number in range(100)), workers=1)
        bench.metrics.values.update({f"web-{number}": answer for number in range(100)})
        bench.cluster.write_seconds = 1

        async def lose_pods() -> None:
            while True:
                bench.cluster.scales.update({f"web-{number}": 1 for number in range(100)})
                await asyncio.sleep(1)

        losing = asyncio.create_task(lose_pods())
        bench.controller.start()
        await asyncio.sleep(30)  # how long a turn takes is to be learned first
        begun, done = len(bench.metrics.asked), len(bench.cluster.writes)
        await asyncio.sleep(300)
        losing.cancel()
        await bench.controller.stop(0)
        return len(bench.metrics.asked) - begun, len(bench.cluster.writes) - done

    begun, done = run(main)
    assert done > 0.95 * begun


def test_a_bug_in_one_reconcile_is_counted_and_stops_nothing() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    async def main() -> tuple[Bench, str]:
        bench = Bench(hpa("bad"), hpa("web"), workers=1)
        bench.metrics.values["bad"] = fail
        await bench.advance(149)
        return bench, (await bench.telemetry.exposition()).decode()

    bench, series = run(main)
    assert len(bench.metrics.times("web")) >= 10
    bugs = float(series.split("\nhpad_bugs_total ")[1].split()[0])
    assert bugs == len(bench.metrics.times("bad")) >= 10


def test_a_bug_is_said_once_for_an_hpa_and_a_cause_and_so_is_its_end() -> None:
    async def divide() -> None:
        raise ZeroDivisionError

    async def look() -> None:
        raise LookupError

    async def main() -> list[tuple[Any, Any]]:
        bench = Bench(hpa("one"), hpa("other"), workers=1)
        bench.metrics.values.update(one=divide, other=divide)
        bench.controller.start()
        with structlog.testing.capture_logs() as logged:
            await asyncio.sleep(300)
            bench.metrics.values["one"] = look
            await asyncio.sleep(300)
            bench.metrics.values["one"] = 5
            await asyncio.sleep(300)
            await bench.controller.stop(0)
        lines = [line for line in logged if line["event"].startswith(("bug:", "the reconcile"))]
        return [(line["hpa"], line.get("times", line["log_level"])) for line in lines]

    lines = run(main)
    assert sorted(lines[:2]) == [("default/one", "error"), ("default/other", "error")]
    assert lines[2] == ("default/one", "error")
    (hpa_well, times) = lines[3]
    assert hpa_well == "default/one"
    assert times >= 38
    assert len(lines) == 4


def test_a_bug_in_planning_costs_an_hpa_no_turn() -> None:
    """The next one comes a period later."""

    async def main() -> Bench:
        bench = Bench(hpa("web"))

        def plan(key: Key, *, scaled: bool) -> None:
            raise ZeroDivisionError

        bench.controller._schedule.plan = plan  # type: ignore[method-assign,assignment]
        await bench.advance(149)
        return bench

    bench = run(main)
    assert len(bench.metrics.times("web")) >= 9


def test_a_bug_in_the_heartbeat_is_raised_where_it_is_waited_for() -> None:
    class Broken(QueueSeries):
        def waited(self, seconds: float) -> None:
            raise ZeroDivisionError

    class Failing(Telemetry):
        def __init__(self) -> None:
            super().__init__()
            self.queue = Broken(CollectorRegistry())

    async def main() -> None:
        bench = Bench(hpa("web"), telemetry=Failing())
        bench.controller.start()
        try:
            await bench.controller.wait_stopped()
        finally:
            await bench.controller.stop(0)

    with pytest.raises(ZeroDivisionError):
        run(main)


def test_a_heartbeat_that_is_stopped_ends_quietly() -> None:
    async def main() -> None:
        bench = Bench(hpa("web"))
        bench.controller.start()
        waiting = asyncio.create_task(bench.controller.wait_stopped())
        await asyncio.sleep(60)
        assert not waiting.done()
        await bench.controller.stop(5)
        await waiting

    run(main)


def test_a_deleted_hpa_is_forgotten_even_while_it_is_worked_on() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"), hpa("api"))

        async def slow() -> int:
            await asyncio.sleep(3)
            return 10

        bench.metrics.values["web"] = slow
        bench.controller.start()
        await asyncio.sleep(1)
        bench.source.drop("web")
        await asyncio.sleep(60)
        await bench.controller.stop(5)
        return bench

    bench = run(main)
    assert list(bench.store.keys()) == [Key("default", "api")]
    assert len(bench.metrics.times("web")) == 1


def test_an_hpa_made_anew_under_the_name_starts_afresh() -> None:
    async def main() -> tuple[int, int]:
        bench = Bench(hpa("web"))
        bench.metrics.values["web"] = 40
        bench.controller.start()
        await asyncio.sleep(1)
        before = len(bench.store.get(Key("default", "web")).history.scale_ups)
        bench.metrics.values["web"] = 40
        bench.source.put(hpa("web", uid="2"))
        await asyncio.sleep(0.5)
        after = len(bench.store.get(Key("default", "web")).history.scale_ups)
        await bench.controller.stop(5)
        return before, after

    assert run(main) == (1, 0)


def test_hpas_on_common_pods_are_rivals() -> None:
    async def main() -> Bench:
        bench = Bench(hpa("web"), hpa("twin"))
        bench.cluster.selectors["twin"] = "app=web"
        await bench.advance(31)
        return bench

    bench = run(main)
    assert {event.reason for event in bench.cluster.events} == {"AmbiguousSelector", "FailedComputeMetricsReplicas"}
    assert bench.cluster.scales == {"web": 1, "twin": 1}


def test_stopping_lets_a_reconcile_end_and_cancels_one_that_does_not() -> None:
    async def main(seconds: float) -> tuple[float, int]:
        bench = Bench(hpa("web"))

        async def slow() -> int:
            await asyncio.sleep(seconds)
            return 40

        bench.metrics.values["web"] = slow
        bench.controller.start()
        await asyncio.sleep(1)
        await bench.controller.stop(5)
        return asyncio.get_running_loop().time(), bench.cluster.scales["web"]

    assert virtual_time.run(main(3)) == (3, 4)
    assert virtual_time.run(main(12)) == (6, 1)
