"""Statuses with `status_refresh`: measured values alone are written once per interval, everything else at once."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support import virtual_time
from support.controller import Bench, Switch, hpa
from support.virtual_time import in_virtual_time

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.api.sample import AdapterError, ExternalSample
from hpad.controller.observe import interval_of
from hpad.engine.turn import Reconcile
from hpad.engine.view import Competitor
from hpad.kube import errors
from hpad.records import encode, replay

WEB = Key("default", "web")
MINUTE = timedelta(minutes=1)
CONFLICT = errors.ApiError(409, "Conflict", "the object has been modified")


def steady(name: str = "web", **fields: Any) -> HorizontalPodAutoscaler:
    return hpa(name, average=1000, **fields)


def moving(bench: Bench, name: str = "web") -> None:
    """Gives each turn of an HPA another value, within the tolerance: 1000, 1001, ..."""
    numbers = itertools.count(1000)

    async def value() -> int:
        return next(numbers)

    bench.metrics.values[name] = value


def values(statuses: list[HorizontalPodAutoscalerStatus], index: int = 0) -> list[int]:
    """Returns the value in each of the statuses."""
    found = []
    for status in statuses:
        assert status.current_metrics is not None
        external = status.current_metrics[index].external
        assert external is not None
        assert external.current.average_value is not None
        found.append(external.current.average_value.milli() // 1000)
    return found


async def held(bench: Bench) -> None:
    """Runs the controller until the turn after a write of values alone, which writes nothing."""
    bench.controller.start()
    await asyncio.sleep(61)
    written = len(bench.cluster.statuses)
    await virtual_time.until(lambda: len(bench.cluster.statuses) > written)
    written = len(bench.cluster.statuses)
    await asyncio.sleep(15)
    assert len(bench.cluster.statuses) == written


def made(*, status_refresh: timedelta = MINUTE, **options: Any) -> Bench:
    bench = Bench(steady(), status_refresh=status_refresh, **options)
    moving(bench)
    return bench


@in_virtual_time
async def test_values_alone_are_written_once_per_interval() -> None:
    bench = made()
    await bench.advance(601)
    first, *later = values(bench.cluster.statuses)
    assert first == 1000, "the first turn of the process writes"
    assert len(bench.metrics.times("web")) >= 41
    assert len(later) >= 10
    assert {after - before for before, after in itertools.pairwise(later)} == {4}, "each fourth turn, with its value"


@in_virtual_time
async def test_by_default_each_change_is_written() -> None:
    bench = Bench(steady())
    moving(bench)
    await bench.advance(301)
    turns = len(bench.metrics.times("web"))
    assert values(bench.cluster.statuses) == list(range(1000, 1000 + turns))


async def scale_up(bench: Bench) -> None:
    bench.metrics.values["web"] = 3500


async def compete(bench: Bench) -> None:
    bench.cluster.others = (Competitor("status", "kubectl"),)


async def edit(bench: Bench) -> None:
    present = bench.source.get(WEB)
    assert present is not None
    bench.source.put(msgspec.structs.replace(present, spec=steady(maxReplicas=9).spec))


async def lose_the_status(bench: Bench) -> None:
    present = bench.source.get(WEB)
    assert present is not None
    emptied = msgspec.structs.replace(present.status, current_metrics=None)
    bench.source.put(msgspec.structs.replace(present, status=emptied))


async def set_the_status(bench: Bench) -> None:
    present = bench.source.get(WEB)
    assert present is not None
    other = msgspec.structs.replace(present.status, desired_replicas=7)
    bench.source.put(msgspec.structs.replace(present, status=other))


async def set_the_scale(bench: Bench) -> None:
    bench.cluster.scales["web"] = 2


async def reload(bench: Bench) -> None:
    options = bench.reconciler._observer.options
    bench.reconciler.retune(msgspec.structs.replace(options, status_refresh=timedelta(0)))


@pytest.mark.parametrize("change", [scale_up, compete, edit, lose_the_status, set_the_status, set_the_scale, reload])
@in_virtual_time
async def test_other_changes_are_written_in_the_same_turn(change: Callable[[Bench], Any]) -> None:
    """A rescale, a condition, an edit of the HPA, a status of another client, another count; and a reload."""
    bench = made()
    await held(bench)
    turns, written = len(bench.metrics.times("web")), len(bench.cluster.statuses)
    await change(bench)
    await asyncio.sleep(15)
    await bench.controller.stop(5)
    done = len(bench.metrics.times("web"))
    assert done > turns
    expected = {scale_up: 3500, set_the_scale: (1000 + turns) // 2}.get(change, 1000 + turns)
    assert values(bench.cluster.statuses[written:])[:1] == [expected], "the values of this turn are written as well"


@in_virtual_time
async def test_without_a_change_that_turn_writes_nothing() -> None:
    """The counterpart of the test above."""
    bench = made()
    await held(bench)
    turns, written = len(bench.metrics.times("web")), len(bench.cluster.statuses)
    await asyncio.sleep(15)
    await bench.controller.stop(5)
    assert len(bench.metrics.times("web")) == turns + 1
    assert len(bench.cluster.statuses) == written


@in_virtual_time
async def test_the_failure_of_one_of_two_metrics_is_written_in_the_same_turn() -> None:
    metrics = [
        {
            "type": "External",
            "external": {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": "1000"}},
        }
        for name in ("queue", "other")
    ]
    bench = Bench(steady(metrics=metrics), status_refresh=MINUTE)
    numbers, broken = itertools.count(1000), False

    async def gather(queries: Any, **_: Any) -> list[Any]:
        bench.metrics.asked.append((bench.clock.monotonic(), "web"))
        sample = ExternalSample((next(numbers) * 1000,), bench.clock.now())
        return [sample, AdapterError("no answer") if broken else sample]

    bench.metrics.gather = gather  # type: ignore[method-assign]
    await held(bench)
    for broken in (True, False):
        turns, written = len(bench.metrics.times("web")), len(bench.cluster.statuses)
        await asyncio.sleep(15)
        assert values(bench.cluster.statuses[written:]) == [1000 + turns]
        assert [each.type for each in bench.cluster.statuses[-1].current_metrics or ()] == [
            "External",
            "" if broken else "External",
        ]
    await bench.controller.stop(5)


@in_virtual_time
async def test_a_refused_write_of_values_is_tried_again_in_the_next_turn() -> None:
    bench = made()
    await held(bench)
    written = values(bench.cluster.statuses)[-1]
    bench.cluster.status_refusals = [CONFLICT, CONFLICT]
    await asyncio.sleep(75)
    await bench.controller.stop(5)
    assert bench.cluster.status_refusals == []
    assert values(bench.cluster.statuses)[-1] == written + 6, "four turns later, and two refusals"


@in_virtual_time
async def test_a_lost_status_of_a_rescale_is_written_in_the_next_turn() -> None:
    bench = made()
    await held(bench)
    bench.metrics.values["web"] = 3500
    bench.cluster.status_refusals = [CONFLICT]
    await asyncio.sleep(30)
    await bench.controller.stop(5)
    assert bench.cluster.writes == [4]
    assert bench.cluster.statuses[-1].last_scale_time is not None
    assert bench.store.get(WEB).pending is None


@in_virtual_time
async def test_an_hpa_that_comes_back_from_another_replica_is_written_at_once() -> None:
    owner = Switch()
    bench = made(owner=owner)
    await held(bench)
    for owner.on in (False, True):
        bench.takeover.changed()
    turns, written = len(bench.metrics.times("web")), len(bench.cluster.statuses)
    await asyncio.sleep(15)
    await bench.controller.stop(5)
    assert values(bench.cluster.statuses[written:]) == [1000 + turns]


@pytest.mark.parametrize("lost", [False, True])
@in_virtual_time
async def test_a_new_process_writes_at_once(lost: bool) -> None:
    """It does not know when the last one wrote, and it reports a rescale whose status was `lost`."""
    bench = made()
    await held(bench)
    if lost:
        bench.metrics.values["web"] = 3500
        bench.cluster.status_refusals = [CONFLICT]
        await asyncio.sleep(15)
    await bench.controller.stop(5)
    present = bench.source.get(WEB)
    assert present is not None
    successor = Bench(present, status_refresh=MINUTE, store=bench.store, clock=bench.clock)
    successor.cluster.scales.update(bench.cluster.scales)
    successor.metrics.values.update(bench.metrics.values)
    await successor.advance(1)
    assert len(successor.metrics.times("web")) == 1
    assert len(successor.cluster.statuses) == 1
    assert (successor.cluster.statuses[0].last_scale_time is not None) == lost


@in_virtual_time
async def test_an_edit_while_the_status_is_written_is_not_forgotten() -> None:
    """The write succeeds, and the edit comes before its answer."""
    bench = made()
    await held(bench)
    write = bench.cluster.write_status

    async def edited_meanwhile(*arguments: Any) -> HorizontalPodAutoscaler:
        answer = await write(*arguments)
        bench.cluster.write_status = write  # type: ignore[method-assign]
        bench.source.put(msgspec.structs.replace(answer, spec=steady(maxReplicas=9).spec))
        return answer

    bench.cluster.write_status = edited_meanwhile  # type: ignore[method-assign]
    written = len(bench.cluster.statuses)
    await virtual_time.until(lambda: len(bench.cluster.statuses) > written)
    await asyncio.sleep(1)
    await bench.controller.stop(5)
    first, second = values(bench.cluster.statuses[written:])
    assert second == first + 1, "the turn of the edit writes as well"


@in_virtual_time
async def test_an_edit_during_a_turn_is_decided_again_and_written() -> None:
    bench = made()
    await held(bench)
    value = bench.metrics.values["web"]

    async def edited_meanwhile() -> Any:
        bench.metrics.values["web"] = value
        await edit(bench)
        return await value()  # type: ignore[operator,misc]

    bench.metrics.values["web"] = edited_meanwhile
    turns, written = len(bench.metrics.times("web")), len(bench.cluster.statuses)
    await asyncio.sleep(15)
    await bench.controller.stop(5)
    assert values(bench.cluster.statuses[written:])[:1] == [1000 + turns]


@in_virtual_time
async def test_the_writes_of_hpas_are_spread_over_the_interval() -> None:
    """Also after a failure of all metrics, which all HPAs report in the same period."""
    names = [f"web-{number}" for number in range(80)]
    bench = Bench(*map(steady, names), status_refresh=MINUTE)
    outage = asyncio.Event()

    def value(name: str) -> Callable[[], Any]:
        numbers = itertools.count(1000)

        async def answer() -> int | AdapterError:
            return AdapterError("no answer") if outage.is_set() else next(numbers) % 50 + 1000

        return answer

    for name in names:
        bench.metrics.values[name] = value(name)
    bench.controller.start()
    await asyncio.sleep(45)
    outage.set()
    await asyncio.sleep(45)
    outage.clear()
    await asyncio.sleep(45)
    counts = []
    for _ in range(8):
        before = len(bench.cluster.statuses)
        await asyncio.sleep(15)
        counts.append(len(bench.cluster.statuses) - before)
    await bench.controller.stop(5)
    assert sum(counts[4:]) == len(names)
    assert all(8 <= count <= 32 for count in counts[4:]), counts


def test_the_intervals_of_an_hpa_have_the_length_of_the_setting() -> None:
    for key in (WEB, Key("shop", "checkout")):
        turns = Counter(interval_of(key, 15.0 * turn + 3.7, 60.0) for turn in range(400))
        assert set(list(turns.values())[1:-1]) == {4}


class Steps:
    """A recorder that keeps all reconciles."""

    def __init__(self) -> None:
        self.done: list[Reconcile] = []

    def note(self, done: Reconcile) -> None:
        self.done.append(done)

    @property
    def scenario(self) -> dict[str, Any]:
        steps = [encode.encode_reconcile(each, new_spec=False) for each in self.done]
        return {**encode.encode_head(self.done[0], "mine"), "steps": steps}


def wavering(bench: Bench) -> None:
    """Two values in turn, each of which comes back before it is written; rescales and failures in between."""
    answers = itertools.cycle([1000, 1001, 1001, 1000, 1001, 5000, 5001, AdapterError("no answer"), 5000, 1000])

    async def answer() -> int | AdapterError:
        return next(answers)

    bench.metrics.values["web"] = answer


async def recorded(status_refresh: timedelta) -> tuple[Bench, Steps]:
    steps = Steps()
    bench = Bench(steady(), status_refresh=status_refresh, recorder=steps)
    wavering(bench)
    await bench.advance(15 * 41)
    return bench, steps


@in_virtual_time
async def test_a_recording_replays_with_the_same_statuses() -> None:
    _, steps = await recorded(timedelta(seconds=45))
    scenario = steps.scenario
    assert any(step.get("valuesHeld") for step in scenario["steps"])
    expected = [step["expect"] for step in scenario["steps"]]
    assert replay.replay(scenario)["steps"] == expected
    assert sum(step["statusUpdate"] is not None for step in expected) < len(expected)


@in_virtual_time
async def test_decisions_are_the_same_as_without() -> None:
    """Counts, events, conditions and history do not depend on which statuses were written."""
    (plain, plain_steps), (other, other_steps) = await recorded(timedelta(0)), await recorded(MINUTE)
    assert len(other.cluster.statuses) < len(plain.cluster.statuses)
    assert len(plain.cluster.writes) > 4

    def results(steps: Steps) -> list[Any]:
        return [(done.decision.scale_to, done.settlement.events, done.settlement.error) for done in steps.done]

    def settled(steps: Steps) -> list[Any]:
        return [[(each.type, each.status, each.message) for each in done.settlement.status.conditions]
                for done in steps.done]  # fmt: skip

    assert results(plain_steps) == results(other_steps)
    assert settled(plain_steps) == settled(other_steps)


@pytest.mark.parametrize("options", [{"dry_run": True}, {"owned": False}])
@in_virtual_time
async def test_a_status_that_the_store_keeps_is_always_current(options: dict[str, Any]) -> None:
    bench = made(**options)
    await bench.advance(100)
    status = bench.store.get(WEB).status
    assert status is not None
    assert values([status]) == [1000 + len(bench.metrics.times("web")) - 1]
    assert bench.cluster.statuses == []
