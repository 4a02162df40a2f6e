"""Recovery after a gap: no pod is removed earlier than without the gap."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from support.controller import hpa

from hpad.api.hpa import HorizontalPodAutoscalerStatus, Scale, ScaleSpec, ScaleStatus
from hpad.engine import state
from hpad.engine.history import NOTHING, History, Idleness, Memory, PastRecommendation, PendingRescale, Rescale
from hpad.engine.view import View

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GAP = timedelta(minutes=1)
HELD = PastRecommendation(NOW - timedelta(seconds=20), 5)
UNKNOWN = PastRecommendation(NOW, 5, uncertain=True)
SPEC = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}}}


def view(replicas: int) -> View:
    scale = Scale(metadata={"name": "web"}, spec=ScaleSpec(replicas), status=ScaleStatus(replicas, "app=web"))
    return View(hpa=hpa("web", **SPEC), now=NOW, scale=scale)


def memory(
    ago: float = 15, last_count: int | None = 5, pending: PendingRescale | None = None, loaded: bool = True
) -> Memory:
    at = NOW - timedelta(seconds=ago)
    past = History((HELD,))
    return Memory(uid="1", history=past, at=at, last_count=last_count, pending=pending, loaded=loaded, complete=loaded)


def test_a_short_gap_changes_nothing() -> None:
    assert state.resumed(memory(), view(5), GAP) == History((HELD,))


def test_after_a_long_gap_the_current_count_counts_as_recommended() -> None:
    assert state.resumed(memory(ago=90), view(5), GAP).recommendations == (HELD, UNKNOWN)
    assert state.resumed(memory(ago=90, loaded=False), view(5), GAP).recommendations == (HELD,)


def test_with_incomplete_state_the_current_count_counts_as_recommended() -> None:
    found = state.resumed(msgspec.structs.replace(memory(), complete=False), view(5), GAP)
    assert found.recommendations == (HELD, UNKNOWN)


def test_a_count_that_changed_in_the_gap_counts_as_an_uncertain_rescale() -> None:
    found = state.resumed(memory(last_count=9), view(5), GAP)
    assert found.recommendations[-1] == UNKNOWN
    assert found.scale_downs == (Rescale(NOW, 4, uncertain=True),)
    assert state.resumed(memory(last_count=3), view(5), GAP).scale_ups == (Rescale(NOW, 2, uncertain=True),)


CREATED = NOW - timedelta(days=1)
IDLE = Idleness(CREATED, timedelta(minutes=9), NOW - timedelta(seconds=15))


@pytest.mark.parametrize(
    ("fields", "ago", "last_count", "expected"),
    [
        ({}, 15, 5, IDLE),
        ({"loaded": False}, 15, 5, IDLE),
        ({"complete": False}, 15, 5, Idleness(CREATED)),
        ({}, 90, 5, Idleness(CREATED)),
        ({"loaded": False}, 90, 5, Idleness(CREATED)),
        ({}, 15, 3, Idleness(CREATED)),
    ],
    ids=["restart", "running", "turns may be missing", "long gap", "suspended", "another count"],
)
def test_the_time_without_work_goes_on_only_where_no_turn_can_be_missing(
    fields: dict[str, Any], ago: float, last_count: int, expected: Idleness
) -> None:
    stored = memory(ago=ago, last_count=last_count)
    stored = msgspec.structs.replace(stored, history=History((HELD,), idleness=IDLE), **fields)
    assert state.resumed(stored, view(5), GAP).idleness == expected


def test_a_clock_step_moves_the_time_without_work_and_a_time_in_the_future_ends_it() -> None:
    step = timedelta(hours=1)
    assert IDLE.shifted(step) == Idleness(CREATED + step, IDLE.lasted, NOW - timedelta(seconds=15) + step)
    later = msgspec.structs.replace(memory(), at=NOW + step, history=History((HELD,), idleness=IDLE.shifted(step)))
    assert state.resumed(later, view(5), GAP).idleness is msgspec.UNSET


@pytest.mark.parametrize(
    ("ago", "complete", "loaded", "expected"),
    [(5, False, True, True), (20, False, True, False), (5, True, True, False), (5, False, False, False)],
)
def test_a_status_can_show_a_rescale_that_the_state_lacks(
    ago: float, complete: bool, loaded: bool, expected: bool
) -> None:
    """The state is 15 s old."""
    status = HorizontalPodAutoscalerStatus(last_scale_time=NOW - timedelta(seconds=ago))
    stored = msgspec.structs.replace(memory(), complete=complete, loaded=loaded)
    assert state.rescaled_since(stored, status) is expected
    assert state.rescaled_since(NOTHING, status), "lost state: any rescale may be missing"
    assert not state.rescaled_since(NOTHING, HorizontalPodAutoscalerStatus()), "a new HPA has not scaled"


def test_a_rescale_known_only_from_the_status_counts_with_its_largest_size() -> None:
    found = state.resumed(memory(), view(5), GAP, unseen=True)
    assert found.scale_ups == (Rescale(NOW, 5, uncertain=True),)
    assert found.scale_downs == (Rescale(NOW, 5, uncertain=True),), "from the maximum of 10 to 5"


@pytest.mark.parametrize(("found", "counts"), [(8, True), (5, False), (6, False)])
def test_an_interrupted_rescale_counts_if_the_target_changed(found: int, counts: bool) -> None:
    up = (Rescale(NOW - timedelta(seconds=15), 3),)
    pending = PendingRescale(5, 8, up, (), HorizontalPodAutoscalerStatus())
    ups = state.resumed(memory(pending=pending), view(found), GAP).scale_ups
    assert (up[0] in ups) is counts
    assert all(rescale.uncertain for rescale in ups if rescale not in up)


@pytest.mark.parametrize(("found", "counts", "uncertain"), [(2, True, False), (5, False, False), (4, True, True)])
def test_an_interrupted_scale_down_with_an_unknown_result_is_uncertain(
    found: int, counts: bool, uncertain: bool
) -> None:
    """A certain scale-down would allow the target to grow back by pods that were perhaps never removed."""
    down = Rescale(NOW - timedelta(seconds=15), 3)
    pending = PendingRescale(5, 2, (), (down,), HorizontalPodAutoscalerStatus())
    found_downs = state.resumed(memory(pending=pending), view(found), GAP).scale_downs
    assert (msgspec.structs.replace(down, uncertain=uncertain) in found_downs) is counts


def test_times_in_the_future_count_as_now() -> None:
    later = NOW + timedelta(days=400)
    past = History((PastRecommendation(later, 9),), (Rescale(later, 4),), (Rescale(later, 2),))
    stored = Memory(uid="1", history=past, at=later, last_count=5, loaded=True, complete=True)
    found = state.resumed(stored, view(5), GAP)
    of_now = (Rescale(NOW, 4, uncertain=True),), (Rescale(NOW, 2, uncertain=True),)
    assert found == History((PastRecommendation(NOW, 9),), *of_now)


@pytest.mark.parametrize(
    ("reported", "previous", "unreported"),
    [
        (None, None, True),
        (-60, -60, True),
        (20, 20, True),  # the clock was set back by less than a minute between the two rescales
        (0, -60, False),
        (0, 0, False),
        (30, -60, False),  # another replica of hpad has scaled since
    ],
)
def test_a_status_with_the_time_before_a_rescale_does_not_report_it(
    reported: int | None, previous: int | None, unreported: bool
) -> None:
    def at(seconds: int | None) -> datetime | None:
        return None if seconds is None else NOW + timedelta(seconds=seconds)

    done = HorizontalPodAutoscalerStatus(last_scale_time=NOW, desired_replicas=5)
    pending = PendingRescale(3, 5, (), (), done, at(previous))
    status = HorizontalPodAutoscalerStatus(last_scale_time=at(reported))
    assert (state.unreported(pending, status, view(5).scale) is pending) is unreported
