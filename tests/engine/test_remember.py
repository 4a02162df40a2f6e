"""The state of an HPA after a turn: every state that a turn can find, and every way in which it can end."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from support.engine import START, Workload, resource, used

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.clock import Moment
from hpad.engine import shadow, state
from hpad.engine.history import Memory, PendingRescale, Validity
from hpad.engine.settle import Outcome
from hpad.engine.state import Start
from hpad.engine.turn import Answered, Reconcile, Write, turn
from hpad.engine.view import SHADOW, ScaleError, View

DOUBLE = used([200, 200])
"""All of the 200 millicores that each pod requests: twice the metric target."""
WRITTEN = Outcome((4,))
UNSURE = Outcome((4,), error="timeout", unsure=True)
REFUSED = Outcome((4,), error="refused")
THEN = Validity("boot", 100.0, 15.0, 15.0)
NOW = Validity("boot", 115.0, 15.0, 15.0)
EARLIER = PendingRescale(1, 2, (), (), HorizontalPodAutoscalerStatus(desired_replicas=2))
"""A rescale of an earlier turn: the target has 2 replicas now."""
KNOWN = Memory(at=START, validity=THEN)
OPEN = Memory(at=START, validity=THEN, pending=EARLIER)


def web(**fields: Any) -> View:
    """Returns the view of an HPA for 50 % CPU with two pods."""
    return Workload(resource("cpu", averageUtilization=50), replicas=2).view(**fields)


def start(memory: Memory = KNOWN, unreported: PendingRescale | None = None) -> Start:
    return Start(memory, unreported, START - timedelta(minutes=1), NOW)


FOUND = {"none": start(), "unknown": start(OPEN), "unreported": start(OPEN, EARLIER)}
"""The rescale that a turn finds: there is none, it may have been written or not, or no status reports it yet."""


def written(view: View) -> tuple[Write, Any]:
    """Returns the write of a turn that wants 4 replicas, and the turn."""
    steps = turn(view)
    next(steps)
    step = steps.send(Answered((DOUBLE,)))
    assert isinstance(step, Write)
    return step, steps


def done(view: View, outcome: Outcome | None) -> Reconcile:
    _, steps = written(view)
    with pytest.raises(StopIteration) as end:
        steps.send(outcome)
    reconcile: Reconcile = end.value.value
    return reconcile


def unreachable() -> Reconcile:
    steps = turn(web(scale=None, scale_error=ScaleError("no answer")))
    next(steps)
    steps.send(Answered(()))
    with pytest.raises(StopIteration) as end:
        steps.send(None)
    reconcile: Reconcile = end.value.value
    return reconcile


def has_begun(found: Start) -> Start:
    """The turn has begun its own rescale, which the stored state has as pending."""
    return msgspec.structs.replace(found, memory=state.begun(found, written(web())[0], 4))


def open_count(memory: Memory) -> int | None:
    """Returns the count of the open rescale: 4 is that of the turn, 2 an earlier one."""
    return None if memory.pending is None else memory.pending.to


@pytest.mark.parametrize("found", FOUND)
@pytest.mark.parametrize(
    ("outcome", "before", "reported"), [(WRITTEN, 4, None), (UNSURE, 4, 4), (REFUSED, "earlier", None)]
)
def test_what_becomes_of_a_rescale(found: str, outcome: Outcome, before: int | str, reported: int | None) -> None:
    after = state.after(has_begun(FOUND[found]), done(web(), outcome), None)
    earlier = 2 if found == "unreported" else None
    assert open_count(after.memory) == (earlier if before == "earlier" else before)
    assert open_count(after.reported) == reported


@pytest.mark.parametrize(("found", "count"), [("none", None), ("unknown", 2)])
def test_a_turn_without_a_scale_leaves_the_rescale_that_it_found(found: str, count: int | None) -> None:
    after = state.after(FOUND[found], unreachable(), None)
    assert open_count(after.memory) == open_count(after.reported) == count


def test_a_crash_after_the_write_loses_neither_rescale_nor_recommendation() -> None:
    write, _ = written(web())
    memory = state.begun(start(), write, 4)
    assert memory.pending is not None
    assert (memory.pending.current, memory.pending.to) == (2, 4)
    assert memory.pending.status == write.settlement.status
    assert memory.pending.scale_ups == write.settlement.history.scale_ups
    assert [entry.replicas for entry in memory.history.recommendations][-1] == 4
    assert (memory.last_count, memory.history.scale_ups) == (2, ())  # not before it is known to be written
    scale = web().scale
    assert scale is not None
    assert state.unreported(memory.pending, HorizontalPodAutoscalerStatus(), scale.with_replicas(4)) is memory.pending


@pytest.mark.parametrize("found", FOUND)
def test_a_discarded_decision_leaves_its_recommendation_and_no_rescale_of_its_own(found: str) -> None:
    write, _ = written(web())
    memory = state.discarded(has_begun(FOUND[found]), write)
    assert memory.pending is (EARLIER if found == "unreported" else None)
    assert [entry.replicas for entry in memory.history.recommendations][-1] == 4


@pytest.mark.parametrize("outcome", [WRITTEN, UNSURE, REFUSED])
@pytest.mark.parametrize("gapped", [False, True])
def test_a_turn_that_decides_leaves_a_whole_history(gapped: bool, outcome: Outcome) -> None:
    before = start(Memory(at=START, validity=THEN, loaded=gapped))
    memory = state.after(before, done(web(), outcome), None).memory
    assert (memory.loaded, memory.validity, memory.at) == (False, NOW, web().now)
    assert memory.last_count == (4 if outcome is WRITTEN else 2)
    assert bool(memory.history.scale_ups) == (outcome is WRITTEN and web().spec.behavior is not None)


@pytest.mark.parametrize(
    ("loaded", "complete", "whole"), [(False, False, True), (True, True, True), (True, False, False)]
)
def test_a_turn_without_a_scale_keeps_the_history_and_prolongs_a_whole_one(
    loaded: bool, complete: bool, whole: bool
) -> None:
    known = Memory(at=START, validity=THEN, loaded=loaded, complete=complete, last_count=3)
    memory = state.after(start(known), unreachable(), None).memory
    kept = ("at", "history", "last_count", "loaded", "complete", "shadow")
    assert [getattr(memory, name) for name in kept] == [getattr(known, name) for name in kept]
    assert memory.validity == (THEN.prolonged(NOW) if whole else THEN)
    later = Moment(START + timedelta(seconds=28), 128.0, "boot")
    assert (memory.validity_remaining(later) > 0) == whole


def test_without_a_memory_a_turn_without_a_scale_leaves_no_validity() -> None:
    assert state.after(start(Memory()), unreachable(), None).memory.validity is None


def test_the_state_belongs_to_the_hpa_and_its_target() -> None:
    view, status = web(), HorizontalPodAutoscalerStatus(desired_replicas=4)
    for reconcile in (done(view, WRITTEN), unreachable()):
        memory = state.after(start(), reconcile, status).memory
        assert (memory.uid, memory.target) == (view.hpa.metadata.uid, view.spec.target_id)
        assert memory.status == status


def test_a_shadow_keeps_its_count_and_begins_no_rescale() -> None:
    reconcile = done(shadow.begun(web(), SHADOW, 2), None)
    memory = state.after(start(), reconcile, None).memory
    assert (memory.shadow, memory.last_count, memory.pending) == (4, 2, None)
