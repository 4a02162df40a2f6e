"""That the random lives would show a broken rule: with the rule switched off, a life violates the property."""

from collections.abc import Callable

import pytest
import virtual
from control import chance

from hpad.control import jumps, ownership, resume
from hpad.store import validity

MORE = range(1, 200)
"""Where a change moved what happens in a life: the seeds that are tried after the one that is known to show it."""

Switch = Callable[[pytest.MonkeyPatch], None]


def recalled_is_whole(patch: pytest.MonkeyPatch) -> None:
    """Recalled state is taken as whole, although a planned turn lies between its time and now."""
    patch.setattr(validity.Validity, "is_whole", lambda self, at, now: True)


def breaks_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """After turns that are missing, the present count is no recommendation."""
    patch.setattr(resume, "_is_interrupted", lambda memory, view, gap: False)


def clock_steps_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """The history stays where it is when the wall clock is set."""
    patch.setattr(jumps, "caught_up", lambda memory, now: memory)


def edits_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """What was decided by a former spec is written."""
    patch.setattr(ownership, "decides_alike", lambda one, other: True)


@pytest.mark.parametrize(
    ("switch_off", "seed"),
    [(recalled_is_whole, 11), (breaks_are_ignored, 5), (clock_steps_are_ignored, 28), (edits_are_ignored, 13)],
)
def test_a_life_shows_a_rule_that_is_switched_off(
    monkeypatch: pytest.MonkeyPatch, switch_off: Switch, seed: int
) -> None:
    assert played(seed).found == []
    switch_off(monkeypatch)
    assert any(played(each).found for each in (seed, *MORE))


def played(seed: int) -> chance.Fate:
    chance.silence()
    fate = chance.Fate(seed)
    virtual.run(fate.play())
    return fate
