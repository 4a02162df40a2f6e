"""After a break nothing takes pods away sooner than it would have."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from support.controller import hpa

from hpad.api.hpa import HorizontalPodAutoscalerStatus, Scale, ScaleSpec, ScaleStatus
from hpad.controller import recovery
from hpad.engine.history import History, PastRecommendation, Rescale
from hpad.engine.view import View
from hpad.store.memory import NOTHING, Memory, PendingRescale

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


def test_a_short_break_changes_nothing() -> None:
    assert recovery.resumed(memory(), view(5), GAP) == History((HELD,))


def test_after_a_long_one_the_current_count_is_held() -> None:
    assert recovery.resumed(memory(ago=90), view(5), GAP).recommendations == (HELD, UNKNOWN)
    assert recovery.resumed(memory(ago=90, loaded=False), view(5), GAP).recommendations == (HELD,)


def test_where_turns_may_be_missing_the_current_count_is_held() -> None:
    found = recovery.resumed(msgspec.structs.replace(memory(), complete=False), view(5), GAP)
    assert found.recommendations == (HELD, UNKNOWN)


def test_what_changed_unseen_may_be_a_rescale() -> None:
    found = recovery.resumed(memory(last_count=9), view(5), GAP)
    assert found.recommendations[-1] == UNKNOWN
    assert found.scale_downs == (Rescale(NOW, 4, uncertain=True),)
    assert recovery.resumed(memory(last_count=3), view(5), GAP).scale_ups == (Rescale(NOW, 2, uncertain=True),)


@pytest.mark.parametrize(
    ("ago", "complete", "loaded", "expected"),
    [(5, False, True, True), (20, False, True, False), (5, True, True, False), (5, False, False, False)],
)
def test_a_status_tells_of_a_rescale_that_is_not_remembered(
    ago: float, complete: bool, loaded: bool, expected: bool
) -> None:
    """The memory is of 15 s ago."""
    status = HorizontalPodAutoscalerStatus(last_scale_time=NOW - timedelta(seconds=ago))
    held = msgspec.structs.replace(memory(), complete=complete, loaded=loaded)
    assert recovery.rescaled_since(held, status) is expected
    assert recovery.rescaled_since(NOTHING, status), "of one that is lost nothing is known"
    assert not recovery.rescaled_since(NOTHING, HorizontalPodAutoscalerStatus()), "a new one was not scaled"


def test_a_rescale_of_which_only_the_status_tells_may_have_been_any() -> None:
    found = recovery.resumed(memory(), view(5), GAP, unseen=True)
    assert found.scale_ups == (Rescale(NOW, 5, uncertain=True),)
    assert found.scale_downs == (Rescale(NOW, 5, uncertain=True),), "it came from the maximum of 10"


@pytest.mark.parametrize(("found", "counts"), [(8, True), (5, False), (6, False)])
def test_a_rescale_that_was_cut_short_counts_if_it_was_done(found: int, counts: bool) -> None:
    up = (Rescale(NOW - timedelta(seconds=15), 3),)
    pending = PendingRescale(5, 8, up, (), HorizontalPodAutoscalerStatus())
    ups = recovery.resumed(memory(pending=pending), view(found), GAP).scale_ups
    assert (up[0] in ups) is counts
    assert all(held.uncertain for held in ups if held not in up)


@pytest.mark.parametrize(("found", "counts", "uncertain"), [(2, True, False), (5, False, False), (4, True, True)])
def test_a_shrinking_whose_end_is_unknown_counts_as_uncertain(found: int, counts: bool, uncertain: bool) -> None:
    """Else the target might grow by what perhaps was never taken away."""
    down = Rescale(NOW - timedelta(seconds=15), 3)
    pending = PendingRescale(5, 2, (), (down,), HorizontalPodAutoscalerStatus())
    found_downs = recovery.resumed(memory(pending=pending), view(found), GAP).scale_downs
    assert (msgspec.structs.replace(down, uncertain=uncertain) in found_downs) is counts


def test_times_of_a_clock_that_was_set_back_are_of_now_at_most() -> None:
    later = NOW + timedelta(days=400)
    past = History((PastRecommendation(later, 9),), (Rescale(later, 4),), (Rescale(later, 2),))
    held = Memory(uid="1", history=past, at=later, last_count=5, loaded=True, complete=True)
    found = recovery.resumed(held, view(5), GAP)
    of_now = (Rescale(NOW, 4, uncertain=True),), (Rescale(NOW, 2, uncertain=True),)
    assert found == History((PastRecommendation(NOW, 9),), *of_now)
