"""The expected turn of a step in `crashing`, from the state that its record holds.

`play` decides with the engine on the history that survived, after the rules for a break. These rules are those of
`hpad.engine.state`, written a second time and in another way, so that a mistake in one of them shows.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from e2e.crashing import Planned, summary

from hpad.api.hpa import HorizontalPodAutoscalerStatus
from hpad.engine import examine, settle
from hpad.engine.decision import Decision
from hpad.engine.history import NOTHING, History, Memory, PastRecommendation, PendingRescale, Rescale, Validity
from hpad.engine.turn import decide
from hpad.engine.view import View
from hpad.records.format import Step

SKEW = timedelta(minutes=1)
ATTEMPTS = 5
TARGET = "apps/Deployment/web"


class Turn(NamedTuple):
    """The expected outcome of a step: the written count (None: no write), the result line, and the memory after it.

    `before_write` is the memory saved before the write, None without one. `noted` is the memory saved before a turn
    that came earlier than planned. `unconditional`: the scale-down does not depend on the history, because the count is
    above the maximum or the HPA has no stabilization window.
    """

    write: int | None
    result: list[Any]
    before_write: Memory | None
    after: Memory
    unconditional: bool
    noted: Memory | None


def view_of(planned: Planned, step: Step, history: History, status: HorizontalPodAutoscalerStatus) -> View:
    return View(
        hpa=msgspec.structs.replace(planned.hpa, status=status),
        now=step.time.astimezone(UTC),
        tunables=planned.scenario.tunables,
        history=history,
        scale=step.scale if step.scale_error is None else None,
        scale_error=step.scale_failure,
        pods=step.selected(),
        overlapping_hpas=step.overlapping_hpas(planned.scenario.others),
    )


def outcome_of(count: int, refusals: list[str]) -> settle.Outcome:
    """Returns the outcome of a write: conflicts are retried, five attempts in total; other errors are final."""
    conflicts = 0
    while conflicts < len(refusals) and refusals[conflicts] == "conflict":
        conflicts += 1
    if conflicts >= ATTEMPTS:
        return settle.Outcome((count,) * ATTEMPTS, "conflict")
    error = refusals[conflicts] if conflicts < len(refusals) else None
    return settle.Outcome((count,) * (conflicts + 1), error)


def play(planned: Planned, step: Step, memory: Memory, gap: timedelta, valid: Validity) -> Turn:
    """Returns the turn of a step from the memory `memory` before it; the memory after it has the validity `valid`."""
    uid = planned.hpa.metadata.uid
    memory = memory if memory.uid == uid else NOTHING
    known, memory = memory, _saved_before_early_turn(memory, valid)
    status = memory.status or planned.hpa.status
    previous = status.last_scale_time
    view = view_of(planned, step, memory.history, status)
    if memory.pending is not None and view.scale is not None and _was_done(memory.pending, view.replicas):
        pending, stored = memory.pending.status.last_scale_time, status.last_scale_time
        if stored is None or pending is None or stored < pending or (stored == memory.pending.previous != pending):
            status = memory.pending.status
    view = view_of(planned, step, _unknown(survived(memory, view, gap), memory, view), status)
    verdict = examine.examine(view)
    decision = decide(view, verdict, step.answer(verdict.queries))
    outcome = None
    before_write = None
    if decision.scale_to is not None:
        outcome = outcome_of(decision.scale_to, list(step.scale_update_errors))
        before_write = msgspec.structs.replace(
            _memory_before_write(view, memory, decision, decision.scale_to, previous), validity=valid
        )
    settlement = settle.settle(view, decision, outcome)
    unconditional = isinstance(decision.verdict, examine.Clamp) or not window_of(view)
    moved = outcome is not None and outcome.error is None
    after = msgspec.structs.replace(before_write or memory, uid=uid, target=TARGET, status=settlement.status)
    if view.scale is not None:
        last_count = decision.scale_to if moved else view.replicas
        after = msgspec.structs.replace(
            after,
            history=settlement.history,
            at=view.now,
            last_count=last_count,
            pending=None,
            loaded=False,
            validity=valid,
        )
    elif memory.validity is not None and (memory.complete or not memory.loaded):
        start = memory.validity.ticks
        after = msgspec.structs.replace(
            after, validity=Validity(valid.boot, start, valid.ticks - start + valid.lasts, valid.grace)
        )
    noted = None if memory is known else memory
    return Turn(decision.scale_to if moved else None, summary(settlement), before_write, after, unconditional, noted)


def _saved_before_early_turn(memory: Memory, turn: Validity) -> Memory:
    """Returns the memory saved before a turn that comes earlier than planned; `memory` itself for other turns."""
    before = memory.validity
    if before is None or before.ticks + before.lasts <= turn.ticks:
        return memory
    return msgspec.structs.replace(memory, validity=Validity(before.boot, before.ticks))


def _memory_before_write(view: View, memory: Memory, decision: Decision, to: int, previous: datetime | None) -> Memory:
    done = settle.settle(view, decision, settle.Outcome((to,)))
    past, ups, downs = view.history, done.history.scale_ups, done.history.scale_downs
    return msgspec.structs.replace(
        memory,
        uid=view.hpa.metadata.uid,
        target=TARGET,
        history=msgspec.structs.replace(done.history, scale_ups=past.scale_ups, scale_downs=past.scale_downs),
        at=view.now,
        last_count=view.replicas,
        pending=PendingRescale(view.replicas, to, ups, downs, done.status, previous),
        loaded=False,
    )


def _was_done(pending: PendingRescale, current: int) -> bool:
    return pending.to not in (pending.current,) and current == pending.to


def survived(memory: Memory, view: View, gap: timedelta) -> History:
    """Returns the history that remains of a memory after a break."""
    history, current, now = memory.history, view.replicas, view.now
    if view.scale is None:
        return history
    last_count = memory.last_count
    if memory.pending is not None:
        pending = memory.pending
        if _was_done(pending, current):
            last_count = pending.to
            history = History(history.recommendations, pending.scale_ups, pending.scale_downs, history.last_samples)
        elif pending.to < pending.current and current != pending.current:
            new = [one for one in pending.scale_downs if one not in history.scale_downs]
            downs = tuple(
                Rescale(one.timestamp, one.change, one.outdated, one.uncertain or one in new)
                for one in pending.scale_downs
            )
            history = History(history.recommendations, history.scale_ups, downs, history.last_samples)
    if memory.at is not None and memory.at - now > SKEW:
        history = History(
            tuple(
                PastRecommendation(min(one.timestamp, now), one.replicas, one.uncertain)
                for one in history.recommendations
            ),
            tuple(_of_now(one, now) for one in history.scale_ups),
            tuple(_of_now(one, now) for one in history.scale_downs),
        )
    changed = memory.loaded and last_count is not None and last_count != current
    if not changed and not _gone_too_long(memory, view, gap):
        return history
    ups, downs = history.scale_ups, history.scale_downs
    if last_count is not None and last_count > current:
        downs += (Rescale(now, last_count - current, uncertain=True),)
    if last_count is not None and last_count < current:
        ups += (Rescale(now, current - last_count, uncertain=True),)
    return History((*history.recommendations, PastRecommendation(now, current, True)), ups, downs, history.last_samples)


def _of_now(one: Rescale, now: datetime) -> Rescale:
    return one if one.timestamp <= now else Rescale(now, one.change, one.outdated, True)


def _unknown(history: History, memory: Memory, view: View) -> History:
    """Adds a rescale known only from the status, with the largest possible change in both directions."""
    last, behavior = view.hpa.status.last_scale_time, view.spec.behavior
    if last is None or behavior is None or memory.complete or (memory.at is not None and not memory.loaded):
        return history
    if memory.at is not None and last <= memory.at:
        return history
    when = view.now if memory.at is not None else min(last, view.now)
    up = Rescale(when, view.replicas, uncertain=True)
    down = Rescale(when, max(0, view.spec.max_replicas - view.replicas), uncertain=True)
    return History(
        history.recommendations, (*history.scale_ups, up), (*history.scale_downs, down), history.last_samples
    )


def _gone_too_long(memory: Memory, view: View, gap: timedelta) -> bool:
    if memory.at is None or not memory.history.recommendations or (memory.loaded and not memory.complete):
        return memory.loaded
    window = window_of(view)
    away = view.now - memory.at
    if memory.loaded:
        return away > gap or (away > gap / 2 and away > window)
    return away > gap and away > window


def window_of(view: View) -> timedelta:
    behavior = view.spec.behavior
    own = None if behavior is None else behavior.down.window
    return view.tunables.downscale_stabilization if own is None else own
