"""Judges what the stored state of an HPA is worth after a gap, in which turns may be missing, and after a clock step.

Every rule errs to one side: a target is held longer and grows more slowly than without the gap. Stored state may be old
(a failed write), end in the middle of a rescale, or carry times of a clock that ran ahead.

- A pending rescale is compared with the target's replica count: done, not done, or unknown (another count). An unknown
  one counts as uncertain if it removed pods, which makes policies allow less of the same.
- The current count joins the recommendations, as for a new HPA, and holds the target for whole windows in three cases:
  turns may be missing (the state is not `complete`, see `store.memory`); the gap is longer than `gap`, or than half of
  it if no window of the HPA is longer; or the count differs from the last written one. In a process that kept running,
  only a gap that leaves nothing in the window counts.
- The difference between the last written count and the current one counts as an uncertain rescale: against more of the
  same, and not in favour of the opposite.
- If the HPA's status reports a rescale that the state does not know, its size and direction are unknown. Policies then
  allow as little as if the target had just come from 0 or from the maximum.
- Times more than `SKEW` in the future come from a clock that was set back since. Such a recommendation or rescale gets
  the current time, and the rescale is uncertain. Samples are dropped, because their age is unknown. A status with
  such a time may report an earlier rescale than the pending one.

A clock step is found by comparing the wall clock with the monotonic clock since the last turn; the state holds both
times, so this works after a restart within one boot. The history is shifted by the step. Otherwise windows would end at
once, or last as much longer as the clock was set back.
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
    """Whether the HPA's status reports a rescale after the last turn that the loaded state knows."""
    last = status.last_scale_time
    if last is None or memory.complete or not (memory.loaded or memory.at is None):
        return False
    return memory.at is None or last > memory.at


def carried_out(pending: PendingRescale | None, current: int) -> bool:
    """Whether the pending rescale has been written, as the target's replica count shows."""
    return pending is not None and current == pending.to != pending.current


def unreported(
    pending: PendingRescale | None, status: HorizontalPodAutoscalerStatus, scale: Scale | None, now: datetime
) -> PendingRescale | None:
    """The pending rescale, if it was written and the HPA's status does not report it.

    Only the status tells when the HPA last scaled and whether it removed the last replica. This status is written at
    the end of the reconcile; by then the spec may differ from the one that the rescale was decided for.
    """
    if pending is None or scale is None or not carried_out(pending, scale.spec.replicas):
        return None
    said, due = status.last_scale_time, pending.status.last_scale_time
    if said is None or due is None or said < due:
        return pending
    set_back = said > due and said > now + SKEW  # the status tells of an earlier rescale, by a clock that was ahead
    return pending if set_back and status.desired_replicas != pending.to else None


def set_by_other(memory: Memory, target: str, status: HorizontalPodAutoscalerStatus) -> bool:
    """Whether another client set the target to zero: hpad left it with replicas, or scaled another `target`.

    False if an HPA controller has rescaled since, for example another replica of hpad, which `memory` does not know.
    """
    if memory.at is None:
        return False
    left = 0 if carried_out(memory.pending, 0) else memory.last_count
    if not left and memory.target in ("", target):
        return False
    margin = SKEW if memory.loaded else timedelta()
    return status.last_scale_time is None or status.last_scale_time <= memory.at - margin


def resumed(memory: Memory, view: View, gap: timedelta, *, unseen: bool = False) -> History:
    """The history to decide with. `view` has the target's scale; its own history is ignored. `unseen`: the status
    reports a rescale that the memory does not know.
    """
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
    """The history with no time after `now`."""
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
"""What NTP corrects without a step, and the difference that two readings of clocks may have."""


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
