"""HPAs that change hands: what is under way for them ends, and those that come have their turns in good order."""

import asyncio
import itertools
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support import virtual_time
from support.controller import Bench, hpa

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.api.metadata import Key
from hpad.store.memory import Memory

PERIOD = 15.0
COUNT = 100


class Part:
    """The owner of the HPAs of these names."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def owns(self, key: Key) -> bool:
        return key.name in self.names


def key_of(name: str) -> Key:
    return Key("default", name)


def test_who_comes_late_already_goes_first_and_not_all_at_once() -> None:
    """A hundred HPAs of a member that died, more than there are workers; their last turns were 10 to 30 s ago."""

    async def main() -> None:
        names = [f"app-{number}" for number in range(COUNT)]
        owner = Part()
        bench = Bench(*(hpa(name) for name in names), owner=owner, period=PERIOD)
        bench.controller.start()
        await asyncio.sleep(40)
        assert bench.metrics.asked == []
        began = bench.clock.monotonic()
        ages = {name: 10 + 20 * number / COUNT for number, name in enumerate(names)}
        for name, age in ages.items():
            bench.store.put(key_of(name), Memory(uid="1", at=bench.clock.now() - timedelta(seconds=age)))
        owner.names.update(names)
        bench.handoff.changed()
        await asyncio.sleep(PERIOD)
        firsts = {name: bench.metrics.times(name)[0] - began for name in names}
        late = [name for name in names if ages[name] >= PERIOD]
        assert max(firsts[name] for name in late) <= PERIOD / 4
        assert max(sum(start <= firsts[name] < start + 0.5 for name in late) for start in (0, 1, 2, 3)) <= 20
        planned = [name for name in late if firsts[name] > 0]
        assert sum(firsts[old] <= firsts[young] for young, old in itertools.pairwise(planned)) > 60
        for name in set(names) - set(late):
            assert firsts[name] <= PERIOD - ages[name] + 1e-6
        await bench.controller.stop(5)

    virtual_time.run(main())


@pytest.mark.parametrize(("age", "expected"), [(4.0, 13.0), (16.0, 1.0), (17.5, 0.0), (-60.0, 17.0), (None, 0.0)])
def test_whoever_had_a_turn_elsewhere_rests_whatever_comes(age: float | None, expected: float) -> None:
    """Its own moment comes, and its spec changes; -60: the other's clock is ahead; None: it is new."""

    async def main() -> float:
        owner = Part()
        bench = Bench(hpa("web"), owner=owner, period=5.0, cooldown=2.0)
        bench.controller.start()
        bench.handoff.retune(17.0)
        await asyncio.sleep(20)
        if age is not None:
            bench.store.put(key_of("web"), Memory(uid="1", at=bench.clock.now() - timedelta(seconds=age)))
        began = bench.clock.monotonic()
        owner.names = {"web"}
        bench.handoff.changed()
        for goal in range(1, 30):
            bench.source.put(hpa("web", goal=goal))
            await asyncio.sleep(1)
        await bench.controller.stop(5)
        return bench.metrics.times("web")[0] - began

    assert virtual_time.run(main()) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("when", "known"), [(-3.0, True), (-3.0, False), (4.0, True)])
def test_whoever_is_seen_to_be_written_for_by_another_rests_from_then_on(when: float, known: bool) -> None:
    """By one that was slow, or whose history was not saved: it tells of a turn long ago, or of none."""

    async def main() -> float:
        owner = Part()
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
        return bench.metrics.times("web")[0] - began

    assert 8.0 <= virtual_time.run(main()) <= 8.0 + 5.0


def test_whoever_comes_back_before_its_rest_is_over_begins_anew() -> None:
    async def main() -> list[float]:
        owner = Part()
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
        return [at - began for at in bench.metrics.times("web")]

    turns = virtual_time.run(main())
    assert turns[0] >= 66.0
    assert len(turns) >= 2


def test_nothing_goes_on_for_whom_another_gets() -> None:
    async def main() -> None:
        owner = Part("web", "api")
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

    virtual_time.run(main())


def test_what_is_remembered_is_saved_before_others_may_have_it() -> None:
    async def main() -> list[Any]:
        owner = Part("web", "api")
        bench = Bench(hpa("web"), hpa("api"), owner=owner)
        said: list[Any] = []

        async def flush(keys: Any) -> None:
            said.append(sorted(keys))

        bench.store.flush = flush  # type: ignore[method-assign]  # it tells what it is asked
        bench.controller.start()
        await asyncio.sleep(1)
        owner.names.discard("api")
        bench.handoff.changed()
        await bench.handoff.hand_off()
        await bench.handoff.hand_off()
        await bench.controller.stop(5)
        return said

    assert virtual_time.run(main()) == [[key_of("api")], []]


def test_changes_are_counted() -> None:
    async def main() -> str:
        owner = Part()
        bench = Bench(hpa("web"), hpa("api"), owner=owner)
        bench.controller.start()
        await asyncio.sleep(1)
        for names in ({"web", "api"}, {"web"}, {"web"}):
            owner.names = names
            bench.handoff.changed()
        await asyncio.sleep(1)
        text = (await bench.telemetry.exposition()).decode()
        await bench.controller.stop(5)
        return text

    text = virtual_time.run(main())
    for line in (
        'hpad_shard_handovers_total{direction="gained"} 2.0',
        'hpad_shard_handovers_total{direction="lost"} 1.0',
        "hpad_shard_hpas 1.0",
    ):
        assert line in text
