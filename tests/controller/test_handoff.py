"""Reassigned HPAs: running turns of lost ones are cancelled, gained ones have turns at their planned times."""

import asyncio
import itertools
import math
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.controller import Bench, Named, hpa
from support.virtual_time import in_virtual_time

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.controller.handoff import PACE
from hpad.engine.history import Memory

PERIOD = 15.0
COUNT = 100


def key_of(name: str) -> Key:
    return Key("default", name)


@pytest.mark.parametrize("pause", [5.0, 15.0])
@in_virtual_time
async def test_overdue_hpas_go_first_and_turns_are_at_most_twice_as_frequent(pause: float) -> None:
    """A hundred HPAs of a member that ended `pause` seconds ago, with fewer workers; after 15 s all are overdue.

    Each has a namespace of its own, so that the planned turns are spread over the period.
    """
    names = [f"app-{number}" for number in range(COUNT)]
    owner = Named()
    bench = Bench(*(hpa(name, namespace=name) for name in names), owner=owner, period=PERIOD)
    bench.controller.start()
    await asyncio.sleep(40)
    assert bench.metrics.asked == []
    began = bench.clock.monotonic()
    ages = {}
    for name in names:
        ages[name] = PERIOD - bench.controller.until_planned(Key(name, name))
        if ages[name] < pause:  # the other member had ended before
            ages[name] += PERIOD
    for name, age in ages.items():
        memory = Memory(uid="1", at=bench.clock.now() - timedelta(seconds=age))
        bench.store.put(Key(name, name), memory)
    owner.names.update(names)
    bench.handoff.changed()
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
    owner = Named()
    bench = Bench(*(hpa(name, namespace=each) for name, each in places.items()), owner=owner, period=PERIOD)
    bench.controller.start()
    await asyncio.sleep(40)
    ages = {name: 20 + number / COUNT for number, name in enumerate(places)}
    for name, age in ages.items():
        memory = Memory(uid="1", at=bench.clock.now() - timedelta(seconds=age))
        bench.store.put(Key(places[name], name), memory)
    owner.names.update(places)
    bench.handoff.changed()
    await asyncio.sleep(PERIOD / 4)
    first = [places[name] for _, name in bench.metrics.asked][:COUNT]
    assert first[0] == "west"  # it has the most overdue one
    # Some have their planned turns meanwhile, which interrupt the order.
    assert sum(one != other for one, other in itertools.pairwise(first)) < COUNT / 2
    await bench.controller.stop(5)


@in_virtual_time
async def test_many_new_hpas_have_their_first_turns_at_their_planned_times() -> None:
    """As in a start without other replicas. Turns before them would come on top, and make a burst."""
    names = [f"app-{number}" for number in range(COUNT)]
    owner = Named()
    bench = Bench(*(hpa(name) for name in names), owner=owner, period=PERIOD, cooldown=17.0)
    bench.controller.start()
    await asyncio.sleep(40)
    began = bench.clock.monotonic()
    owner.names.update(names)
    bench.handoff.changed()
    await asyncio.sleep(2 * PERIOD + 0.01)
    for name in names:
        first, second = bench.metrics.times(name)
        assert first - began <= PERIOD
        assert second - first == pytest.approx(PERIOD)
    await bench.controller.stop(5)


@pytest.mark.parametrize(("age", "expected"), [(4.0, 13.0), (16.0, 1.0), (17.5, 0.0), (-60.0, 17.0), (None, 0.0)])
@in_virtual_time
async def test_a_gained_hpa_keeps_the_cooldown_after_its_last_turn(age: float | None, expected: float) -> None:
    """Neither its planned time nor edits end the cooldown.

    Age -60: the clock of the other replica is ahead; None: the HPA is new.
    """
    owner = Named()
    bench = Bench(hpa("web"), owner=owner, period=5.0, cooldown=2.0)
    bench.controller.start()
    bench.handoff.retune(17.0)
    await asyncio.sleep(20)
    if age is not None:
        bench.store.put(key_of("web"), Memory(uid="1", at=bench.clock.now() - timedelta(seconds=age)))
    began = bench.clock.monotonic()
    owner.names = {"web"}
    bench.handoff.changed()
    for average in range(1, 30):
        bench.source.put(hpa("web", average=average))
        await asyncio.sleep(1)
    await bench.controller.stop(5)
    assert bench.metrics.times("web")[0] - began == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("when", "known"), [(-3.0, True), (-3.0, False), (4.0, True)])
@in_virtual_time
async def test_a_status_written_by_another_replica_starts_the_cooldown(when: float, known: bool) -> None:
    """The other replica was slow or did not save its state, so the state has an old turn or none."""
    owner = Named()
    bench = Bench(hpa("web"), owner=owner, period=5.0, cooldown=17.0, lease=8.0)
    bench.controller.start()
    await asyncio.sleep(20)
    if known:
        bench.store.put(key_of("web"), Memory(uid="1", at=bench.clock.now() - timedelta(seconds=10)))
    written = msgspec.structs.replace(hpa("web"), status=HorizontalPodAutoscalerStatus(desired_replicas=3))
    for moment in sorted((when, 0.0)):
        if moment == when:
            bench.source.put(written)
            began = bench.clock.monotonic()
        else:
            owner.names = {"web"}
            bench.handoff.changed()
        await asyncio.sleep(abs(when))
    await asyncio.sleep(20)
    await bench.controller.stop(5)
    assert 8.0 <= bench.metrics.times("web")[0] - began <= 8.0 + 5.0


@pytest.mark.parametrize("lease", [0.0, 8.0])
@in_virtual_time
async def test_a_status_that_a_crashed_replica_wrote_after_its_last_save_counts_as_a_turn(lease: float) -> None:
    """Otherwise these HPAs would seem the most overdue ones, and go before those that have waited for longer."""
    names = [f"app-{number}" for number in range(12)]
    owner = Named()
    bench = Bench(*map(hpa, names), owner=owner, period=PERIOD, lease=lease)
    bench.controller.start()
    await asyncio.sleep(20)
    for name in names:
        bench.store.put(key_of(name), Memory(uid="1", at=bench.clock.now() - timedelta(seconds=15)))
        bench.source.put(msgspec.structs.replace(hpa(name), status=HorizontalPodAutoscalerStatus(desired_replicas=3)))
    await asyncio.sleep(9)
    began = bench.clock.monotonic()
    due = {name: min(bench.controller.until_planned(key_of(name)), PERIOD - 9) for name in names}
    assert max(due.values()) > 1
    owner.names.update(names)
    bench.handoff.changed()
    await asyncio.sleep(PERIOD)
    await bench.controller.stop(5)
    assert {name: bench.metrics.times(name)[0] - began for name in names} == pytest.approx(due, abs=0.1)


@in_virtual_time
async def test_a_late_write_of_the_former_owner_extends_the_cooldown_and_own_writes_do_not_count() -> None:
    owner = Named("web")
    bench = Bench(hpa("web"), owner=owner, period=5.0, cooldown=10.0, lease=8.0)
    bench.controller.start()
    await asyncio.sleep(12)
    assert len(bench.cluster.statuses) >= 1
    assert bench.controller.since_status_change(key_of("web")) == math.inf
    owner.names.clear()
    bench.handoff.changed()
    await asyncio.sleep(20)
    bench.store.put(key_of("web"), Memory(uid="1", at=bench.clock.now()))
    owner.names.add("web")
    bench.handoff.changed()
    await asyncio.sleep(4)
    asked = len(bench.metrics.asked)
    status = HorizontalPodAutoscalerStatus(desired_replicas=7)
    bench.source.put(msgspec.structs.replace(hpa("web"), status=status))
    await asyncio.sleep(7.9)
    assert len(bench.metrics.asked) == asked
    await asyncio.sleep(5)
    assert len(bench.metrics.asked) > asked
    await bench.controller.stop(5)


@in_virtual_time
async def test_an_hpa_gained_again_during_its_cooldown_starts_a_new_one() -> None:
    owner = Named()
    bench = Bench(hpa("web"), owner=owner, period=5.0, cooldown=17.0)
    bench.controller.start()
    await asyncio.sleep(20)
    began = bench.clock.monotonic()
    for later in (0.0, 3.0):
        bench.store.put(key_of("web"), Memory(uid="1", at=bench.clock.now()))
        owner.names = {"web"}
        bench.handoff.changed()
        await asyncio.sleep(1 + later)
        owner.names = set()
        bench.handoff.changed()
        await asyncio.sleep(1)
    await asyncio.sleep(60)
    owner.names = {"web"}
    bench.handoff.changed()
    await asyncio.sleep(12)
    await bench.controller.stop(5)
    turns = [at - began for at in bench.metrics.times("web")]
    assert turns[0] >= 66.0
    assert len(turns) >= 2


@in_virtual_time
async def test_a_running_turn_does_not_scale_a_lost_hpa() -> None:
    owner = Named("web", "api")
    bench = Bench(hpa("web"), hpa("api"), owner=owner)

    async def slowly() -> int:
        await asyncio.sleep(5)
        return 40

    bench.metrics.values.update({"web": slowly, "api": slowly})
    bench.controller.start()
    await asyncio.sleep(1)
    owner.names.discard("web")
    bench.handoff.changed()
    await bench.handoff.hand_off()
    assert b'hpa_name="web"' not in await bench.telemetry.exposition()
    await asyncio.sleep(30)
    assert (bench.cluster.scales["web"], bench.cluster.scales["api"]) == (1, 4)
    await bench.controller.stop(5)


@in_virtual_time
async def test_the_state_of_lost_hpas_is_saved_before_the_handoff() -> None:
    owner = Named("web", "api")
    bench = Bench(hpa("web"), hpa("api"), owner=owner)
    saved: list[Any] = []

    async def flush(keys: Any) -> None:
        saved.append(sorted(keys))

    bench.store.flush = flush  # type: ignore[method-assign]  # records its calls
    bench.controller.start()
    await asyncio.sleep(1)
    owner.names.discard("api")
    bench.handoff.changed()
    await bench.handoff.hand_off()
    await bench.handoff.hand_off()
    await bench.controller.stop(5)
    assert saved == [[key_of("api")], []]


@in_virtual_time
async def test_gained_and_lost_hpas_are_counted() -> None:
    owner = Named()
    bench = Bench(hpa("web"), hpa("api"), owner=owner)
    bench.controller.start()
    await asyncio.sleep(1)
    for names in ({"web", "api"}, {"web"}, {"web"}):
        owner.names = names
        bench.handoff.changed()
    await asyncio.sleep(1)
    text = (await bench.telemetry.exposition()).decode()
    await bench.controller.stop(5)
    for line in (
        'hpad_shard_handovers_total{direction="gained"} 2.0',
        'hpad_shard_handovers_total{direction="lost"} 1.0',
        "hpad_shard_hpas 1.0",
    ):
        assert line in text


@in_virtual_time
async def test_a_gained_hpa_waits_until_its_namespace_is_listed_and_holds_no_worker_meanwhile() -> None:
    owner = Named("api")
    bench = Bench(hpa("api", namespace="ours"), hpa("web"), owner=owner, workers=1, period=5.0, foreign_turns=False)
    bench.controller.start()
    await asyncio.sleep(20)
    bench.cluster.listing.add("default")
    owner.names.add("web")
    bench.handoff.changed()
    began, before = bench.clock.monotonic(), len(bench.metrics.times("api"))
    await asyncio.sleep(20)
    assert bench.metrics.times("web") == []
    assert "web" not in bench.cluster.reads, "not even its scale is read"
    assert len(bench.metrics.times("api")) - before == 4
    bench.cluster.listing.clear()
    await asyncio.sleep(5)
    assert bench.metrics.times("web")[0] - began <= 20.5
    await bench.controller.stop(5)


@in_virtual_time
async def test_hpas_of_other_members_have_no_turns_if_members_own_whole_namespaces() -> None:
    """A turn of such an HPA would only read its target. Once it is gained, it has a turn per period."""
    owner = Named()
    bench = Bench(hpa("web"), owner=owner, period=5.0, foreign_turns=False)
    looked: list[float] = []
    peek = bench.cluster.peek_scale
    bench.cluster.peek_scale = lambda *args: looked.append(bench.clock.monotonic()) or peek(*args)  # type: ignore[method-assign,func-returns-value]
    bench.controller.start()
    await asyncio.sleep(6)
    begun = len(looked)
    await asyncio.sleep(50)
    assert len(looked) == begun
    for _ in range(2):
        owner.names = {"web"}
        bench.handoff.changed()
        began = bench.clock.monotonic()
        await asyncio.sleep(20.1)
        turns = [at for at in bench.metrics.times("web") if at >= began]
        assert len(turns) in (4, 5)
        owner.names = set()
        bench.handoff.changed()
        await asyncio.sleep(20)
        assert bench.metrics.times("web")[-1] == turns[-1]
    await bench.controller.stop(5)


@in_virtual_time
async def test_the_ticks_of_a_member_suit_the_hpas_that_it_owns() -> None:
    """In a period of 15 s the ticks last 0.4 s for few HPAs, 0.2 s for more than 2,400 (`Grid.tick_for`)."""
    ours = [hpa(f"ours-{number}", namespace=f"ours-{number % 4}") for number in range(40)]
    theirs = [hpa(f"theirs-{number}", namespace=f"theirs-{number % 50}") for number in range(2_400)]
    owner = Named(*(each.metadata.name for each in ours))
    bench = Bench(*ours, *theirs, owner=owner, workers=64, foreign_turns=False)
    bench.controller.start()
    bench.handoff.changed()

    await asyncio.sleep(20)
    turns = [bench.metrics.times(each.metadata.name)[-1] for each in ours]
    assert {round(at % 15 / 0.4 % 1, 3) % 1 for at in turns} == {0}
    await bench.controller.stop(5)
