"""A leader of many HPAs stops cleanly: the next one reopens their records together, and their turns come in time."""

import asyncio
from collections.abc import Hashable, Mapping

import pytest
from controller import chance, lives
from support import virtual_time
from support.controller import Bench, Switch, hpa

from hpad.api.metadata import Key
from hpad.store import persistent

GROUPS, SIZE = 20, 16
AT_ONCE = 4
"""The number of groups that the backend writes at the same time, as ConfigMaps."""
QUICK, SLOW = 0.08, 0.8
"""Seconds of a write. With `QUICK`, a save of all takes as long as one of 5,000 HPAs with 20 ms per write."""
NAMES = [f"app-{number}" for number in range(GROUPS * SIZE)]


class Backend(lives.Backend):
    """Records in groups. `written` is the number of writes, one per group and save."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.written = 0

    def group(self, key: Key) -> Hashable:
        return int(key.name.removeprefix("app-")) % GROUPS

    async def save(self, changes: Mapping[Key, bytes | None]) -> dict[Key, str]:
        groups = len(set(map(self.group, changes)))
        self.written += groups
        await asyncio.sleep(self.seconds * -(-groups // AT_ONCE))
        return await super().save(changes)


class Process:
    """An hpad with leader election and its store. `read` returns when each metric was read."""

    def __init__(self, backend: Backend, *, leads: bool) -> None:
        self.owner = Switch(leads)
        clock, intervals = virtual_time.VirtualClock(), persistent.SaveIntervals(1.0, lives.PERIOD)
        self.store = persistent.PersistentStore(
            backend, clock, lives.telemetry(), intervals, lambda: self.owner.leading
        )
        self.bench = Bench(
            *(hpa(name, namespace=f"team-{number // 12}") for number, name in enumerate(NAMES)),
            owner=self.owner,
            clock=clock,
            store=self.store,
            telemetry=lives.telemetry(),
            period=lives.PERIOD,
            workers=50,
        )
        self.bench.cluster.select = lambda *_: []  # type: ignore[method-assign]  # their metrics need no pods
        self._running = asyncio.create_task(self.store.run())
        self.bench.controller.start()

    async def stop(self) -> None:
        await self.bench.controller.stop(5)
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self.store.stop()
        self.owner.on = False

    def read(self) -> dict[str, list[float]]:
        found: dict[str, list[float]] = {name: [] for name in NAMES}
        for at, name in self.bench.metrics.asked:
            found[name].append(at)
        return found


async def taken_over(seconds: float) -> tuple[dict[str, float], int]:
    """Hands all HPAs over; returns how late the first turns are, and the number of writes until all had one.

    A turn that is due while no process leads may come later by the quarter of a period over which these are spread.
    """
    backend = Backend(seconds)
    first, second = Process(backend, leads=True), Process(backend, leads=False)
    await asyncio.sleep(3.5 * lives.PERIOD)
    await first.stop()
    before = {name: times[-1] for name, times in first.read().items()}
    await asyncio.sleep(1)
    began, backend.written = virtual_time.now(), 0
    second.owner.on = True
    second.bench.takeover.changed()
    await asyncio.sleep(0.95 * lives.PERIOD)
    written = backend.written
    await asyncio.sleep(lives.PERIOD)
    after = {name: times[0] for name, times in second.read().items()}
    await second.stop()
    spread = {name: lives.PERIOD / 4 if before[name] + lives.PERIOD < began else 0.0 for name in NAMES}
    return {name: after[name] - max(before[name] + lives.PERIOD, began) - spread[name] for name in NAMES}, written


@pytest.mark.parametrize("seconds", [QUICK, SLOW])
def test_the_first_turns_of_a_new_leader_wait_for_one_save_of_all_records(seconds: float) -> None:
    """None is put off, also if the save takes longer than the patience of the store: some write of it ends in time."""
    chance.silence()
    late, written = virtual_time.run(taken_over(seconds))
    assert max(late.values()) <= (GROUPS / AT_ONCE + 1) * seconds, "the save of all, and one part for its remainder"
    assert written <= 3 * GROUPS
