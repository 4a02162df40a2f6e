"""The state of an HPA after a turn: what of it the next turn, or the next process, has to find.

`Memory.pending` is a rescale that is still open. What a turn leaves of it depends on how the turn found it, and how the
turn ended (`TRANSITIONS`); after BEGUN, WRITTEN and UNSURE it is the rescale of this turn, else that of an earlier one:

| found | BEGUN | WRITTEN | UNSURE | KEPT | UNREACHABLE | then REPORTED |
| --- | --- | --- | --- | --- | --- | --- |
| CLOSED | UNKNOWN | UNREPORTED | UNKNOWN | CLOSED | CLOSED | CLOSED |
| UNKNOWN | UNKNOWN | UNREPORTED | UNKNOWN | CLOSED | UNKNOWN | UNKNOWN |
| UNREPORTED | UNKNOWN | UNREPORTED | UNKNOWN | UNREPORTED | UNREPORTED | CLOSED |

A turn that has seen the count of the target knows what became of an UNKNOWN rescale: `recovery` has added it to the
history, or not. So the turn closes it, unless it begins another one.

The history is WHOLE (`Validity`) or GAPPED: loaded, and turns may be missing.

| history | after UNREACHABLE | after all else |
| --- | --- | --- |
| WHOLE | stays; valid until the next planned turn, since this one left nothing to remember | WHOLE: of this process |
| GAPPED | stays as it is | WHOLE: `recovery` has bridged the gap |
"""

from datetime import datetime
from enum import IntEnum, auto
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.engine import shadow
from hpad.engine.history import Last, Memory, PendingRescale, Validity
from hpad.engine.settle import next_history
from hpad.engine.turn import Reconcile, Write


class Rescaling(IntEnum):
    """The state of the rescale that a memory has as `pending`. A number, because its hash needs no call of Python."""

    CLOSED = auto()
    """There is none: each rescale is known, and reported."""
    UNKNOWN = auto()
    """It may have been written or not. The next turn sees that by the count of the target."""
    UNREPORTED = auto()
    """It was written, and no status reports it yet."""


class Ending(IntEnum):
    """What a turn has done about the count of the target, and then about the status."""

    BEGUN = auto()
    """It is about to write the count."""
    WRITTEN = auto()
    UNSURE = auto()
    """After the error of the write, the count may have been written or not."""
    KEPT = auto()
    """No count was written: none was decided, or it was withheld or refused, or an edit has discarded the decision."""
    UNREACHABLE = auto()
    """The scale of the target could not be read: nothing was decided."""
    REPORTED = auto()
    """The status was written, or needs no write."""


TRANSITIONS: Final[dict[tuple[Rescaling, Ending], Rescaling]] = {
    **{(found, Ending.BEGUN): Rescaling.UNKNOWN for found in Rescaling},
    **{(found, Ending.WRITTEN): Rescaling.UNREPORTED for found in Rescaling},
    **{(found, Ending.UNSURE): Rescaling.UNKNOWN for found in Rescaling},
    (Rescaling.CLOSED, Ending.KEPT): Rescaling.CLOSED,
    (Rescaling.UNKNOWN, Ending.KEPT): Rescaling.CLOSED,
    (Rescaling.UNREPORTED, Ending.KEPT): Rescaling.UNREPORTED,
    **{(found, Ending.UNREACHABLE): found for found in Rescaling},
    (Rescaling.CLOSED, Ending.REPORTED): Rescaling.CLOSED,
    (Rescaling.UNKNOWN, Ending.REPORTED): Rescaling.UNKNOWN,
    (Rescaling.UNREPORTED, Ending.REPORTED): Rescaling.CLOSED,
}


class Start(msgspec.Struct, frozen=True, gc=False):
    """What a turn has found. `memory` is the stored state; once the turn writes a count, its `pending` is that rescale.

    `unreported` is an earlier rescale that no status reports (`recovery.unreported`), and `last_scale_time` that of the
    status. `validity` is that of the state that the turn leaves.
    """

    memory: Memory
    unreported: PendingRescale | None
    last_scale_time: datetime | None
    validity: Validity

    @property
    def rescaling(self) -> Rescaling:
        """The state of the rescale that is open."""
        if self.unreported is not None:
            return Rescaling.UNREPORTED
        return Rescaling.CLOSED if self.memory.pending is None else Rescaling.UNKNOWN


class Left(NamedTuple):
    """The state after a turn whose status is not written yet, and that of the rescale in it."""

    memory: Memory
    rescaling: Rescaling

    @property
    def reported(self) -> Memory:
        """The state once the status is written, or where it needs no write."""
        closed = TRANSITIONS[self.rescaling, Ending.REPORTED] is Rescaling.CLOSED
        return replace(self.memory, pending=None) if closed and self.memory.pending is not None else self.memory


def begun(start: Start, write: Write, to: int) -> Memory:
    """Returns the state before the count `to` is written: a crash then loses neither it nor what was wanted."""
    done = write.settlement
    ups, downs = done.history.scale_ups, done.history.scale_downs
    pending = PendingRescale(write.view.replicas, to, ups, downs, done.status, start.last_scale_time)
    return _unwritten(start, write, pending)


def discarded(start: Start, write: Write) -> Memory:
    """Returns the state after an edit has discarded the decision; what was wanted stays.

    As in Kubernetes, which stores a recommendation before it writes (horizontal.go: stabilizeRecommendation).
    """
    return _unwritten(start, write, _pending(start, Ending.KEPT))


def after(start: Start, done: Reconcile, last: Last, status: HorizontalPodAutoscalerStatus | None) -> Left:
    """Returns the state after a turn. `status` is kept for an HPA whose status no API server keeps, else None."""
    view, decision, ending = done.view, done.decision, ending_of(done)
    rescaling, pending = TRANSITIONS[start.rescaling, ending], _pending(start, ending)
    known = replace(start.memory, uid=view.hpa.metadata.uid, target=view.spec.target_id, status=status, last=last)
    if ending is Ending.UNREACHABLE:
        return Left(replace(known, pending=pending, validity=_prolonged(start)), rescaling)
    memory = replace(
        known,
        history=done.settlement.history,
        at=view.now,
        last_count=decision.scale_to if ending is Ending.WRITTEN else view.target_replicas,
        pending=pending,
        loaded=False,
        validity=start.validity,
        shadow=None if view.shadow is None else shadow.count_after(view, decision),
    )
    return Left(memory, rescaling)


def ending_of(done: Reconcile) -> Ending:
    """Returns how a turn ended that was not discarded, before its status was written."""
    outcome = done.outcome
    if done.view.scale is None:
        return Ending.UNREACHABLE
    if outcome is None or outcome.withheld is not None:
        return Ending.KEPT
    if outcome.unsure:
        return Ending.UNSURE
    return Ending.WRITTEN if outcome.written else Ending.KEPT


def _pending(start: Start, ending: Ending) -> PendingRescale | None:
    """Returns the rescale that stays open after the turn."""
    if TRANSITIONS[start.rescaling, ending] is Rescaling.CLOSED:
        return None
    return start.unreported if ending is Ending.KEPT else start.memory.pending


def _prolonged(start: Start) -> Validity | None:
    known = start.memory
    whole = known.complete or not known.loaded
    return known.validity.prolonged(start.validity) if known.validity is not None and whole else known.validity


def _unwritten(start: Start, write: Write, pending: PendingRescale | None) -> Memory:
    """Returns the state with the recommendation of a decision that has not been written."""
    view = write.view
    return replace(
        start.memory,
        uid=view.hpa.metadata.uid,
        target=view.spec.target_id,
        history=next_history(view, write.decision, rescaled=False),
        at=view.now,
        last_count=view.target_replicas,
        pending=pending,
        loaded=False,
        validity=start.validity,
        shadow=view.replicas if view.shadow is not None and view.shadow.replicas else None,
    )
