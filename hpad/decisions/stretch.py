"""Merges the turns of an HPA into stretches: turns in a row with the same decision for the same reason.

A stretch ends at once where the next turn rescales, or finds another replica count, spec or setting, or a further
trouble such as a metric that fails. Any other change of the reason must last: usages vary, so of two metrics that are
about as high each leads from time to time, and a source may fail in every other turn. A stretch ends once its reason
has not held for `SETTLED` turns in a row, and the next one then begins at the first of these turns. Turns with another
reason that had not lasted when a change of the first kind came are a stretch as well: they often say why it came late.
"""

import functools
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus, Scale, ScaleStatus, without_status
from hpad.api.sample import AdapterError
from hpad.decisions.compact import Stored, pack
from hpad.decisions.entry import Entry, first, numbers
from hpad.decisions.points import Points, unpacked
from hpad.decisions.reason import Reason
from hpad.engine.conditions import Event
from hpad.engine.history import EMPTY
from hpad.engine.settle import Settlement
from hpad.engine.trace import Trace
from hpad.engine.trace.metrics import Answer
from hpad.engine.turn import Reconcile

SETTLED: Final = 8
"""Turns in a row after which a change of the reason counts: two minutes with the default period."""
LONGEST: Final = timedelta(days=1)
"""A longer stretch is continued by another, so that its trace is of the same day."""
_NO_STATUS: Final = HorizontalPodAutoscalerStatus()
_NO_METADATA: Final[dict[str, Any]] = {}


class _Run:
    """The latest turns of a stretch, none of which had its reason; `before` is what the stretch was before them."""

    __slots__ = ("before", "first", "reason")

    def __init__(self, stretch: "Stretch", done: Reconcile, why: Reason) -> None:
        self.first = done
        self.reason = why
        self.before = stretch.turns, stretch.ended, len(stretch.points)


class Stretch:
    """A stretch of one HPA that still goes on. `last` is the reconcile of its last turn."""

    __slots__ = ("_current", "_hpa", "_reason", "_run", "ended", "entry", "last", "points", "turns")

    def __init__(self, done: Reconcile, why: Reason, number: int) -> None:
        made = first(done, number)
        self.entry = msgspec.structs.replace(made, points=())
        self.points = Points(made.began, numbers(done))
        self.turns = 1
        self.ended = made.began
        self._hpa = without_status(done.view.hpa)
        self._reason = why
        self._current = why.current
        self._run: _Run | None = None
        self.last = kept(done, self._hpa)

    @property
    def settled(self) -> bool:
        """Whether the latest turns are to be `divided` off, since they had another reason for long enough."""
        return self._run is not None and self.turns - self._run.before[0] >= SETTLED

    @property
    def wavers(self) -> bool:
        """Whether the latest turns had another reason."""
        return self._run is not None

    @property
    def full(self) -> bool:
        """Whether another stretch is to go on from here, whatever the reason."""
        return self.points.full or self.ended - self.entry.began >= LONGEST

    def takes(self, done: Reconcile, why: Reason) -> bool:
        """Adds a turn, if it belongs to this stretch. Returns whether it does."""
        now = done.view.now
        # A clock that was set back begins an entry, so that no entry ends before it begins.
        if now < self.ended or now - self.ended > LONGEST:
            return False
        if why == self._reason:
            self._run = None
        elif self._is_left_by(why):
            return False
        elif self._run is None:
            self._run = _Run(self, kept(done, self._hpa), why)
        self._current = self._current if why.current is None else why.current
        self.last = kept(done, self._hpa)
        self.turns += 1
        self.ended = now
        self.points.note(now, numbers(done))
        return True

    def _is_left_by(self, why: Reason) -> bool:
        """Whether a turn with this reason ends the stretch at once."""
        if why.current != self._current and None not in (why.current, self._current):
            return True
        return why.scope != self._reason.scope or not why.troubles <= self._reason.troubles

    def divided(self, number: int) -> "tuple[Stretch, Reconcile]":
        """Ends the stretch before the latest turns, which `wavers` says there are.

        Returns a stretch of these turns, and the first one.
        """
        run, self._run = self._run, None
        assert run is not None
        later = Stretch(run.first, run.reason, number)
        turns, ended, points = run.before
        later.turns, later.ended, later.last = self.turns - turns, self.ended, self.last
        later.points = self.points.split(points, later.entry.began)
        self.turns, self.ended = turns, ended
        return later, run.first

    def closed(self) -> Entry:
        """Returns the entry as it is now, without trace."""
        began = self.entry.began
        points = tuple(unpacked(began, self.points.packed(), len(self.entry.metrics)))
        return msgspec.structs.replace(self.entry, ended=self.ended, turns=self.turns, points=points)

    def packed(self, trace: Trace | None = None) -> Stored:
        """Returns the entry as it is now, with the trace of its first turn, to be stored."""
        entry = msgspec.structs.replace(self.entry, ended=self.ended, turns=self.turns)
        return pack(entry, self.points, trace)


def kept(done: Reconcile, hpa: HorizontalPodAutoscaler) -> Reconcile:
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
