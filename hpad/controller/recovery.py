"""What an HPA's memory is worth after a break, in which turns may have been made that it does not know of.

Every rule here errs to one side: a target is held longer than it would have been, never shorter, and grows no faster.
What is read from a store may be old (a write that failed), cut short in the middle of a rescale, or written by a clock
that ran ahead.

- A rescale that was begun is looked for in the target's replica count: done, not done, or (another count) unknown. One
  that is unknown counts if it took pods away, as uncertain, which only makes the policies allow less of that.
- Where turns may be missing (the memory is not `complete`, see `store.validity`), after a gap of more than `gap` (or of
  more than half of it that no window of the HPA reaches across), or where another count is found than was left, the
  recommendations say too little: the current count joins them, as it does for an HPA that nothing is known of, and
  holds the target for whole windows; also where another client sets another count meanwhile. In a process that went on
  meanwhile that takes a gap which leaves nothing in the window: its target could not be read for so long.
- The difference between the count that was left and the one that is found may be a rescale or the write of another
  client. It counts as an uncertain rescale: against more of the same, and not in favour of the opposite.
- Where the HPA's status tells of a rescale that the memory does not know (nothing could be saved at that time), its
  size and direction are unknown: policies allow as little as if the target had just come from 0, or from the maximum.
- Times more than `SKEW` ahead of now come from a clock that has been set back since. Such a recommendation is taken to
  be of now, so that it neither counts for too little nor for ever; such a rescale is, too, and is uncertain. What
  single metrics said is dropped: of its age nothing is known.
  Where the HPA's status has such a time, it may tell of an earlier rescale than the one that was begun.

Noticing that the wall clock was set, by an administrator or a first answer of NTP.

Histories hold wall times, since they outlive processes; windows are lengths of time. Where the wall clock and the
monotonic one disagree about how long ago an HPA was looked at, the wall clock was set meanwhile: its history has to
move along, or windows would end at once (a scale-down nobody wants) or not for as long as the clock was set back. Each
memory holds its time by both clocks, so that this is noticed after a restart as well, within one boot of the machine.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import repeat
from typing import Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscalerStatus, Scale
from hpad.clock import Moment
from hpad.engine.history import History, PastRecommendation, Rescale, shifted
from hpad.engine.view import View
from hpad.store.memory import SKEW, Memory, PendingRescale


def rescaled_since(memory: Memory, status: HorizontalPodAutoscalerStatus) -> bool:
    """Whether the HPA's status tells of a rescale that was made after what the memory of an earlier process tells."""
    last = status.last_scale_time
    if last is None or memory.complete or not (memory.loaded or memory.at is None):
        return False
    return memory.at is None or last > memory.at


def carried_out(pending: PendingRescale | None, current: int) -> bool:
    """Whether the rescale that was begun has been written, as the target's count shows."""
    return pending is not None and current == pending.to != pending.current


def unreported(
    pending: PendingRescale | None, status: HorizontalPodAutoscalerStatus, scale: Scale | None, now: datetime
) -> PendingRescale | None:
    """The rescale that was begun, if it was done and the HPA's status does not tell of it.

    When it last scaled, and whether it took the last replica, an HPA knows from nowhere else. The status is written at
    the end of the reconcile, on top of that one: by then the spec may be another than the rescale came from.
    """
    if pending is None or scale is None or not carried_out(pending, scale.spec.replicas):
        return None
    said, due = status.last_scale_time, pending.status.last_scale_time
    if said is None or due is None or said < due:
        return pending
    set_back = said > due and said > now + SKEW  # the status tells of an earlier rescale, by a clock that was ahead
    return pending if set_back and status.desired_replicas != pending.to else None


def set_by_other(memory: Memory, target: str, status: HorizontalPodAutoscalerStatus) -> bool:
    """Whether a target, which is at zero, was left with replicas by hpad, or hpad was scaling another `target`.

    Not where an HPA controller has rescaled since: another replica of hpad, say, of which `memory` knows nothing.
    """
    if memory.at is None:
        return False
    left = 0 if carried_out(memory.pending, 0) else memory.last_count
    if not left and memory.target in ("", target):
        return False
    margin = SKEW if memory.loaded else timedelta()
    return status.last_scale_time is None or status.last_scale_time <= memory.at - margin


def resumed(memory: Memory, view: View, gap: timedelta, *, unseen: bool = False) -> History:
    """The history to decide with. `view` has the target's scale, and a history that is not looked at; `unseen`: there
    was a rescale that the memory does not know of."""
    history = memory.history
    if view.scale is None:
        return history
    current, expected = view.replicas, memory.last_count
    if memory.pending is not None:
        history = _ended(history, memory.pending, current)
        expected = memory.pending.to if carried_out(memory.pending, current) else memory.last_count
    if memory.at is not None and memory.at > view.now + SKEW:
        history = clamped(history, view.now)
    if _is_interrupted(memory, view, gap) or (memory.loaded and expected not in (None, current)):
        history = _bridged(history, view.now, current, expected)
    return _suspecting(history, view, memory.at is None) if unseen else history


def clamped(history: History, now: datetime) -> History:
    """Nothing in it is of the future."""
    return msgspec.structs.replace(
        history,
        recommendations=tuple(_not_after(now, history.recommendations)),
        scale_ups=tuple(map(_doubted, history.scale_ups, repeat(now))),
        scale_downs=tuple(map(_doubted, history.scale_downs, repeat(now))),
        last_samples=(),
    )


def _not_after(now: datetime, past: Iterable[PastRecommendation]) -> Iterable[PastRecommendation]:
    return (msgspec.structs.replace(held, timestamp=min(held.timestamp, now)) for held in past)


def _doubted(held: Rescale, now: datetime) -> Rescale:
    return msgspec.structs.replace(held, timestamp=now, uncertain=True) if held.timestamp > now else held


def _ended(history: History, pending: PendingRescale, current: int) -> History:
    if carried_out(pending, current):
        return msgspec.structs.replace(history, scale_ups=pending.scale_ups, scale_downs=pending.scale_downs)
    if current != pending.current and pending.to < pending.current:
        return msgspec.structs.replace(history, scale_downs=_unproved(pending.scale_downs, history.scale_downs))
    return history


def _unproved(then: tuple[Rescale, ...], before: tuple[Rescale, ...]) -> tuple[Rescale, ...]:
    """The rescales, with those that were not there before as uncertain: else they would let the target grow again."""
    return tuple(each if each in before else msgspec.structs.replace(each, uncertain=True) for each in then)


def _is_interrupted(memory: Memory, view: View, gap: timedelta) -> bool:
    """Whether reconciles are missing that would have said something about the time that counts."""
    if memory.at is None or not memory.history.recommendations or (memory.loaded and not memory.complete):
        return memory.loaded
    behavior = view.spec.behavior
    window = view.tunables.downscale_stabilization
    if behavior is not None and behavior.down.window is not None:
        window = behavior.down.window
    longest = max(gap / 2, min(gap, window)) if memory.loaded else max(gap, window)
    return view.now - memory.at > longest


def _bridged(history: History, now: datetime, current: int, expected: int | None) -> History:
    """With the current count as a recommendation, and with what changed unseen as an uncertain rescale."""
    past = (*history.recommendations, PastRecommendation(now, current, uncertain=True))
    history = msgspec.structs.replace(history, recommendations=past)
    if expected is None or current == expected:
        return history
    change = Rescale(now, abs(current - expected), uncertain=True)
    if current < expected:
        return msgspec.structs.replace(history, scale_downs=(*history.scale_downs, change))
    return msgspec.structs.replace(history, scale_ups=(*history.scale_ups, change))


def _suspecting(history: History, view: View, forgotten: bool) -> History:
    """With a rescale of unknown size, up as well as down; of unknown time, or of the status' where all is forgotten."""
    behavior, at = view.spec.behavior, view.now
    if behavior is None:
        return history
    if forgotten and view.hpa.status.last_scale_time is not None:
        at = min(at, view.hpa.status.last_scale_time)
    up = Rescale(at, view.replicas, uncertain=True)
    down = Rescale(at, max(0, view.spec.max_replicas - view.replicas), uncertain=True)
    ups, downs = (*history.scale_ups, up), (*history.scale_downs, down)
    return msgspec.structs.replace(history, scale_ups=ups, scale_downs=downs)


SLIGHT: Final = timedelta(seconds=1)
"""What NTP corrects without a jump, and what two readings of clocks may be apart."""


def caught_up(memory: Memory, now: Moment) -> Memory:
    """The memory as it would be had the wall clock always been what it is; the same where it was not set."""
    if memory.at is None or memory.validity is None or not memory.validity.comparable(now):
        return memory
    jump = (now.wall - memory.at) - timedelta(seconds=now.monotonic - memory.validity.ticks)
    if abs(jump) <= SLIGHT:
        return memory
    pending = None if memory.pending is None else _shifted(memory.pending, jump)
    return msgspec.structs.replace(memory, history=memory.history.shifted(jump), at=memory.at + jump, pending=pending)


def _shifted(pending: PendingRescale, by: timedelta) -> PendingRescale:
    ups, downs = shifted(pending.scale_ups, by), shifted(pending.scale_downs, by)
    return msgspec.structs.replace(pending, scale_ups=ups, scale_downs=downs)
