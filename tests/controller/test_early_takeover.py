"""Random lives of an HPA whose process ends cleanly, and whose next one crashes around its first turn.

That turn finds a closed record, which must be reopened first. HPAD_LIVES plays other seeds, as for `test_early`.
"""

import asyncio
from typing import Any

import pytest
from controller import chance, lives
from controller.lives import Environment, Life
from support import virtual_time

from hpad import clock as clocks
from hpad.store import persistent

SEEDS = range(chance.FIRST, chance.FIRST + max(1, chance.COUNT // 5))
ROUNDS = 5
LOW = 40
SECONDS = (0.0, 0.3, 1.5, 3.0, 20.0)
"""Seconds of a save."""


class Relay(chance.RandomLife):
    """Processes in succession. In each round the target has ten replicas after a peak, and the load is four's.

    Then the process ends, mostly cleanly, and the next one may see a peak in its first turn, which a third one must
    remember or know to be missing.
    """

    async def _play(self) -> None:
        self.environment = Environment(10, self._behavior(), maxReplicas=20)
        self._life = Life(self.environment, self._intervals)
        for _ in range(ROUNDS):
            await self._play_round()
            self._judge()
            if self.found:
                break
        await self._life.crash()

    async def _play_round(self) -> None:
        environment, dice = self.environment, self._dice
        environment.load = chance.PEAK
        await asyncio.sleep(2 * lives.PERIOD)
        environment.load = LOW
        await asyncio.sleep(dice.uniform(0, self._window))
        await self._pass_on(clean=dice.random() < 0.8, slow=dice.choice(SECONDS))
        await self._life.store.get_loaded(lives.WEB)
        environment.backend.fails = dice.random() < 0.3
        await asyncio.sleep(dice.uniform(0, lives.PERIOD / 2))
        environment.load = dice.choice([LOW, chance.PEAK])
        await asyncio.sleep(dice.uniform(0, lives.PERIOD))
        environment.load, environment.backend.fails = LOW, False
        await self._pass_on(clean=dice.random() < 0.3, slow=0.0)
        await asyncio.sleep(dice.uniform(self._window / 2, 2 * self._window))

    async def _pass_on(self, *, clean: bool, slow: float) -> None:
        """Ends the process, and starts the next one with a store of that speed, perhaps on another machine."""
        dice, backend = self._dice, self.environment.backend
        self._note("stop" if clean else "crash")
        await (self._life.stop() if clean else self._life.crash())
        if dice.random() < 0.3:
            self._boots += 1
            name = f"boot {self._boots}"
            clocks.boot = lambda: name
            self.environment.clock.ticks = dice.uniform(-1000, 1000)
        await asyncio.sleep(dice.uniform(0, 5))
        backend.slow = slow
        self._note("start", slow)
        self._life = Life(self.environment, self._intervals)


def played(seed: int) -> Relay:
    chance.silence()
    life = Relay(seed)
    virtual_time.run(life.play())
    return life


def test_no_pod_goes_early_in_a_relay() -> None:
    downs = 0
    for seed in SEEDS:
        life = played(seed)
        assert life.found == [], f"seed {seed}: {life.found[0]}; before: {life.log[-6:]}"
        downs += sum(write.after < write.before for write in life.environment.writes)
    assert len(SEEDS) < chance.CHUNK or downs > len(SEEDS) / 3, "targets are scaled down at all"


def reopening_waits_for_nothing(patch: pytest.MonkeyPatch) -> None:
    """A turn begins while the write that reopens its record is under way."""

    async def at_once(self: Any, key: Any, reopening: Any) -> None:
        reopening.saved = True

    patch.setattr(persistent.PersistentStore, "_wait_saved", at_once)


def refused_writes_reopen(patch: pytest.MonkeyPatch) -> None:
    """A turn begins once the write that reopens its record has ended, also without success."""
    wait_saved = persistent.PersistentStore._wait_saved

    async def ended(self: Any, key: Any, reopening: Any) -> None:
        await wait_saved(self, key, reopening)
        reopening.saved = True

    patch.setattr(persistent.PersistentStore, "_wait_saved", ended)


@pytest.mark.parametrize("switch_off", [reopening_waits_for_nothing, refused_writes_reopen])
def test_a_relay_shows_that_turns_wait_for_their_record(monkeypatch: pytest.MonkeyPatch, switch_off: Any) -> None:
    switch_off(monkeypatch)
    assert any(played(seed).found for seed in range(1, 200))
