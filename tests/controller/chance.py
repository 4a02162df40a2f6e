"""Random events in the life of an HPA, drawn from a seed."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec
import structlog
from controller import lives
from controller.lives import Environment, Life
from support import virtual_time
from support.controller import hpa

from hpad import clock as clocks
from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.kube import errors
from hpad.store import persistent

EVENTS = 24
BUSY = (8, 20)
PEAK = 100
GAPS = (0.5, 3.0, 10.0, 20.0, 50.0, 90.0)
"""Seconds for which hpad is down, or another replica leads."""
JUMPS = (-3600, -600, -120, -20, -5, 5, 20, 120, 600, 3600)
INTERVALS = (persistent.SaveIntervals(0.25, 1.0, 3.0), persistent.SaveIntervals(1.0, 15.0, 3.0))
WINDOWS = (45, 60, 120)
GROWTH = (2, 60)
"""The scaling policy: pods, and the period in seconds."""
_NO = "no"
FIRST, COUNT = (int(number) for number in os.environ.get("HPAD_LIVES", "1 50").split())
CHUNK = 50


def chunks() -> list[range]:
    """Returns the seeds in chunks, of each of which there is a test."""
    last = FIRST + COUNT
    return [range(first, min(first + CHUNK, last)) for first in range(FIRST, last, CHUNK)]


def named(seeds: range) -> str:
    """Returns the id of the test of these seeds."""
    return f"{seeds.start}-{seeds.stop - 1}"


def play_all(seeds: range) -> None:
    """Plays these lives; the first violation fails, with the events before it."""
    silence()
    downs = 0
    for seed in seeds:
        life = RandomLife(seed)
        virtual_time.run(life.play())
        assert life.found == [], f"seed {seed}: {life.found[0]}; before: {life.log[-6:]}"
        downs += sum(write.after < write.before for write in life.environment.writes)
    assert len(seeds) < CHUNK or downs > CHUNK // 3, "targets are scaled down at all"


def silence() -> None:
    """Drops log lines, which would take most of the time."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


class RandomLife:
    """Random events on one HPA, until a rule is violated (`found`). `log`: time, name and value of each event."""

    def __init__(self, seed: int) -> None:
        self.found: list[str] = []
        self.log: list[tuple[int, str, Any]] = []
        self._dice = random.Random(seed)
        self._window = self._dice.choice(WINDOWS)
        self._intervals = self._dice.choice(INTERVALS)
        self._grows = self._dice.random() < 0.5
        self._sleeps = self._dice.random() < 0.25
        self._boots = 0
        self._before: int | None = None
        self.environment: Environment
        self._life: Life

    @property
    def kinds(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """The events by name."""
        return {
            "crash": self._crash,
            "stop": self._stop,
            "clock": self._clock,
            "missing": self._missing,
            "owner": self._owner,
            "store": self._store,
            "slow": self._slow,
            "status": self._status,
            "conflict": self._conflict,
            "error": self._error,
            "edit": self._edit,
            "edit within": self._edit_within,
            "target within": self._target_within,
            "rival": self._rival,
            "hand": self._hand,
            "silent": self._silent,
            "gone": self._gone,
            "hand over": self._hand_off,
            "restored": self._restored,
        }

    async def play(self) -> None:
        """Plays the events; the same seed always gives the same ones."""
        boot = clocks.boot
        try:
            await self._play()
        finally:
            clocks.boot = boot

    async def _play(self) -> None:
        low = 0 if self._sleeps else 1
        self.environment = Environment(
            self._dice.randrange(2, 9), self._behavior(), sleeps=self._sleeps, minReplicas=low, maxReplicas=20
        )
        self._life = Life(self.environment, self._intervals)
        kinds = self.kinds
        for _ in range(EVENTS):
            await asyncio.sleep(self._dice.uniform(1, 30))
            await self._demand()
            if self._dice.random() < 0.7:
                kind = self._dice.choice(list(kinds))
                await kinds[kind]()
            self._judge()
            if self.found:
                break
        if self._sleeps and not self.found:
            await self._wake()
        await self._life.crash()

    async def _wake(self) -> None:
        """Ends all failures; the metric must then wake a target that hpad took to zero."""
        environment, api = self.environment, self._life.bench.cluster
        environment.backend.fails, environment.backend.slow = False, 0.0
        api.refusals, api.status_refusals = [], []
        self._put(hpa("web", behavior=self._behavior(), minReplicas=0, maxReplicas=20))
        environment.load = PEAK
        asleep = environment.asleep
        await asyncio.sleep(4 * lives.PERIOD)
        self._judge()
        if asleep and environment.scales["web"] == 0:
            self.found.append(f"{virtual_time.now():.0f} s: still at zero, to which hpad had scaled the target")

    def _put(self, spec: HorizontalPodAutoscaler) -> None:
        """Replaces the spec of the HPA."""
        self._life.bench.source.put(
            self.environment.renewed(msgspec.structs.replace(self.environment.found, spec=spec.spec))
        )

    def _behavior(self) -> dict[str, Any]:
        down = {"stabilizationWindowSeconds": self._window}
        if not self._grows:
            return {"scaleDown": down}
        policy = {"type": "Pods", "value": GROWTH[0], "periodSeconds": GROWTH[1]}
        return {"scaleDown": down, "scaleUp": {"policies": [policy]}}

    def _judge(self) -> None:
        self.found = self.environment.astray + lives.too_early(self.environment, self._window)
        if self._grows:
            self.found += lives.too_fast(self.environment, *GROWTH)

    async def _demand(self) -> None:
        """Changes the load: mostly low, now and then the peak for one or two turns."""
        if self._dice.random() < 0.5:
            self.environment.load = self._dice.choice([0, 0, 0, 10, 30, 50] if self._sleeps else [10, 20, 30, 50, 80])
        if self._dice.random() < 0.4:
            low, self.environment.load = self.environment.load, PEAK
            await asyncio.sleep(self._dice.uniform(*BUSY))
            self.environment.load = low

    def _note(self, kind: str, value: Any = None) -> None:
        self.log.append((round(virtual_time.now()), kind, value))

    async def _crash(self) -> None:
        self._note("crash")
        await self._life.crash()
        await self._restart()

    async def _stop(self) -> None:
        self._note("stop")
        await self._life.stop()
        await self._restart()

    async def _restart(self) -> None:
        """Starts hpad again after a gap, perhaps on another machine, with another clock, or without the saved state."""
        down, dice = self._dice.choice(GAPS), self._dice
        if dice.random() < 0.2:
            self._boots += 1
            name = f"boot {self._boots}"
            clocks.boot = lambda: name
            self.environment.clock.ticks = dice.uniform(-1000, 1000)
        elif dice.random() < 0.3:
            self.environment.clock.off += timedelta(seconds=dice.choice(JUMPS))
        if dice.random() < 0.1:
            self.environment.backend.rows.clear()
        if self.environment.backend.fails or not self.environment.backend.rows:
            self.environment.forget()
        await asyncio.sleep(down)
        self._note("start", (down, clocks.boot()[-6:], self.environment.clock.off, len(self.environment.backend.rows)))
        self._life = Life(self.environment, self._intervals)

    async def _clock(self) -> None:
        self.environment.clock.off += timedelta(seconds=self._dice.choice(JUMPS))
        self._note("clock", self.environment.clock.off)

    async def _missing(self) -> None:
        turns = self._dice.randrange(1, 4)
        self._note("missing", turns)
        count = self.environment.scales.pop("web")
        await asyncio.sleep(lives.PERIOD * turns)
        self.environment.scales["web"] = count

    async def _owner(self) -> None:
        """Another replica leads for a while and makes no turn."""
        away = self._dice.choice(GAPS)
        self._note("not ours", away)
        self._life.owner.on = False
        self._life.bench.takeover.changed()
        await asyncio.sleep(away)
        self._life.owner.on = True
        self._life.bench.takeover.changed()

    async def _hand_off(self) -> None:
        """Stops hpad cleanly, perhaps during a save; a standby takes over.

        It takes over once everything is saved, or earlier if that takes longer than the Lease is valid.
        """
        old, new = self._life, Life(self.environment, self._intervals, leads=False)
        old.bench.source.subscribe(lambda key, before, now: None if now is None else new.bench.source.put(now))
        slow, self.environment.backend.slow = self.environment.backend.slow, self._dice.choice([0.0, 0.5, 3.0, 20.0])
        before, self.environment.load = self.environment.load, self._dice.choice([PEAK, self.environment.load])
        await asyncio.sleep(self._dice.uniform(0, 2 * lives.PERIOD))
        self.environment.load = before
        lease = self._dice.choice([0.1, 5.0, 60.0])
        self._note("hand over", (self.environment.backend.slow, lease))
        stopping = asyncio.create_task(old.stop())
        await asyncio.wait([stopping], timeout=lease)
        old.owner.on, new.owner.on = False, True
        self._life = new
        if self.environment.backend.fails or not self.environment.backend.rows:
            self.environment.forget()
        new.bench.takeover.changed()
        await stopping
        self.environment.backend.slow = slow

    async def _store(self) -> None:
        self.environment.backend.fails = not self.environment.backend.fails
        self._note("store fails", self.environment.backend.fails)

    async def _slow(self) -> None:
        self.environment.backend.slow = self._dice.choice([0.0, 0.5, 3.0, 20.0])
        self._note("store is slow", self.environment.backend.slow)

    async def _status(self) -> None:
        self._note("no status")
        self._life.bench.cluster.status_refusals = [errors.ApiError(500, "", _NO)] * self._dice.randrange(1, 4)

    async def _conflict(self) -> None:
        self._note("conflict")
        self._life.bench.cluster.refusals = [errors.ApiError(409, "Conflict", _NO)] * self._dice.randrange(1, 7)

    async def _error(self) -> None:
        self._note("error")
        self._life.bench.cluster.refusals = [errors.ApiError(500, "", _NO)] * self._dice.randrange(1, 3)

    async def _edit(self) -> None:
        """Edits the HPA, which causes a turn before the planned one, mostly while the load is high."""
        high, low = self._dice.choice([12, 15, 20]), 0 if self._sleeps else self._dice.choice([1, 2])
        self._note("edit", (low, high))
        new = hpa("web", behavior=self._behavior(), minReplicas=low, maxReplicas=high)
        before, self.environment.load = self.environment.load, self._dice.choice([PEAK, self.environment.load])
        self._put(new)
        await asyncio.sleep(self._dice.choice([0.0, 0.1, 2.5]))
        self.environment.load = before

    async def _edit_within(self) -> None:
        """Forbids or limits growth, perhaps while a turn reads its metrics."""
        self._put(await self._forbidden("edit within"))
        await self._read()

    async def _restored(self) -> None:
        """Forbids or limits growth without a new resourceVersion, as after a restore of etcd."""
        new = await self._forbidden("restored")
        self._life.bench.source.put(msgspec.structs.replace(self.environment.found, spec=new.spec))
        await self._read()

    async def _forbidden(self, kind: str) -> HorizontalPodAutoscaler:
        """Returns an HPA that forbids or limits growth, at a moment when a turn may be reading a high load."""
        high, behavior = self._dice.choice([4, 6, 20]), self._behavior()
        if high == 20:
            behavior["scaleUp"] = {"selectPolicy": "Disabled"}
        self._note(kind, high)
        self._before, self.environment.load, self.environment.asking = self.environment.load, PEAK, 8.0
        await asyncio.sleep(self._dice.uniform(1, lives.PERIOD))
        return hpa("web", behavior=behavior, minReplicas=0 if self._sleeps else 1, maxReplicas=high)

    async def _read(self) -> None:
        """Waits until the metric has been read, and restores the load."""
        await asyncio.sleep(self.environment.asking)
        self.environment.load, self.environment.asking = self._before, 0.0

    async def _target_within(self) -> None:
        """Points the HPA at a missing target, mostly while a turn reads its metrics, then back."""
        away = self._dice.choice(GAPS)
        self._note("target within", away)
        before, self.environment.load, self.environment.asking = self.environment.load, PEAK, 8.0
        await asyncio.sleep(self._dice.uniform(1, lives.PERIOD))
        self._put(self.environment.point("elsewhere"))
        await asyncio.sleep(self.environment.asking)
        self.environment.load, self.environment.asking = before, 0.0
        await asyncio.sleep(away)
        self._put(self.environment.point("web"))

    async def _rival(self) -> None:
        """Adds a competing HPA for a while, mostly while hpad restarts or takes over."""
        target = self._dice.choice(["web", "twin"])
        self._note("rival", target)
        self._life.bench.source.put(self.environment.compete(target))
        await asyncio.sleep(self._dice.uniform(0, 20))
        await self._dice.choice([self._crash, self._stop, self._owner, self._conflict])()
        await asyncio.sleep(self._dice.uniform(1, 40))
        self.environment.agree()
        self._life.bench.source.drop("other")

    async def _hand(self) -> None:
        """Sets the count as another client does, and may start a target that hpad took to zero for a while.

        The count of a refused write is left out: hpad would take it for its own.
        """
        count = 0 if self._sleeps and self._dice.random() < 0.5 else self._dice.randrange(1, 12)
        count += count == self.environment.refused
        if self.environment.asleep and count == 0:
            self.environment.set(1)
            await asyncio.sleep(self._dice.uniform(1, 2 * lives.PERIOD))
        self._note("by hand", count)
        self.environment.set(count)

    async def _silent(self) -> None:
        """Makes the metric fail for a while."""
        self._note("no metric")
        before, self.environment.load = self.environment.load, None
        await asyncio.sleep(self._dice.uniform(5, 40))
        self.environment.load = before

    async def _gone(self) -> None:
        """Removes the HPA from the source for a moment, as an incomplete list does."""
        self._note("gone")
        known = self.environment.found
        self._life.bench.source.drop("web")
        await asyncio.sleep(self._dice.choice(GAPS))
        self._life.bench.source.put(known)
