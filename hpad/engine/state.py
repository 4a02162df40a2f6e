"""The state of an HPA between turns: what a turn leaves of it, and how the next one corrects it.

`Memory.pending` is a rescale that is still open: it may have been written or not, or it was written and no status
reports it yet. What a turn leaves of it depends on what it did about the count of the target:

| the turn | leaves open | also once the status is written |
| --- | --- | --- |
| is about to write a count (`begun`) | the rescale of this turn | yes, as after a crash |
| wrote it | the rescale of this turn | no |
| cannot know whether it did | the rescale of this turn | yes |
| wrote no count | an earlier one that was written and not reported | no |
| could not read the scale | what it found | yes |

A turn that has seen the count of the target knows what became of an earlier rescale: `resumed` has added it to the
history, or not. So the turn closes it, unless it begins another one.

The history is WHOLE (`Validity`) or GAPPED: loaded, and turns may be missing.

| history | after a turn that could not read the scale | after all others |
| --- | --- | --- |
| WHOLE | stays; valid until the next planned turn, since this one left nothing to remember | WHOLE: of this process |
| GAPPED | stays as it is | WHOLE: `resumed` has bridged the gap |

A turn corrects what it finds (`resumed`) after a gap, in which turns may be missing, and after a clock step. Every rule
errs in one direction: after a gap a target keeps its count longer and grows more slowly. Stored state may be old (a
failed write), end in the middle of a rescale, or have times of a clock that was ahead.

- A pending rescale is compared with the target's replica count: done, not done, or unknown (another count). An unknown
  one that removed pods counts as uncertain, so that policies allow fewer further removals.
- The current count is added to the recommendations, as for a new HPA, and keeps the target for whole windows in three
  cases: turns may be missing (the state is not `complete`, see `history`); the gap is longer than `gap`, or than half
  of it if no window of the HPA is longer; or the count differs from the last written one. In a process that kept
  running, only a gap longer than the window counts.
- The difference between the last written count and the current one counts as an uncertain rescale: it limits further
  changes in its direction, and allows none in the other.
- The time without work (`hpad.engine.zero`) begins anew where a target is kept for whole windows, and after a gap
  longer than `gap`: work that came meanwhile was not seen.
- If the HPA's status reports a rescale that the state does not know, its size and direction are unknown. Policies then
  allow as little as if the target had just come from 0 or from the maximum.
- Times more than `SKEW` in the future come from a clock that was set back since. Such a recommendation or rescale gets
  the current time, and the rescale is uncertain. Samples are dropped, because their age is unknown.
- A pending rescale that was done is reported by a status with its lastScaleTime or a later one. A status that still has
  the lastScaleTime from before the rescale does not report it, even if a clock step made that the later one.

A clock step is found by comparing the wall clock with the monotonic clock since the last turn; the state holds both
times, so this works after a restart within one boot. The history is shifted by the step. Otherwise windows would end at
once, or last as much longer as the clock was set back.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from hpad.api.hpa import HorizontalPodAutoscalerStatus, Scale
from hpad.clock import Moment
from hpad.engine import shadow
from hpad.engine.conditions import NORMAL, Event
from hpad.engine.history import (
    SKEW,
    History,
    Idleness,
    Memory,
    PastRecommendation,
    PendingRescale,
    Rescale,
    Validity,
    shifted,
)
from hpad.engine.settle import next_history
from hpad.engine.turn import Reconcile, Write
from hpad.engine.view import View


class Start(msgspec.Struct, frozen=True, gc=False):
    """What a turn has found. `memory` is the stored state; once the turn writes a count, its `pending` is that rescale.

    `unreported` is an earlier rescale that no status reports (`unreported`), and `last_scale_time` that of the
    status. `validity` is that of the state that the turn leaves.
    """

    memory: Memory
    unreported: PendingRescale | None
    last_scale_time: datetime | None
    validity: Validity


class Left(NamedTuple):
    """The state after a turn: before its status is written, and once it is written or where it needs no write."""

    memory: Memory
    reported: Memory


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
    return _unwritten(start, write, start.unreported)


def after(start: Start, done: Reconcile, status: HorizontalPodAutoscalerStatus | None) -> Left:
    """Returns the state after a turn. `status` is kept for an HPA whose status no API server keeps, else None."""
    view, outcome = done.view, done.outcome
    known = replace(start.memory, uid=view.hpa.metadata.uid, target=view.spec.target_id, status=status)
    if view.scale is None:
        unread = replace(known, validity=_prolonged(start))
        return Left(unread, unread)
    unsure = outcome is not None and outcome.unsure
    written = outcome is not None and outcome.written
    memory = replace(
        known,
        history=done.settlement.history,
        at=view.now,
        last_count=done.decision.scale_to if written else view.target_replicas,
        pending=start.memory.pending if written or unsure else start.unreported,
        loaded=False,
        validity=start.validity,
        shadow=None if view.shadow is None else shadow.count_after(view, done.decision),
    )
    closed = memory if unsure or memory.pending is None else replace(memory, pending=None)
    return Left(memory, closed)


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


def rescaled_since(memory: Memory, status: HorizontalPodAutoscalerStatus) -> bool:
    """Whether the HPA's status reports a rescale after the last turn that the loaded state knows."""
    last = status.last_scale_time
    # A complete state misses no turn, so its process made the rescale, even if a clock step dates it later.
    if last is None or memory.complete or not (memory.loaded or memory.at is None):
        return False
    return memory.at is None or last > memory.at


def carried_out(pending: PendingRescale | None, current: int) -> bool:
    """Whether the target's replica count shows that the pending rescale has been written."""
    return pending is not None and current == pending.to != pending.current


def unreported(
    pending: PendingRescale | None, status: HorizontalPodAutoscalerStatus, scale: Scale | None
) -> PendingRescale | None:
    """Returns the pending rescale, if it was written and the HPA's status does not report it.

    Only the status shows when the HPA last scaled and whether it removed the last replica. The missing status is
    written at the end of the reconcile; by then the spec may differ from the one that the rescale was decided for.
    """
    if pending is None or scale is None or not carried_out(pending, scale.spec.replicas):
        return None
    reported, expected = status.last_scale_time, pending.status.last_scale_time
    if reported == expected:
        return None
    # If the clock was set back meanwhile, the lastScaleTime before the rescale is later than the one after it.
    earlier = reported is None or expected is None or reported < expected or reported == pending.previous
    return pending if earlier else None


def announcement(memory: Memory, found: PendingRescale) -> Event | None:
    """Returns the event of a rescale that no status reports; None if its own turn has seen the outcome and sent one.

    `memory` is as that turn left it. A turn that is given up, or a process that dies, during the write sends none.
    """
    if memory.last_count == found.to:
        return None
    reason = "a reconcile that ended before its write was answered"
    return Event(NORMAL, "SuccessfulRescale", f"New size: {found.to}; reason: {reason}", f"from {found.current}")


def set_by_other(memory: Memory, target: str, status: HorizontalPodAutoscalerStatus) -> bool:
    """Whether another client set the target to zero: hpad left replicas, or scaled another target than `target`.

    False if an HPA controller has rescaled since, for example another replica of hpad, which `memory` does not know.
    """
    if memory.at is None:
        return False
    last_count = 0 if carried_out(memory.pending, 0) else memory.last_count
    if not last_count and memory.target in ("", target):
        return False
    margin = SKEW if memory.loaded else timedelta()  # another machine may have dated a loaded state
    return status.last_scale_time is None or status.last_scale_time <= memory.at - margin


def resumed(memory: Memory, view: View, gap: timedelta, *, unseen: bool = False) -> History:
    """Returns the history to decide with, which replaces that of `view`.

    `gap` is the longest time without a turn after which the state is complete. `unseen`: the status reports a rescale
    that the memory does not know.
    """
    history = memory.history
    if view.scale is None:  # nothing will be decided, and there is no count to compare with
        return history
    current, expected = view.replicas, memory.last_count
    if memory.pending is not None:
        history = _after_pending(history, memory.pending, current)
        expected = memory.pending.to if carried_out(memory.pending, current) else memory.last_count
    if memory.at is not None and memory.at > view.now + SKEW:
        history = clamped(history, view.now)
    if _is_interrupted(memory, view, gap) or (memory.loaded and expected not in (None, current)):
        history = _idle_anew(_bridged(history, view.now, current, expected))
    elif memory.at is not None and view.now - memory.at > gap:
        history = _idle_anew(history)
    return _with_unknown_rescale(history, view, memory.at is None) if unseen else history


def clamped(history: History, now: datetime) -> History:
    """Returns the history with no time after `now`."""
    return History(
        recommendations=tuple(replace(entry, timestamp=min(entry.timestamp, now)) for entry in history.recommendations),
        scale_ups=_clamped(history.scale_ups, now),
        scale_downs=_clamped(history.scale_downs, now),
    )


def _clamped(rescales: tuple[Rescale, ...], now: datetime) -> tuple[Rescale, ...]:
    return tuple(
        replace(rescale, timestamp=now, uncertain=True) if rescale.timestamp > now else rescale for rescale in rescales
    )


def _after_pending(history: History, pending: PendingRescale, current: int) -> History:
    if carried_out(pending, current):
        return replace(history, scale_ups=pending.scale_ups, scale_downs=pending.scale_downs)
    if current == pending.current or pending.to >= pending.current:
        return history
    # Another client has set a third count since, so the removal may have happened. Uncertain, or it would allow growth.
    known = history.scale_downs
    downs = (each if each in known else replace(each, uncertain=True) for each in pending.scale_downs)
    return replace(history, scale_downs=tuple(downs))


def _is_interrupted(memory: Memory, view: View, gap: timedelta) -> bool:
    """Whether recommendations may be missing from the window."""
    # Without any recommendation in a running process the HPA is new, and there is nothing to miss.
    if memory.at is None or not memory.history.recommendations or (memory.loaded and not memory.complete):
        return memory.loaded
    window = view.window(up=False)
    longest = max(gap / 2, min(gap, window)) if memory.loaded else max(gap, window)
    return view.now - memory.at > longest


def _bridged(history: History, now: datetime, current: int, expected: int | None) -> History:
    """Adds the current count as a recommendation, and a change from the `expected` count as an uncertain rescale."""
    past = (*history.recommendations, PastRecommendation(now, current, uncertain=True))
    history = replace(history, recommendations=past)
    if expected is None or current == expected:
        return history
    change = Rescale(now, abs(current - expected), uncertain=True)
    if current < expected:
        return replace(history, scale_downs=(*history.scale_downs, change))
    return replace(history, scale_ups=(*history.scale_ups, change))


def _idle_anew(history: History) -> History:
    """Returns the history without the time in which no metric has asked for anything."""
    return replace(history, idleness=Idleness(history.idleness.since)) if history.idleness else history


def _with_unknown_rescale(history: History, view: View, forgotten: bool) -> History:
    """Adds rescales of unknown size in both directions.

    Their time is now; without any state (`forgotten`) it is the lastScaleTime of the status.
    """
    behavior, at = view.spec.behavior, view.now
    if behavior is None:
        return history
    if forgotten and view.hpa.status.last_scale_time is not None:
        at = min(at, view.hpa.status.last_scale_time)
    up = Rescale(at, view.replicas, uncertain=True)
    down = Rescale(at, max(0, view.spec.max_replicas - view.replicas), uncertain=True)
    ups, downs = (*history.scale_ups, up), (*history.scale_downs, down)
    return replace(history, scale_ups=ups, scale_downs=downs)


SLIGHT: Final = timedelta(seconds=1)
"""The largest difference that counts as no clock step: NTP slews the clock, and the clocks are read in turn."""


def caught_up(memory: Memory, now: Moment) -> Memory:
    """Returns the memory with its times shifted by the step of the wall clock since; unchanged without a step."""
    if memory.at is None or memory.validity is None or not memory.validity.comparable(now):
        return memory
    # Both clocks have run since the memory was left; the difference is the step of the wall clock.
    step = (now.wall - memory.at) - timedelta(seconds=now.monotonic - memory.validity.ticks)
    if abs(step) <= SLIGHT:
        return memory
    pending = None if memory.pending is None else _shifted(memory.pending, step)
    return replace(memory, history=memory.history.shifted(step), at=memory.at + step, pending=pending)


def _shifted(pending: PendingRescale, by: timedelta) -> PendingRescale:
    ups, downs = shifted(pending.scale_ups, by), shifted(pending.scale_downs, by)
    return replace(pending, scale_ups=ups, scale_downs=downs)
