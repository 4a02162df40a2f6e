"""The conditions of hpad's own: other writers, pauses, shadow mode, schedules, budgets, busy pods, invalid
annotations.
"""

from datetime import datetime
from typing import Final

import msgspec

from hpad.api.text import begin
from hpad.engine import busy, controls
from hpad.engine.conditions import (
    ANNOTATIONS_VALID,
    COMPETING_WRITERS,
    FALSE,
    IDLE_FIRST,
    PAUSED,
    SCHEDULE_ACTIVE,
    SHADOW,
    TRUE,
    WARNING,
    WITHIN_BUDGET,
    Condition,
    Event,
    with_condition,
    without_condition,
)
from hpad.engine.decision import Decision
from hpad.engine.view import COMPETING_REASONS, View
from hpad.engine.words import replicas

_LONGEST_MESSAGE: Final = 8192
"""Characters of the message of a condition or an event: a hundred metrics may fail with a long error each."""
_OWN: Final = frozenset(
    {COMPETING_WRITERS, PAUSED, SHADOW, SCHEDULE_ACTIVE, IDLE_FIRST, WITHIN_BUDGET, ANNOTATIONS_VALID}
)
"""The conditions that `mark_own` sets and removes."""


class Draft(msgspec.Struct):
    """The conditions and events of a settlement while it is built. `generation` is that of the HPA, if it has one."""

    conditions: tuple[Condition, ...]
    events: list[Event]
    now: datetime
    generation: int | None = None

    def condition(self, kind: str, status: str, reason: str, message: str) -> None:
        made = Condition(kind, status, self.now, reason, begin(message, _LONGEST_MESSAGE), self.generation)
        self.conditions = with_condition(self.conditions, made)

    def warn(self, reason: str, message: str, detail: str = "") -> None:
        self.events.append(Event(WARNING, reason, begin(message, _LONGEST_MESSAGE), detail))


def mark_own(view: View, draft: Draft, decided: int | None) -> None:
    """Sets the conditions of hpad's own that do not depend on the metrics; `decided` is None where nothing is known."""
    if _has_nothing_own(view) and not any([condition.type in _OWN for condition in draft.conditions]):
        return  # nearly always
    _mark_competing(view, draft)
    _mark_paused(view, draft)
    _mark_shadow(view, draft, decided)
    _mark_schedule(view, draft)
    _mark_order(view, draft)
    if view.controls.budget is None:
        draft.conditions = without_condition(draft.conditions, WITHIN_BUDGET)
    _mark_annotations(view, draft)


def _has_nothing_own(view: View) -> bool:
    """Whether no condition of `_OWN` can apply: annotations, shadow mode and other writers are their only causes."""
    return not (view.controls.texts or view.competitors or view.shadow is not None or view.annotation_error is not None)


def _mark_competing(view: View, draft: Draft) -> None:
    """Sets the condition CompetingWriters for as long as there are other writers."""
    if not view.competitors:
        draft.conditions = without_condition(draft.conditions, COMPETING_WRITERS)
        return
    kinds = {competitor.what for competitor in view.competitors}
    reason = next(COMPETING_REASONS[what] for what in COMPETING_REASONS if what in kinds)
    draft.condition(COMPETING_WRITERS, TRUE, reason, "; ".join(map(str, view.competitors)))


def _mark_paused(view: View, draft: Draft) -> None:
    """Sets the condition Paused for as long as the HPA is paused (`hpad.io/mode`, `hpad.io/paused-until`)."""
    if view.paused is None:
        draft.conditions = without_condition(draft.conditions, PAUSED)
        return
    message = f"{view.paused.message}: metrics are read and remembered, and the target is left alone"
    draft.condition(PAUSED, TRUE, view.paused.reason, message)


def _mark_schedule(view: View, draft: Draft) -> None:
    """Sets the condition ScheduleActive while a window of `hpad.io/schedule` is open."""
    bounds = None if view.controls.schedule is None else view.bounds
    if bounds is None or not bounds.windows:
        draft.conditions = without_condition(draft.conditions, SCHEDULE_ACTIVE)
        return
    message = f"the minimum is {bounds.low} and the maximum {bounds.high} by {bounds}"
    draft.condition(SCHEDULE_ACTIVE, TRUE, "WindowOpen", message)


def _mark_annotations(view: View, draft: Draft) -> None:
    """Sets the condition HpadAnnotationsValid to False for as long as annotations under `hpad.io/` have errors."""
    if view.annotation_reason is None or view.annotation_error is None:
        draft.conditions = without_condition(draft.conditions, ANNOTATIONS_VALID)
        return
    draft.condition(ANNOTATIONS_VALID, FALSE, view.annotation_reason, view.annotation_error)


def _mark_shadow(view: View, draft: Draft, decided: int | None) -> None:
    """Sets the condition Shadow for as long as the HPA is in shadow mode (`hpad.io/mode`, or a dry run)."""
    if view.shadow is None:
        draft.conditions = without_condition(draft.conditions, SHADOW)
    if view.shadow is None or decided is None:
        return
    count = view.shadow.replicas
    left = f"the target has {replicas(count)} and is left alone"
    message = f"{view.shadow.withheld.message}: {left}; hpad would have it at {decided}"
    draft.condition(SHADOW, TRUE, view.shadow.withheld.reason, message)


def limit(decision: Decision) -> tuple[str, str] | None:
    """Returns reason and message of ScalingLimited where the budget, or after it busy pods, limit the count."""
    for reason, found in (("BusyPods", decision.spared), ("BudgetLimit", decision.budgeted)):
        if found is not None and found.held:
            return reason, f"the desired replica count is {found.wanted}, but {found.holding}"
    return None


def mark_budget(draft: Draft, decision: Decision) -> None:
    """Says whether the budget is known and has room for the minima of its HPAs."""
    found = decision.budgeted
    if found is None:
        return
    if found.error:
        draft.condition(WITHIN_BUDGET, FALSE, found.reason, f"budget {found.budget}: {found.error}")
    else:
        message = f"the HPA shares the budget {found.budget} ({found.amount})"
        draft.condition(WITHIN_BUDGET, TRUE, "BudgetShared", message)


def mark_spared(view: View, draft: Draft, decision: Decision) -> None:
    """Says whether the last scale-down could tell idle pods from busy ones."""
    found = decision.spared
    if found is None:
        return
    if not view.controls.idle_first or busy.by_ordinal(view.hpa):
        return
    if found.error:
        message = f"pods are removed in any order: it is unknown what they are doing: {found.error}"
        draft.condition(IDLE_FIRST, FALSE, "BusynessUnknown", message)
    elif found.most_busy is not None:
        message = f"{found.holding}: only pods that are known to be idle are removed first"
        draft.condition(IDLE_FIRST, FALSE, "BusynessCounted", message)
    else:
        message = "the pods with the least unfinished work are removed first"
        draft.condition(IDLE_FIRST, TRUE, "BusynessKnown", message)


def _mark_order(view: View, draft: Draft) -> None:
    """Keeps the condition IdleFirst to HPAs with the annotation hpad.io/scale-down-order, and names its limits."""
    if view.controls.scale_down_order is None or not view.controls.idle_first:
        draft.conditions = without_condition(draft.conditions, IDLE_FIRST)
    elif busy.by_ordinal(view.hpa):
        order = controls.written(controls.ORDER, view.hpa.kind)
        message = f"{order} has no effect: a StatefulSet removes the pod with the highest ordinal"
        draft.condition(IDLE_FIRST, FALSE, "ByOrdinal", message)
