"""What an HPA's memory is worth after a break in which nobody watched it.

Every rule here errs to one side: a target is held longer than it would have been, never shorter. What is read from a
store may be old (a write that failed), cut short in the middle of a rescale, or written by a clock that ran ahead.

- A rescale that was begun is looked for in the target's replica count: done, not done, or (another count) unknown. One
  that is unknown counts if it took pods away, which only makes the policies allow less of that.
- After a gap of more than `gap`, or of more than half of it that no window of the HPA reaches across, or where another
  count is found than was left, the recommendations say too little: the current count joins them, as it does for an HPA
  that nothing is known of. In a process that went on meanwhile that takes a gap which leaves nothing in the window: its
  target could not be read for so long.
- Times more than `SKEW` ahead of now come from a clock that has been set back since. Such a recommendation or shrinking
  is taken to be of now, so that it neither counts for too little nor for ever; such a growth is dropped, since growth
  lowers the floor of a scale-down. What single metrics said is dropped, too: of their age nothing is known.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec

from hpad.engine.examine import View
from hpad.model.history import History, Recommendation, Rescale
from hpad.model.hpa import HorizontalPodAutoscalerStatus
from hpad.model.target import Scale
from hpad.store.memory import Begun, Memory

Held = TypeVar("Held", Recommendation, Rescale)

SKEW: Final = timedelta(minutes=1)
"""Two machines' clocks may be so far apart, and one's may be set back by so much, without any harm."""


def carried_out(begun: Begun | None, current: int) -> bool:
    """Whether the rescale that was begun has been written, as the target's count shows."""
    return begun is not None and current == begun.to != begun.current


def owed(begun: Begun | None, status: HorizontalPodAutoscalerStatus, scale: Scale | None) -> Begun | None:
    """The rescale that was begun, if it was done and the HPA's status does not tell of it.

    When it last scaled, and whether it took the last replica, an HPA knows from nowhere else. The status is written at
    the end of the reconcile, on top of that one: by then the spec may be another than the rescale came from.
    """
    if begun is None or scale is None or not carried_out(begun, scale.spec.replicas):
        return None
    said, due = status.last_scale_time, begun.status.last_scale_time
    return None if said is not None and due is not None and said >= due else begun


def set_by_other(memory: Memory, target: str, status: HorizontalPodAutoscalerStatus) -> bool:
    """Whether a target, which is at zero, was left with replicas by hpad, or hpad was scaling another `target`.

    Not where an HPA controller has rescaled since: another replica of hpad, say, of which `memory` knows nothing.
    """
    if memory.at is None:
        return False
    left = 0 if carried_out(memory.begun, 0) else memory.left
    if not left and memory.target in ("", target):
        return False
    margin = SKEW if memory.recalled else timedelta()
    return status.last_scale_time is None or status.last_scale_time <= memory.at - margin


def resumed(memory: Memory, view: View, gap: timedelta) -> History:
    """The history to decide with. `view` has the target's scale, and a history that is not looked at."""
    history = memory.history
    if view.scale is None:
        return history
    current, expected = view.replicas, memory.left
    if memory.begun is not None:
        history = _ended(history, memory.begun, current)
        expected = memory.begun.to if carried_out(memory.begun, current) else memory.left
    if memory.at is not None and memory.at > view.now + SKEW:
        history = clamped(history, view.now)
    if _is_interrupted(memory, view, gap) or (memory.recalled and expected not in (None, current)):
        history = _bridged(history, view.now, current, expected)
    return history


def clamped(history: History, now: datetime) -> History:
    """Nothing in it is of the future."""
    return msgspec.structs.replace(
        history,
        recommendations=tuple(_not_after(now, history.recommendations)),
        scale_ups=tuple(held for held in history.scale_ups if held.timestamp <= now + SKEW),
        scale_downs=tuple(_not_after(now, history.scale_downs)),
        heard=(),
    )


def _not_after(now: datetime, past: Iterable[Held]) -> Iterable[Held]:
    return (msgspec.structs.replace(held, timestamp=min(held.timestamp, now)) for held in past)


def _ended(history: History, begun: Begun, current: int) -> History:
    if carried_out(begun, current):
        return msgspec.structs.replace(history, scale_ups=begun.scale_ups, scale_downs=begun.scale_downs)
    if current != begun.current and begun.to < begun.current:
        return msgspec.structs.replace(history, scale_downs=begun.scale_downs)
    return history


def _is_interrupted(memory: Memory, view: View, gap: timedelta) -> bool:
    """Whether reconciles are missing that would have said something about the time that counts."""
    if memory.at is None or not memory.history.recommendations:
        return memory.recalled
    behavior = view.intent.behavior
    window = view.tunables.downscale_stabilization
    if behavior is not None and behavior.down.window is not None:
        window = behavior.down.window
    longest = max(gap / 2, min(gap, window)) if memory.recalled else max(gap, window)
    return view.now - memory.at > longest


def _bridged(history: History, now: datetime, current: int, expected: int | None) -> History:
    """With the current count as a recommendation, and with pods that went unseen as a scale-down."""
    downs = history.scale_downs
    if expected is not None and current < expected:
        downs = (*downs, Rescale(now, expected - current))
    past = (*history.recommendations, Recommendation(now, current))
    return msgspec.structs.replace(history, recommendations=past, scale_downs=downs)
