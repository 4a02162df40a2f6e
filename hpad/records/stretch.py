"""Merges the turns of an HPA into stretches: turns in a row with the same decision for the same reason.

A reason has three parts, because a change of each counts differently.

| part | content | a change |
| --- | --- | --- |
| scope | the spec, settings, annotations and bounds that decide; the replica count | ends the stretch at once |
| troubles | failing metrics, fallbacks, a halt, a count that was not written | a further one ends the stretch at once |
| details | the leading metric, what held it (window, policy, bound), who is to blame for a failure | must last |

Usages and error texts are no part of it: they differ in each turn. Usages vary, so of two metrics that are about as
high each leads from time to time, and a source may fail in every other turn. A stretch ends once its reason has not
held for `SETTLED` turns in a row, and the next one then begins at the first of these turns. Turns with another reason
that had not lasted when a change of the first kind came are a stretch as well: they often say why it came late.
"""

import functools
from collections.abc import Hashable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, Scale, ScaleStatus
from hpad.api.sample import AdapterError, Answer
from hpad.engine.conditions import Event
from hpad.engine.decision import Decision
from hpad.engine.examine import Halt
from hpad.engine.history import EMPTY
from hpad.engine.recommend import Recommendation
from hpad.engine.settle import Outcome, Settlement
from hpad.engine.turn import Reconcile
from hpad.records.entry import Numbers, Stored, numbers, pack

SETTLED: Final = 8
"""Turns in a row after which a change of the reason counts: two minutes with the default period."""
LONGEST: Final = timedelta(days=1)
"""A longer stretch is continued by another, so that its step is of the same day."""
_MOST_READINGS: Final = 256
"""Readings that wait for a save."""
_NO_STATUS: Final = HorizontalPodAutoscalerStatus()
_NO_METADATA: Final[dict[str, Any]] = {}


Troubles = frozenset[Hashable]
_NONE: Final[Troubles] = frozenset()
UP: Final = "up"
DOWN: Final = "down"
UNWRITTEN: Final = "unwritten"
FAILING: Final = "failing"
FALLBACK: Final = "fallback"
_NO_METRIC: Final = "no metric"


class Reason(msgspec.Struct, frozen=True, gc=False):
    """The reason of one decision. `current` is None where the scale is unknown."""

    scope: Hashable
    current: int | None
    troubles: Troubles
    details: tuple[Hashable, ...]


class _Once:
    """The scope of a rescale, which equals no other: each rescale is an entry of its own."""


def reason(done: Reconcile) -> Reason:
    """Returns the reason of a decision. O(metrics)."""
    view, decision, outcome, settlement = done.view, done.decision, done.outcome, done.settlement
    shadow = view.shadow
    if settlement.rescaled or (shadow is not None and outcome is not None):
        return Reason(_Once(), decision.current, _NONE, ())
    restrained, recommendation = decision.restrained, decision.recommendation
    leader = _leader(recommendation)
    held = () if restrained is None else (restrained.deciding is None or restrained.able[0], restrained.limited[0])
    if decision.budgeted is not None and decision.budgeted.held:
        held = (*held, decision.budgeted.reason or decision.budgeted.budget)
    troubles = _troubles(decision, outcome)
    return Reason(
        (
            view.hpa.metadata.uid,
            view.hpa.spec,
            view.tunables,
            view.fallback_policies,
            view.controls,
            view.controls.schedule and view.bounds[:2],
            shadow and (shadow.withheld, shadow.replicas),
        ),
        None if view.scale is None else decision.current,
        troubles,
        (leader, held, decision.scale_to, _blames(done)) if troubles else (leader, held),
    )


def _leader(recommendation: Recommendation | None) -> str | None:
    if recommendation is None or recommendation.leader is None:
        return None
    return recommendation.source if recommendation.combined else recommendation.leader.metric.label


def _troubles(decision: Decision, outcome: Outcome | None) -> Troubles:
    found: list[Hashable] = []
    if isinstance(decision.verdict, Halt):
        found.append((decision.verdict.kind, decision.verdict.reason))
    for index, proposal in enumerate(decision.proposals):
        if proposal.error is not None:
            found += [(FAILING, index), (FALLBACK, index)] if proposal.fallback else [(FAILING, index)]
    if outcome is not None:
        found.append(UP if decision.desired > decision.current else DOWN)
        found.append((UNWRITTEN, outcome.withheld and outcome.withheld.reason))
    if decision.undecided and not found:
        found.append(_NO_METRIC)
    return frozenset(found) if found else _NONE


def _blames(done: Reconcile) -> tuple[str, ...]:
    """Returns what is to blame for each metric that fails; "" where its sample is unusable."""
    return tuple(
        answer.blame if isinstance(answer, AdapterError) else ""
        for answer, proposal in zip(done.answers, done.decision.proposals, strict=False)
        if proposal.error is not None
    )


class Stretch:
    """A stretch of one HPA. `last` is the reconcile of its last turn, without what only a recording needs.

    `unsaved` is its first turn, None once that is in the database, and `readings` the numbers of the metrics since the
    last save. `later` are the latest turns, where these had another reason. `lost`: the database has lost the first
    turn, so the next one begins another stretch.
    """

    __slots__ = (
        "_current", "_numbers", "_reason", "began", "ended", "key", "last", "later", "lost", "number", "readings",
        "turns", "unsaved",
    )  # fmt: skip

    def __init__(self, done: Reconcile, why: Reason, last: Reconcile) -> None:
        self.number = 0
        self.key = done.view.key
        self.began = self.ended = done.view.now
        self.turns = 1
        self.last = last
        self.later: Stretch | None = None
        self.lost = False
        self.unsaved: Reconcile | Stored | None = done
        self._numbers = numbers(done)
        self.readings: list[tuple[datetime, Numbers]] = [(self.began, self._numbers)]
        self._reason = why
        self._current = why.current

    @property
    def settled(self) -> bool:
        """Whether `later` is to be a stretch of its own, since it has lasted."""
        return self.later is not None and self.later.turns >= SETTLED

    def takes(self, done: Reconcile, why: Reason) -> bool:
        """Adds a turn, if it belongs to this stretch. Returns whether it does."""
        now, newest = done.view.now, self.later or self
        # A clock that was set back begins a stretch, so that none ends before it begins.
        if self.lost or now < newest.ended or now - newest.ended > LONGEST or newest.ended - self.began >= LONGEST:
            return False
        same = why == self._reason
        if not same and self._is_left_by(why):
            return False
        self.last = slim(done, self.last.view.hpa)
        self._current = self._current if why.current is None else why.current
        if same:
            self._rejoin()
            self._add(now, 1, ((now, numbers(done)),))
        elif self.later is None:
            self.later = Stretch(done, why, self.last)
        else:
            self.later._add(now, 1, ((now, numbers(done)),))
            self.later.last = self.last
        return True

    def end(self, *, apart: bool) -> "Stretch | None":
        """Ends the stretch. Returns its latest turns with another reason, if they are to be `apart`."""
        later = self.later
        if apart and later is not None:
            self.later = None
            return later
        self._rejoin()
        return None

    def _rejoin(self) -> None:
        later, self.later = self.later, None
        if later is not None:
            self._add(later.ended, later.turns, later.readings)

    def _add(self, now: datetime, turns: int, readings: Sequence[tuple[datetime, Numbers]]) -> None:
        self.ended = now
        self.turns += turns
        for reading in readings:
            if reading[1] != self._numbers:
                self._numbers = reading[1]
                self.readings.append(reading)
        if len(self.readings) > _MOST_READINGS:  # they cannot be saved
            del self.readings[0]

    def _is_left_by(self, why: Reason) -> bool:
        """Whether a turn with this reason ends the stretch at once."""
        if why.current != self._current and None not in (why.current, self._current):
            return True
        return why.scope != self._reason.scope or not why.troubles <= self._reason.troubles

    @property
    def tail(self) -> Sequence[tuple[datetime, Numbers]]:
        """The readings of `later`."""
        return () if self.later is None else self.later.readings

    def progress(self) -> tuple[datetime, int]:
        """Returns the time of the last turn, and the number of turns, with those of `later`."""
        later = self.later
        return (self.ended, self.turns) if later is None else (later.ended, self.turns + later.turns)

    def saved(self, readings: int) -> None:
        """Forgets what was saved: the first turn, and so many readings."""
        self.unsaved = None
        del self.readings[:readings]

    def stored(self) -> Stored | None:
        """Returns the stored form of the first turn, None if that is in the database. Call it on a thread."""
        found = self.unsaved
        if isinstance(found, Reconcile):
            found = self.unsaved = pack(found)
        return found


def slim(done: Reconcile, hpa: HorizontalPodAutoscaler) -> Reconcile:
    """Returns the reconcile without what a trace does not need.

    That is the status of the HPA, the new one, all of the scale but its counts and selector, and tracebacks: half of
    the memory. `hpa` replaces the HPA of the view.
    """
    view, settlement = done.view, done.settlement
    return Reconcile(
        msgspec.structs.replace(view, hpa=hpa, scale=None if view.scale is None else _bare_scale(view.scale)),
        _without_tracebacks(done.answers),
        done.decision,
        done.outcome,
        _bare_settlement(
            settlement.status_changed,
            settlement.events,
            settlement.error,
            settlement.action,
            settlement.error_label,
            rescaled=settlement.rescaled,
        ),
        timing=done.timing,
    )


@functools.lru_cache(maxsize=64)
def _bare_settlement(
    status_changed: bool, events: tuple[Event, ...], error: str | None, action: str, label: str, *, rescaled: bool
) -> Settlement:
    """Returns the settlement without status and history; shared by all HPAs with the same outcome."""
    return Settlement(
        status=_NO_STATUS,
        status_changed=status_changed,
        events=events,
        history=EMPTY,
        error=error,
        action=action,
        error_label=label,
        metric_computations=(),
        rescaled=rescaled,
    )


def _bare_scale(scale: Scale) -> Scale:
    """Returns the scale without metadata and parsed selector, for each of which it has a dict."""
    return Scale(
        metadata=_NO_METADATA, spec=scale.spec, status=ScaleStatus(scale.status.replicas, scale.status.selector)
    )


def _without_tracebacks(answers: Sequence[Answer]) -> tuple[Answer, ...]:
    """Copies errors that were raised: their tracebacks hold the frames of the calls."""
    return tuple(map(_bare, answers))


def _bare(answer: Answer) -> Answer:
    if not isinstance(answer, AdapterError):
        return answer
    return AdapterError(answer.message, answer.blame, lasting=answer.lasting, alive=answer.alive)
