"""The first turns of a new leader: at their planned times, and late ones one after another."""

import asyncio
import itertools
from datetime import timedelta

import msgspec
import pytest
from support.controller import Bench, Switch, hpa
from support.virtual_time import in_virtual_time

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.controller.takeover import PACE
from hpad.engine import spec
from hpad.engine.history import Memory
from hpad.store.store import InMemory

PERIOD = 15.0
COUNT = 100


def key_of(name: str) -> Key:
    return Key("default", name)


@pytest.mark.parametrize("pause", [5.0, 15.0])
@in_virtual_time
async def test_overdue_hpas_go_first_and_turns_are_at_most_twice_as_frequent(pause: float) -> None:
    """A hundred HPAs of a leader that ended `pause` seconds ago, with fewer workers; after 15 s all are overdue.

    Each has a namespace of its own, so that the planned turns are spread over the period.
    """
    names = [f"app-{number}" for number in range(COUNT)]
    owner = Switch(False)
    bench = Bench(*(hpa(name, namespace=name) for name in names), owner=owner, period=PERIOD)
    bench.controller.start()
    await asyncio.sleep(40)
    assert bench.metrics.asked == []
    began = bench.clock.monotonic()
    ages = {}
    for name in names:
        ages[name] = PERIOD - bench.controller.until_planned(Key(name, name))
        if ages[name] < pause:  # the other leader had ended before
            ages[name] += PERIOD
    for name, age in ages.items():
        memory = Memory(uid="1", at=bench.clock.now() - timedelta(seconds=age))
        bench.store.put(Key(name, name), memory)
    owner.on = True
    bench.takeover.changed()
    await asyncio.sleep(3 * PERIOD)
    firsts = {name: bench.metrics.times(name)[0] - began for name in names}
    late = [name for name in names if ages[name] >= PERIOD]
    assert max(firsts[name] for name in late) <= PERIOD * len(late) / COUNT / PACE
    starts = [start - began for name in names for start in bench.metrics.times(name)]
    assert _most_within(3, starts) <= 2 * _most_within(3, [start for start in starts if start > 2 * PERIOD])
    oldest_first = sorted(late, key=ages.__getitem__, reverse=True)
    assert sum(firsts[old] <= firsts[young] for old, young in itertools.pairwise(oldest_first)) > 0.8 * len(late)
    for name in set(names) - set(late):
        assert firsts[name] <= PERIOD - ages[name] + 1e-6
    await bench.controller.stop(5)


def _most_within(seconds: float, times: list[float]) -> int:
    return max(sum(first <= time < first + seconds for time in times) for first in times)


@in_virtual_time
async def test_overdue_hpas_of_a_namespace_follow_each_other() -> None:
    """They share lists of metrics; by age alone, the turns of these two namespaces would alternate."""
    places = {f"app-{number}": ("east", "west")[number % 2] for number in range(COUNT)}
    owner = Switch(False)
    bench = Bench(*(hpa(name, namespace=each) for name, each in places.items()), owner=owner, period=PERIOD)
    bench.controller.start()
    await asyncio.sleep(40)
    ages = {name: 20 + number / COUNT for number, name in enumerate(places)}
    for name, age in ages.items():
        memory = Memory(uid="1", at=bench.clock.now() - timedelta(seconds=age))
        bench.store.put(Key(places[name], name), memory)
    owner.on = True
    bench.takeover.changed()
    await asyncio.sleep(PERIOD / 4)
    first = [places[name] for _, name in bench.metrics.asked][:COUNT]
    assert first[0] == "west"  # it has the most overdue one
    # Some have their planned turns meanwhile, which interrupt the order.
    assert sum(one != other for one, other in itertools.pairwise(first)) < COUNT / 2
    await bench.controller.stop(5)


class SlowToRead(InMemory):
    """A store whose state is read `seconds` after each takeover."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.read = asyncio.Event()

    def refresh(self) -> None:
        super().refresh()
        asyncio.get_running_loop().call_later(self.seconds, self.read.set)

    async def get_loaded(self, key: Key) -> Memory:
        await self.read.wait()
        return self.get(key)


@in_virtual_time
async def test_an_hpa_whose_turn_waits_for_the_state_has_one_turn() -> None:
    """Its planned turn falls due while the state is read, which shows that it is late: both would follow at once."""
    owner, store = Switch(False), SlowToRead(1.5 * PERIOD)
    bench = Bench(hpa("web"), owner=owner, period=PERIOD, store=store)
    bench.controller.start()
    await asyncio.sleep(40)
    store.put(key_of("web"), Memory(uid="1", at=bench.clock.now() - timedelta(seconds=40)))
    owner.on = True
    bench.takeover.changed()
    await asyncio.sleep(1.5 * PERIOD + 1)
    assert len(bench.metrics.times("web")) == 1
    await bench.controller.stop(5)


@in_virtual_time
async def test_many_new_hpas_have_their_first_turns_at_their_planned_times() -> None:
    """As in a start without other replicas. Turns before them would come on top, and make a burst."""
    names = [f"app-{number}" for number in range(COUNT)]
    owner = Switch(False)
    bench = Bench(*(hpa(name) for name in names), owner=owner, period=PERIOD)
    bench.controller.start()
    await asyncio.sleep(40)
    began = bench.clock.monotonic()
    owner.on = True
    bench.takeover.changed()
    await asyncio.sleep(2 * PERIOD + 0.01)
    for name in names:
        first, second = bench.metrics.times(name)
        assert first - began <= PERIOD
        assert second - first == pytest.approx(PERIOD)
    await bench.controller.stop(5)


@in_virtual_time
async def test_a_status_that_a_crashed_replica_wrote_after_its_last_save_counts_as_a_turn() -> None:
    """Otherwise these HPAs would seem the most overdue ones, and go before those that have waited for longer."""
    names = [f"app-{number}" for number in range(12)]
    owner = Switch(False)
    bench = Bench(*map(hpa, names), owner=owner, period=PERIOD)
    bench.controller.start()
    await asyncio.sleep(20)
    for name in names:
        bench.store.put(key_of(name), Memory(uid="1", at=bench.clock.now() - timedelta(seconds=15)))
        bench.source.put(msgspec.structs.replace(hpa(name), status=HorizontalPodAutoscalerStatus(desired_replicas=3)))
    await asyncio.sleep(9)
    began = bench.clock.monotonic()
    due = {name: min(bench.controller.until_planned(key_of(name)), PERIOD - 9) for name in names}
    assert max(due.values()) > 1
    owner.on = True
    bench.takeover.changed()
    await asyncio.sleep(PERIOD)
    await bench.controller.stop(5)
    assert {name: bench.metrics.times(name)[0] - began for name in names} == pytest.approx(due, abs=0.1)


@in_virtual_time
async def test_neither_start_nor_takeover_compiles_the_specs_in_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of 10,000 HPAs would hold the event loop for several tenths of a second. Each turn compiles its own."""
    compiled, compile_one = list[str](), spec._compile

    def counted(found: HorizontalPodAutoscaler) -> spec.CompiledSpec:
        compiled.append(found.metadata.name)
        return compile_one(found)

    monkeypatch.setattr(spec, "_compile", counted)
    names = [f"app-{number}" for number in range(COUNT)]
    bench = Bench(*map(hpa, names))
    bench.controller.start()
    bench.controller.take_over()
    assert compiled == []
    await asyncio.sleep(1.5 * PERIOD)
    await bench.controller.stop(5)
    assert sorted(compiled) == sorted(names)
