"""The compact form of past recommendations decides as a list of them does."""

import sys
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from hpad.api.behavior import compile_behavior
from hpad.api.hpa import HorizontalPodAutoscalerBehavior, HPAScalingRules
from hpad.engine.history import PackedRecommendations, PastRecommendation
from hpad.engine.restrain import stabilize, stabilize_down

START = datetime(2026, 1, 1, tzinfo=UTC)
counts = st.integers(0, 6) | st.integers(2**31 - 2, 2**31 - 1)
entries = st.builds(
    PastRecommendation, st.integers(-90, 0).map(lambda ago: START + timedelta(seconds=ago)), counts, st.booleans()
)
pasts = st.lists(entries, max_size=12)
windows = st.integers(0, 90).map(lambda seconds: timedelta(seconds=seconds))


def replaced(past: list[PastRecommendation], stale: list[int], latest: PastRecommendation) -> list[PastRecommendation]:
    """Returns the entries with the last stale one replaced, or the latest one behind them."""
    if not stale:
        return [*past, latest]
    return [latest if index == stale[-1] else entry for index, entry in enumerate(past)]


@given(pasts)
def test_it_holds_what_was_put_in(past: list[PastRecommendation]) -> None:
    made = PackedRecommendations(past)
    assert list(made) == past
    assert made == tuple(past)
    assert tuple(past) == made
    assert made == PackedRecommendations(past)
    assert hash(made) == hash(tuple(past))
    assert len(made) == len(past)


@given(pasts, counts, counts, windows)
def test_the_highest_within_the_window_counts(
    past: list[PastRecommendation], recommended: int, current: int, window: timedelta
) -> None:
    found = stabilize_down(recommended, current, past, window, START)
    young = [entry for entry in past if entry.timestamp >= START - window]
    known = [current if entry.uncertain else entry.replicas for entry in young]
    assert found.replicas == max([recommended, *known])
    stale = [index for index, entry in enumerate(past) if entry.timestamp < START - window]
    assert list(found.past) == replaced(past, stale, PastRecommendation(START, recommended))


@given(pasts, counts, counts, windows, windows)
def test_the_windows_of_both_directions_bound_the_count(
    past: list[PastRecommendation], recommended: int, current: int, up: timedelta, down: timedelta
) -> None:
    rules = HPAScalingRules(stabilization_window_seconds=int(up.total_seconds()))
    behavior = compile_behavior(HorizontalPodAutoscalerBehavior(scale_up=rules))
    assert behavior is not None
    found = stabilize(recommended, current, past, behavior, down, START)

    def within(window: timedelta) -> list[int]:
        young = [entry for entry in past if entry.timestamp > START - window]
        return [current if entry.uncertain else entry.replicas for entry in young]

    low, high = min([recommended, *within(up)]), max([recommended, *within(down)])
    assert found.replicas == min(max(current, low), high)
    stale = [index for index, entry in enumerate(past) if entry.timestamp < START - max(up, down)]
    assert list(found.past) == replaced(past, stale, PastRecommendation(START, recommended))


def test_a_count_beyond_an_int32_is_cut() -> None:
    assert PackedRecommendations([PastRecommendation(START, 2**40), PastRecommendation(START, -3)]) == (
        PastRecommendation(START, 2**31 - 1),
        PastRecommendation(START, 0),
    )
    assert PackedRecommendations().stored(-1, 0, 2**40)[0].replicas == 2**31 - 1


def test_a_full_window_takes_less_than_half_a_kilobyte() -> None:
    past = PackedRecommendations(PastRecommendation(START + timedelta(seconds=15 * turn), turn) for turn in range(20))
    assert sum(map(sys.getsizeof, (past, *[getattr(past, name) for name in past.__slots__]))) < 500
