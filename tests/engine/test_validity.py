"""How long the state of an HPA counts as complete."""

from datetime import UTC, datetime, timedelta

import pytest

from hpad import clock
from hpad.clock import Moment
from hpad.engine.history import Validity

AT = datetime(2026, 1, 1, tzinfo=UTC)
MADE = Validity(clock.boot(), 100.0, lasts=15.0, grace=15.0)


def after(seconds: float, jump: float = 0.0) -> Moment:
    """The moment `seconds` after the turn, with the wall clock set by `jump` seconds in between."""
    return Moment(AT + timedelta(seconds=seconds + jump), 100.0 + seconds, clock.boot())


def closed(validity: Validity = MADE) -> Validity:
    return validity.close(AT, after(1))


@pytest.mark.parametrize("jump", [0, -3600, 3600])
@pytest.mark.parametrize(
    ("validity", "seconds", "complete"),
    [
        (MADE, 0, True),
        (MADE, 14.9, True),
        (MADE, 15, False),
        (MADE, 3600, False),
        (closed(), 29.9, True),
        (closed(), 30, False),
        (MADE.invalidated(), 0, False),
        (closed(MADE.invalidated()), 1, False),
        (MADE.prolonged(Validity(clock.boot(), 115.0, 15.0, 15.0)), 29, True),
        (MADE.prolonged(Validity(clock.boot(), 115.0, 15.0, 15.0)), 30, False),
    ],
)
def test_state_is_complete_until_the_planned_turn_by_the_monotonic_clock(
    validity: Validity, seconds: float, complete: bool, jump: float
) -> None:
    assert validity.is_complete(AT, after(seconds, jump)) is complete


def test_state_cannot_be_closed_after_a_turn_was_due() -> None:
    assert MADE.close(AT, after(15)) == MADE


@pytest.mark.parametrize(
    ("seconds", "complete"), [(5, True), (29, True), (30, False), (3600, False), (-30, True), (-90, False)]
)
def test_state_of_another_boot_is_complete_only_if_closed(seconds: float, complete: bool) -> None:
    other = Validity("another", 1e6, lasts=15.0, grace=15.0)
    assert not other.is_complete(AT, after(1))
    closed = Validity("another", 1e6, lasts=15.0, grace=15.0, closed=True)
    assert closed.is_complete(AT, after(0, seconds)) is complete


def test_an_earlier_monotonic_time_means_another_boot() -> None:
    assert not MADE.is_complete(AT, Moment(AT + timedelta(seconds=5), 5.0, clock.boot()))
    assert not MADE.comparable(Moment(AT, 99.0, clock.boot()))
