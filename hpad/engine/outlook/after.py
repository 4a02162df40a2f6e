"""What the next reconciles decide if nothing changes but the time, or what the metrics ask for.

They are asked for with the stage that decides (`hpad.engine.restrain`), on the view that the next reconcile will have.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec

from hpad.api.behavior import DirectionRules
from hpad.api.hpa import Scale, ScaleSpec, ScaleStatus
from hpad.api.sample import Answer
from hpad.engine import spare, zero
from hpad.engine.recommend import Recommendation
from hpad.engine.restrain import restrain
from hpad.engine.settle import next_history
from hpad.engine.stage import LAST_REPLICA, restraints
from hpad.engine.trace.make import end_of
from hpad.engine.turn import Reconcile, counted
from hpad.engine.view import View

_MOMENT: Final = timedelta(microseconds=1)
_LAST: Final = datetime.max.replace(tzinfo=UTC) - _MOMENT


class Next(msgspec.Struct, frozen=True):
    """A decision, and the view of the next reconcile.

    `bounded` is that view with minimum and maximum as they are now, whatever a schedule says later. `settled`: the
    count has just changed, so the pods of the view are no longer those of the target. `own` and `answers` are view and
    answers without the spare replicas, for which metrics decide. What metrics ask for is without them, too.
    """

    record: Reconcile
    view: View
    bounded: View
    settled: bool
    own: View
    answers: Sequence[Answer]

    @property
    def count(self) -> int:
        """The replica count that the next reconcile finds."""
        return self.view.replicas

    @property
    def counted(self) -> int:
        """That count without its spare replicas, which the metrics decide for."""
        return self.own.replicas

    @property
    def recommended(self) -> int | None:
        """The count that the metrics ask for; None where they could not decide."""
        decision = self.record.decision
        known = decision.recommendation is not None and decision.restrained is not None
        return max(0, decision.recommendation.replicas) if known and decision.recommendation is not None else None

    @property
    def more(self) -> int:
        """The least that metrics may ask for so that the count grows."""
        return self.counted if self.total(self.counted) > self.count else self.counted + 1

    @property
    def fewer(self) -> int:
        """The most that metrics may ask for so that the count shrinks."""
        return self.counted if self.total(self.counted) < self.count else self.counted - 1

    def total(self, recommended: int) -> int:
        """Returns the count with the spare replicas on top of what the metrics ask for."""
        more = spare.added(self.view, recommended, uncertain=False)
        return recommended if more is None else more.replicas

    def amount(self, recommended: int) -> str:
        """Returns what the metrics ask for, in words: "9", or "9 and 1 spare"."""
        more = self.total(recommended) - recommended
        return f"{recommended} and {more} spare" if more else str(recommended)

    def rules(self, *, up: bool) -> DirectionRules | None:
        """Returns the rules of one direction; None without spec.behavior."""
        behavior = self.view.spec.behavior
        if behavior is None:
            return None
        return behavior.up if up else behavior.down


class Step(NamedTuple):
    """The next change: the count, the time after which it comes, and what keeps it until then (`hpad.engine.stage`).

    `at` is None where the change comes with the next reconcile.
    """

    replicas: int
    at: datetime | None = None
    held_by: str = ""


def after(record: Reconcile) -> Next | None:
    """Returns what the next reconcile finds; None where no metric was measured."""
    view, decision, outcome = record.view, record.decision, record.outcome
    if decision.recommendation is None or view.scale is None:
        return None
    rescaled = outcome is not None and (outcome.written or view.shadow is not None)
    history = next_history(view, decision, rescaled=rescaled)
    then = msgspec.structs.replace(view, history=history, pods=view.counted_pods)
    settled = rescaled and decision.desired != decision.current
    if settled:
        then = msgspec.structs.replace(then, scale=_scale(view.scale, decision.desired))
    return Next(record, then, _with_bounds(then), settled, *spare.without(then, record.answers))


def _scale(scale: Scale, count: int) -> Scale:
    return Scale(spec=ScaleSpec(count), status=ScaleStatus(count, scale.status.selector))


def _with_bounds(view: View) -> View:
    if view.controls.schedule is None:
        return view
    low, high, _ = view.bounds
    spec = msgspec.structs.replace(view.hpa.spec, min_replicas=low, max_replicas=high)
    return msgspec.structs.replace(
        view,
        hpa=msgspec.structs.replace(view.hpa, spec=spec),
        controls=msgspec.structs.replace(view.controls, schedule=None),
    )


def next_step(state: Next, recommended: int) -> Step | None:
    """Returns the next change of the count while the metrics keep asking for `recommended`; None: there is none.

    Windows and policies decide differently only after a recommendation has left its window, or a rescale its period.
    """
    held_by = ""
    for at in (None, *_times(state)):
        found = _decided(state, recommended, at)
        if found.replicas != state.count:
            # What holds until then may be a window, which no longer counts from then on.
            freed = at is not None and not found.replicas and at in zero.ends(state.bounded)
            return Step(found.replicas, at, LAST_REPLICA if freed else held_by)
        held_by = found.held_by
    return None


def step_at(state: Next, recommended: int, at: datetime) -> Step | None:
    """Returns the change just after `at`, where the metrics ask for `recommended` from then on; None: there is none."""
    found = _decided(state, recommended, at)
    return None if found.replicas == state.count else Step(found.replicas, at)


def holder(state: Next, recommended: int) -> str:
    """Returns what keeps the count for good although the metrics ask for `recommended`; "" where nothing does."""
    return _decided(state, recommended, max(_times(state), default=None)).held_by


class _Decided(NamedTuple):
    replicas: int
    held_by: str


def _decided(state: Next, recommended: int, at: datetime | None) -> _Decided:
    """Returns the count of a reconcile just after `at` (None: the next one), and what keeps it from `recommended`."""
    then = msgspec.structs.replace(state.bounded, now=(at or state.view.now) + _MOMENT)
    asked = Recommendation(replicas=state.total(recommended), leader=None, invalid=0, failed=None, error=None)
    restrained = restrain(then, asked)
    count = counted(then, restrained)
    return _Decided(count, next((each.holds for each in reversed([*restraints(restrained, count)]) if each.holds), ""))


def _times(state: Next) -> list[datetime]:
    """Returns the times after which windows or policies may decide differently, in order."""
    return sorted({at for at in _ends(state) if at is not None and state.view.now < at < _LAST})


def _ends(state: Next) -> Iterator[datetime | None]:
    behavior, history = state.view.spec.behavior, state.view.history
    windows = {state.view.window(up=True), state.view.window(up=False)}
    for entry in history.recommendations:
        yield from (end_of(entry.timestamp, window) for window in windows)
    if behavior is not None:
        periods = {policy.period for policy in (*behavior.up.policies, *behavior.down.policies)}
        for rescale in (*history.scale_ups, *history.scale_downs):
            yield from (end_of(rescale.timestamp, period) for period in periods)
    yield from zero.ends(state.bounded)
