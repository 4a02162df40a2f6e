"""After a break nothing takes pods away sooner than it would have."""

from datetime import UTC, datetime, timedelta

import pytest
from control.bench import hpa

from hpad.control import resume
from hpad.engine.examine import View
from hpad.model.history import History, Recommendation, Rescale
from hpad.model.hpa import HorizontalPodAutoscalerStatus
from hpad.model.target import Scale, ScaleSpec, ScaleStatus
from hpad.store.memory import Begun, Memory

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GAP = timedelta(minutes=1)
HELD = Recommendation(NOW - timedelta(seconds=20), 5)
SPEC = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}}}


def view(replicas: int) -> View:
    scale = Scale(metadata={"name": "web"}, spec=ScaleSpec(replicas), status=ScaleStatus(replicas, "app=web"))
    return View(hpa=hpa("web", **SPEC), now=NOW, scale=scale)


def memory(ago: float = 15, left: int | None = 5, begun: Begun | None = None, recalled: bool = True) -> Memory:
    at = NOW - timedelta(seconds=ago)
    return Memory(uid="1", history=History((HELD,)), at=at, left=left, begun=begun, recalled=recalled)


def test_a_short_break_changes_nothing() -> None:
    assert resume.resumed(memory(), view(5), GAP) == History((HELD,))


def test_after_a_long_one_the_current_count_is_held() -> None:
    assert resume.resumed(memory(ago=90), view(5), GAP).recommendations == (HELD, Recommendation(NOW, 5))
    assert resume.resumed(memory(ago=90, recalled=False), view(5), GAP).recommendations == (HELD,)


def test_pods_that_vanished_unseen_count_as_a_scale_down() -> None:
    found = resume.resumed(memory(left=9), view(5), GAP)
    assert found.recommendations[-1] == Recommendation(NOW, 5)
    assert found.scale_downs == (Rescale(NOW, 4),)
    assert resume.resumed(memory(left=3), view(5), GAP).scale_ups == ()


@pytest.mark.parametrize(("found", "counts"), [(8, True), (5, False), (6, False)])
def test_a_rescale_that_was_cut_short_counts_if_it_was_done(found: int, counts: bool) -> None:
    up = (Rescale(NOW - timedelta(seconds=15), 3),)
    begun = Begun(5, 8, up, (), HorizontalPodAutoscalerStatus())
    assert resume.resumed(memory(begun=begun), view(found), GAP).scale_ups == (up if counts else ())


@pytest.mark.parametrize(("found", "counts"), [(2, True), (5, False), (4, True)])
def test_a_shrinking_whose_end_is_unknown_counts(found: int, counts: bool) -> None:
    down = (Rescale(NOW - timedelta(seconds=15), 3),)
    begun = Begun(5, 2, (), down, HorizontalPodAutoscalerStatus())
    found_downs = resume.resumed(memory(begun=begun), view(found), GAP).scale_downs
    assert (down[0] in found_downs) is counts


def test_times_of_a_clock_that_was_set_back_are_of_now_at_most() -> None:
    later = NOW + timedelta(days=400)
    past = History((Recommendation(later, 9),), (Rescale(later, 4),), (Rescale(later, 2),))
    held = Memory(uid="1", history=past, at=later, left=5, recalled=True)
    found = resume.resumed(held, view(5), GAP)
    assert found == History((Recommendation(NOW, 9),), (), (Rescale(NOW, 2),))
