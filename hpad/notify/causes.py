"""Finds what a reconcile begins and ends: a pure function of the reconcile and the small state of its HPA.

Nothing is formatted here. Durations are monotonic seconds.
"""

import enum
import math
from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Final

import msgspec

from hpad.engine.decision import Decision
from hpad.engine.turn import Reconcile
from hpad.settings.notify import NotifyAfter, NotifyCause

HOUR: Final = 3600.0
"""The shortest time between two messages of one cause that an HPA gives rise to; the end of one that was told is not
counted."""
_LASTING: Final = (NotifyCause.AT_MAX, NotifyCause.FAILING, NotifyCause.FALLBACK, NotifyCause.COMPETING)


class NoticePhase(enum.StrEnum):
    """Whether a message says that something is so, or that it is over."""

    BEGUN = "begun"
    ENDED = "ended"


class NoticeState(msgspec.Struct, frozen=True, gc=False):
    """What is known of one cause of one HPA.

    `since` is when the condition began (None: it does not hold), `began` the same in monotonic seconds. `told`: a
    message said that it began. `told_at` is the time of the last such message. `repeats` counts what has been left out
    since then, because less than HOUR had passed.
    """

    since: datetime | None = None
    began: float = 0.0
    told: bool = False
    told_at: float = -math.inf
    repeats: int = 0


class NoticeChange(msgspec.Struct, frozen=True, gc=False):
    """What is to be told of a cause. `since` is when the condition began, or when the HPA was rescaled."""

    cause: NotifyCause
    phase: NoticePhase
    since: datetime
    lasted: float
    repeats: int


Known = Mapping[NotifyCause, NoticeState]
NOTHING: Final[Known] = MappingProxyType({})
_IDLE: Final = NoticeState()


def changes(
    done: Reconcile, known: Known, now: float, causes: frozenset[NotifyCause], after: NotifyAfter
) -> tuple[Known, list[NoticeChange]]:
    """Returns the state of the HPA after a reconcile, and what is to be told of these causes. `now` is monotonic.

    Almost always nothing is known, and nothing happens.
    """
    holding = _holding(done, known)
    rescaled = done.settlement.rescaled and NotifyCause.RESCALE in causes
    if not holding and not known and not rescaled:
        return NOTHING, []
    states, found = dict[NotifyCause, NoticeState](), list[NoticeChange]()
    for cause in _LASTING:
        if cause in causes:
            before = known.get(cause, _IDLE)
            holds = cause in holding
            seconds: float = getattr(after, cause).total_seconds()
            states[cause] = state = (
                _after(before, done.view.now, now, seconds) if holds else _over(before, now, seconds)
            )
            if change := _change(cause, before, state, now):
                found.append(change)
    before = known.get(NotifyCause.RESCALE, _IDLE)
    states[NotifyCause.RESCALE] = before
    if rescaled:
        is_due = now - before.told_at >= HOUR
        states[NotifyCause.RESCALE] = _told(before, now) if is_due else _repeated(before)
        if is_due:
            found.append(NoticeChange(NotifyCause.RESCALE, NoticePhase.BEGUN, done.view.now, 0.0, before.repeats))
    return {cause: state for cause, state in states.items() if _matters(state, now)}, found


def _after(before: NoticeState, at: datetime, now: float, after: float) -> NoticeState:
    """Returns the state of a condition that holds: told once it has lasted, and an hour after the last message."""
    if before.since is None:
        before = msgspec.structs.replace(before, since=at, began=now, told=False)
    if before.told or now - before.began < after or now - before.told_at < HOUR:
        return before
    return _told(before, now)


def _over(before: NoticeState, now: float, after: float) -> NoticeState:
    """Returns the state of a condition that does not hold; one that was left out counts as a repeat."""
    if before.since is None:
        return before
    left_out = not before.told and now - before.began >= after and before.told_at > -math.inf
    state = _repeated(before) if left_out else before
    return msgspec.structs.replace(state, since=None, told=False)


def _told(state: NoticeState, now: float) -> NoticeState:
    return msgspec.structs.replace(state, told=True, told_at=now, repeats=0)


def _repeated(state: NoticeState) -> NoticeState:
    return msgspec.structs.replace(state, repeats=state.repeats + 1)


def _change(cause: NotifyCause, before: NoticeState, state: NoticeState, now: float) -> NoticeChange | None:
    if state.told and not before.told and state.since is not None:
        return NoticeChange(cause, NoticePhase.BEGUN, state.since, now - state.began, before.repeats)
    if before.told and not state.told and before.since is not None:
        return NoticeChange(cause, NoticePhase.ENDED, before.since, now - before.began, 0)
    return None


def _matters(state: NoticeState, now: float) -> bool:
    """Whether a state has to be kept: the condition holds, or the next message has to wait, or has repeats to tell."""
    return state.since is not None or state.repeats > 0 or now - state.told_at < HOUR


def _holding(done: Reconcile, known: Known) -> list[NotifyCause]:
    """Returns the conditions that hold. What a turn cannot tell stays as it was."""
    view, decision = done.view, done.decision
    found = []
    if _at_max(decision, view.max_replicas, known):
        found.append(NotifyCause.AT_MAX)
    failed = done.outcome is not None and done.outcome.error is not None
    fallback = decision.undecided and not decision.proposals and _held(NotifyCause.FALLBACK, known)
    for proposal in decision.proposals:
        if proposal.error is not None:
            failed, fallback = failed or not proposal.fallback, fallback or bool(proposal.fallback)
    if failed or decision.undecided:
        found.append(NotifyCause.FAILING)
    if fallback:
        found.append(NotifyCause.FALLBACK)
    if view.competitors:
        found.append(NotifyCause.COMPETING)
    return found


def _at_max(decision: Decision, maximum: int, known: Known) -> bool:
    """Whether the HPA is at its maximum. That begins when the metrics ask for more, and lasts while it stays there.

    An HPA that has the count of its maximum, and wants no more, needs nobody.
    """
    if decision.undecided:
        return _held(NotifyCause.AT_MAX, known)
    if decision.desired < maximum or decision.recommendation is None:
        return False
    return wanted(decision) > maximum or _held(NotifyCause.AT_MAX, known)


def wanted(decision: Decision) -> int:
    """Returns the count that the metrics ask for, with spare replicas."""
    if decision.spare is not None:
        return decision.spare.replicas
    return decision.desired if decision.recommendation is None else decision.recommendation.replicas


def _held(cause: NotifyCause, known: Known) -> bool:
    return known.get(cause, _IDLE).since is not None
