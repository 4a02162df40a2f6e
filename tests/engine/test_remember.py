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
from hpad.engine.state import Ending, Rescaling, Start
from hpad.engine.turn import Answered, Reconcile, Write, turn
from hpad.engine.view import SHADOW, ScaleError, View

DOUBLE = used([200, 200])
"""All of the 200 millicores that each pod requests: twice the metric target."""
OUTCOMES = {
    Ending.WRITTEN: Outcome((4,)),
    Ending.UNSURE: Outcome((4,), error="timeout", unsure=True),
    Ending.KEPT: Outcome((4,), error="refused"),
}
THEN = Validity("boot", 100.0, 15.0, 15.0)
NOW = Validity("boot", 115.0, 15.0, 15.0)
EARLIER = PendingRescale(1, 2, (), (), HorizontalPodAutoscalerStatus(desired_replicas=2))
"""A rescale of an earlier turn: the target has 2 replicas now."""
BEFORE = {
    Rescaling.CLOSED: Memory(at=START, validity=THEN),
    Rescaling.UNKNOWN: Memory(at=START, validity=THEN, pending=EARLIER),
    Rescaling.UNREPORTED: Memory(at=START, validity=THEN, pending=EARLIER),
}
TABLE = """
    CLOSED      UNKNOWN UNREPORTED UNKNOWN CLOSED     CLOSED  CLOSED
    UNKNOWN     UNKNOWN UNREPORTED UNKNOWN CLOSED     UNKNOWN UNKNOWN
    UNREPORTED  UNKNOWN UNREPORTED UNKNOWN UNREPORTED -       CLOSED
"""
"""What the turn leaves, in the order of Ending. "-": a turn without a scale cannot see that a rescale was written."""
CASES = [
    (Rescaling[found], ending, Rescaling[after])
    for found, *row in map(str.split, TABLE.strip().splitlines())
    for ending, after in zip(Ending, row, strict=True)
    if after != "-"
]


def web(**fields: Any) -> View:
    """Returns the view of an HPA for 50 % CPU with two pods."""
    return Workload(resource("cpu", averageUtilization=50), replicas=2).view(**fields)


def start(found: Rescaling, memory: Memory | None = None) -> Start:
    unreported = EARLIER if found is Rescaling.UNREPORTED else None
    return Start(memory or BEFORE[found], unreported, START - timedelta(minutes=1), NOW)


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


def left(found: Rescaling, ending: Ending) -> tuple[Rescaling, Memory]:
    """Returns what a turn leaves: the state of the rescale, and the memory."""
    before = start(found)
    if ending is Ending.BEGUN:
        memory = state.begun(before, written(web())[0], 4)
        return start(Rescaling.CLOSED, memory).rescaling, memory
    if ending is Ending.REPORTED:
        after = state.Left(before.memory, before.rescaling)
        return start(Rescaling.CLOSED, after.reported).rescaling, after.reported
    if ending is Ending.UNREACHABLE:
        after = state.after(before, unreachable(), None)
    else:  # the turn has begun its own rescale, which the stored state has as pending
        begun = msgspec.structs.replace(before, memory=state.begun(before, written(web())[0], 4))
        after = state.after(begun, done(web(), OUTCOMES[ending]), None)
    return after.rescaling, after.memory


def test_the_cases_are_all() -> None:
    assert len(CASES) == len(Rescaling) * len(Ending) - 1
    assert {(found, ending) for found in Rescaling for ending in Ending} == set(state.TRANSITIONS)


@pytest.mark.parametrize(("found", "ending", "after"), CASES)
def test_what_becomes_of_a_rescale(found: Rescaling, ending: Ending, after: Rescaling) -> None:
    rescaling, memory = left(found, ending)
    assert rescaling is after
    own = ending in (Ending.BEGUN, Ending.WRITTEN, Ending.UNSURE)
    assert (memory.pending is None) == (after is Rescaling.CLOSED)
    if memory.pending is not None:
        assert memory.pending.to == (4 if own else 2)


@pytest.mark.parametrize("ending", [Ending.WRITTEN, Ending.UNSURE, Ending.KEPT])
def test_the_status_closes_a_rescale_that_was_written_only(ending: Ending) -> None:
    before = start(Rescaling.CLOSED)
    begun = msgspec.structs.replace(before, memory=state.begun(before, written(web())[0], 4))
    after = state.after(begun, done(web(), OUTCOMES[ending]), None)
    assert (after.reported.pending is None) == (ending is not Ending.UNSURE)


def test_a_crash_after_the_write_loses_neither_rescale_nor_recommendation() -> None:
    write, _ = written(web())
    memory = state.begun(start(Rescaling.CLOSED), write, 4)
    assert memory.pending is not None
    assert (memory.pending.current, memory.pending.to) == (2, 4)
    assert memory.pending.status == write.settlement.status
    assert memory.pending.scale_ups == write.settlement.history.scale_ups
    assert [entry.replicas for entry in memory.history.recommendations][-1] == 4
    assert (memory.last_count, memory.history.scale_ups) == (2, ())  # not before it is known to be written
    scale = web().scale
    assert scale is not None
    assert state.unreported(memory.pending, HorizontalPodAutoscalerStatus(), scale.with_replicas(4)) is memory.pending


@pytest.mark.parametrize("found", Rescaling)
def test_a_discarded_decision_leaves_its_recommendation_and_no_rescale_of_its_own(found: Rescaling) -> None:
    before = start(found)
    write, _ = written(web())
    begun = msgspec.structs.replace(before, memory=state.begun(before, write, 4))
    memory = state.discarded(begun, write)
    assert memory.pending is (EARLIER if found is Rescaling.UNREPORTED else None)
    assert [entry.replicas for entry in memory.history.recommendations][-1] == 4


@pytest.mark.parametrize("ending", [Ending.WRITTEN, Ending.UNSURE, Ending.KEPT])
@pytest.mark.parametrize("gapped", [False, True])
def test_a_turn_that_decides_leaves_a_whole_history(gapped: bool, ending: Ending) -> None:
    before = start(Rescaling.CLOSED, Memory(at=START, validity=THEN, loaded=gapped))
    memory = state.after(before, done(web(), OUTCOMES[ending]), None).memory
    assert (memory.loaded, memory.validity, memory.at) == (False, NOW, web().now)
    assert memory.last_count == (4 if ending is Ending.WRITTEN else 2)
    assert bool(memory.history.scale_ups) == (ending is Ending.WRITTEN and web().spec.behavior is not None)


@pytest.mark.parametrize(
    ("loaded", "complete", "whole"), [(False, False, True), (True, True, True), (True, False, False)]
)
def test_a_turn_without_a_scale_keeps_the_history_and_prolongs_a_whole_one(
    loaded: bool, complete: bool, whole: bool
) -> None:
    known = Memory(at=START, validity=THEN, loaded=loaded, complete=complete, last_count=3)
    memory = state.after(start(Rescaling.CLOSED, known), unreachable(), None).memory
    kept = ("at", "history", "last_count", "loaded", "complete", "shadow")
    assert [getattr(memory, name) for name in kept] == [getattr(known, name) for name in kept]
    assert memory.validity == (THEN.prolonged(NOW) if whole else THEN)
    later = Moment(START + timedelta(seconds=28), 128.0, "boot")
    assert (memory.validity_remaining(later) > 0) == whole


def test_without_a_memory_a_turn_without_a_scale_leaves_no_validity() -> None:
    assert state.after(start(Rescaling.CLOSED, Memory()), unreachable(), None).memory.validity is None


def test_the_state_belongs_to_the_hpa_and_its_target() -> None:
    view, status = web(), HorizontalPodAutoscalerStatus(desired_replicas=4)
    for reconcile in (done(view, OUTCOMES[Ending.WRITTEN]), unreachable()):
        memory = state.after(start(Rescaling.CLOSED), reconcile, status).memory
        assert (memory.uid, memory.target) == (view.hpa.metadata.uid, view.spec.target_id)
        assert memory.status == status


def test_a_shadow_keeps_its_count_and_begins_no_rescale() -> None:
    reconcile = done(shadow.begun(web(), SHADOW, 2), None)
    memory = state.after(start(Rescaling.CLOSED), reconcile, None).memory
    assert (memory.shadow, memory.last_count, memory.pending) == (4, 2, None)
