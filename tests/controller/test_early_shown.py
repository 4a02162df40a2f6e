"""The lives of `test_early` can fail: with a rule of hpad switched off, a life violates the property.

Rules that random lives hardly reach have a scripted life.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from controller import chance, lives
from controller.lives import Environment, Life, Write
from support import virtual_time
from support.controller import competing, hpa

from hpad.api.hpa import HorizontalPodAutoscaler, Scale
from hpad.api.metadata import Key
from hpad.api.pod import Pod
from hpad.controller import overlap, write
from hpad.controller.planning import Grid
from hpad.election import owner
from hpad.engine import history as validity
from hpad.engine import state
from hpad.engine.view import View
from hpad.kube import errors
from hpad.store import persistent

MORE = range(1, 200)
"""Seeds that are tried after the known one, since a change of the code may move the events of a life."""

Switch = Callable[[pytest.MonkeyPatch], None]


def loaded_is_complete(patch: pytest.MonkeyPatch) -> None:
    """Loaded state counts as complete although a planned turn lies between its time and now."""
    patch.setattr(validity.Validity, "is_complete", lambda self, at, now: True)


def breaks_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """After missing turns the current count does not become a recommendation."""
    patch.setattr(state, "_is_interrupted", lambda memory, view, gap: False)


def clock_steps_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """The history stays where it is when the wall clock is set."""
    patch.setattr(state, "caught_up", lambda memory, now: memory)


def edits_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """A decision made with a former spec is written."""
    patch.setattr(owner, "decides_alike", lambda one, other: True)


def specs_are_not_checked_again(patch: pytest.MonkeyPatch) -> None:
    """The spec is compared once after the metrics have been read, and not again before each write."""
    scale_target = write.scale_target

    def unchecked(cluster: Any, clock: Any, permit: owner.Permit, *rest: Any) -> Any:
        unlimited = msgspec.structs.replace(permit, owner=owner.ALONE, current=lambda _: permit.hpa)
        return scale_target(cluster, clock, unlimited, *rest)

    patch.setattr(write, "scale_target", unchecked)


def zeros_of_others_are_hpads(patch: pytest.MonkeyPatch) -> None:
    """A target that hpad once took to zero counts so, whatever other clients have set since."""
    patch.setattr(View, "scaled_to_zero_is_outdated", False)


def lost_statuses_stay_lost(patch: pytest.MonkeyPatch) -> None:
    """A rescale whose status could not be written is never reported."""
    patch.setattr(state, "unreported", lambda pending, status, scale: None)


def successors_read_nothing(patch: pytest.MonkeyPatch) -> None:
    """A replica that takes over uses the state that it read at its own start."""
    patch.setattr(persistent.PersistentStore, "refresh", lambda self, keys=None: None)


def competing_hpas_are_found_late(patch: pytest.MonkeyPatch) -> None:
    """HPAs compete once both have computed metrics."""
    patch.setattr(overlap.Overlap, "register", lambda self, found: None)

    async def others(self: overlap.Overlap, key: Key, scale: Scale | None, pods: Sequence[Pod]) -> tuple[str, ...]:
        return competing(self.selectors, key, pods)

    patch.setattr(overlap.Overlap, "others", others)


@pytest.mark.parametrize(
    ("switch_off", "seed"),
    [
        (loaded_is_complete, 68),
        (breaks_are_ignored, 33),
        (clock_steps_are_ignored, 46),
        (edits_are_ignored, 1),
        (specs_are_not_checked_again, 18),
        (zeros_of_others_are_hpads, 274),
        (lost_statuses_stay_lost, 412),
        (successors_read_nothing, 7),
        (competing_hpas_are_found_late, 3),
    ],
)
def test_a_life_shows_a_rule_that_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, switch_off: Switch, seed: int
) -> None:
    assert played(seed).found == []
    switch_off(monkeypatch)
    assert any(played(each).found for each in (seed, *MORE))


def played(seed: int) -> chance.RandomLife:
    chance.silence()
    life = chance.RandomLife(seed)
    virtual_time.run(life.play())
    return life


Step = tuple[float, Callable[[Environment, Life], object]]
"""An event, and the seconds after the start at which it happens."""


class ScriptedLife(chance.RandomLife):
    """Given events on a target of five replicas with a window of a minute."""

    def __init__(self, *steps: Step, grows: bool = False) -> None:
        super().__init__(0)
        self._window, self._grows, self._steps = 60, grows, steps

    async def _play(self) -> None:
        self.environment = Environment(5, self._behavior(), maxReplicas=20)
        self._life = Life(self.environment)
        for at, happens in self._steps:
            await asyncio.sleep(at - virtual_time.now())
            happens(self.environment, self._life)
        await asyncio.sleep(2 * self._window)
        self._judge()
        await self._life.crash()


def histories_are_shifted_again(patch: pytest.MonkeyPatch) -> None:
    """A turn without a scale stores the history that was moved with the clock under the time of the former turn."""
    publish = write.Writes.publish

    async def stored(self: Any, turn: Any, done: Any) -> None:
        await publish(self, turn, done)
        if done.view.scale is None:
            key = done.view.hpa.key
            self._store.put(key, msgspec.structs.replace(self._store.get(key), history=done.view.history))

    patch.setattr(write.Writes, "publish", stored)


def set_back_and_hidden(environment: Environment, life: Life) -> None:
    environment.load, environment.clock.off = 20, -timedelta(minutes=5)
    environment.scales.pop("web")


def slowly(environment: Environment, life: Life) -> None:
    environment.load, environment.asking = 100, 5.0


def demands(load: int) -> Callable[[Environment, Life], None]:
    return lambda environment, life: setattr(environment, "load", load)


def saves_slowly(environment: Environment, life: Life) -> None:
    """A rescale waits for two seconds now, before it is written."""
    environment.backend.slow = 20.0


def smaller(environment: Environment) -> HorizontalPodAutoscaler:
    """The HPA, with a maximum that is below what is decided."""
    return environment.renewed(msgspec.structs.replace(environment.found, spec=hpa("web", maxReplicas=6).spec))


TURN = Grid(lives.PERIOD).place(lives.WEB, 1, 1) + lives.PERIOD
"""The second at which the second planned turn begins."""
CLOCK = (
    (40, set_back_and_hidden),
    (60, lambda environment, life: environment.scales.update(web=5)),
)
SPEC = (
    (20, demands(100)),
    (21, saves_slowly),
    (TURN + 0.8, lambda environment, life: life.bench.source.put(smaller(environment))),
)
TARGET = (
    (20, slowly),
    (TURN + 1.3, lambda environment, life: life.bench.source.put(environment.point("elsewhere"))),
)


@pytest.mark.parametrize(
    ("switch_off", "steps"),
    [(histories_are_shifted_again, CLOCK), (edits_are_ignored, TARGET), (specs_are_not_checked_again, SPEC)],
)
def test_a_scripted_life_shows_a_rule_that_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, switch_off: Switch, steps: tuple[Step, ...]
) -> None:
    assert violations(*steps) == []
    switch_off(monkeypatch)
    assert violations(*steps) != []


def much_and_no_status(environment: Environment, life: Life) -> None:
    environment.load = 100
    life.bench.cluster.status_refusals = [errors.ApiError(500, "", "no")] * 9


def set_forward(environment: Environment, life: Life) -> None:
    environment.clock.off = timedelta(hours=1)


def test_a_rescale_that_no_status_tells_of_moves_with_the_clock() -> None:
    assert violations((20, much_and_no_status), (45, set_forward), grows=True) == []


SET_TO_WHAT_WAS_DECIDED = (
    (20, demands(70)),
    (36, demands(50)),
    (80, saves_slowly),
    (95.5, lambda environment, life: environment.set(5)),
    (100, demands(100)),
)


def test_a_count_that_is_decided_and_set_by_hand_at_once_is_a_rescale() -> None:
    """The target had seven replicas within the period, so nine are two more.

    Kubernetes, too, writes again after a conflict and counts the change it decided (horizontal.go: storeScaleEvent).
    """
    life = lived(*SET_TO_WHAT_WAS_DECIDED, grows=True)
    assert life.found == []
    assert [(write.before, write.after) for write in life.environment.writes[:3]] == [(5, 7), (7, 5), (5, 9)]


def test_growth_is_judged_by_what_was_decided() -> None:
    environment = Environment()
    environment.writes = [Write(0, 7, 5, 1, 20), Write(15, 5, 9, 1, 20)]
    assert lives.too_fast(environment, *chance.GROWTH) == []
    environment.writes[1] = Write(15, 5, 10, 1, 20)
    assert lives.too_fast(environment, *chance.GROWTH) == ["15 s: 5 -> 10, though no more than 9 are allowed"]
    environment.writes = [Write(0, 3, 5, 1, 20), Write(15, 5, 6, 1, 20)]
    assert lives.too_fast(environment, *chance.GROWTH) == ["15 s: 5 -> 6, though no more than 5 are allowed"]


@pytest.mark.parametrize(
    ("write", "found"),
    [(Write(15, 5, 9, 1, 20), []), (Write(15, 5, 10, 1, 20), ["15 s: 5 -> 10, though no more than 9 are allowed"])],
)
def test_pods_that_were_taken_away_may_come_back_after_a_visit_to_another_target(
    write: Write, found: list[str]
) -> None:
    environment = Environment()
    environment.writes = [Write(0, 7, 5, 1, 20)]
    environment.point("elsewhere")
    environment.point("web")
    environment.writes.append(write)
    assert lives.too_fast(environment, *chance.GROWTH) == found


def violations(*steps: Step, grows: bool = False) -> list[str]:
    """Returns the violations in a life with these events; `grows`: the policy is chance.GROWTH."""
    return lived(*steps, grows=grows).found


def lived(*steps: Step, grows: bool = False) -> ScriptedLife:
    chance.silence()
    life = ScriptedLife(*steps, grows=grows)
    virtual_time.run(life.play())
    return life
