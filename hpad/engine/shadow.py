"""Shadow mode: decides for a count that hpad would have given the target, while the target is left alone.

The count begins as that of the target. Then only the decisions of hpad change it, so that windows, policies and later
steps are those of an HPA that scales. It decides on the load of the real pods as if it were shared evenly by as many
pods as the count (`hpad.engine.spread`). While the target is stopped, at zero replicas, there is no other count.
"""

from collections.abc import Sequence

import msgspec

from hpad.api.hpa import Scale, ScaleSpec
from hpad.api.sample import AdapterError, Sample
from hpad.engine.controls import IN_SHADOW
from hpad.engine.decide import Decision
from hpad.engine.examine import Proceed, Verdict
from hpad.engine.history import History
from hpad.engine.propose import propose
from hpad.engine.spread import Modelled, evenly
from hpad.engine.status import metric_status
from hpad.engine.view import DRY_RUN, SHADOW, Shadow, View, Withheld

Answer = Sample | AdapterError


def reason(view: View, *, dry_run: bool) -> Withheld | None:
    """Returns why the HPA is in shadow mode; None if it is not. A paused HPA keeps the count of its target."""
    return None if view.paused is not None else mode(view, dry_run=dry_run)


def mode(view: View, *, dry_run: bool) -> Withheld | None:
    """Returns why the HPA is in shadow mode whenever it is not paused; None if it never is."""
    if dry_run:
        return DRY_RUN
    return SHADOW if view.controls.mode == IN_SHADOW else None


def begun(view: View, why: Withheld, count: int | None) -> View:
    """Returns the view with `count`, that of the shadow after the last turn (None: there is none yet).

    `applied` completes it once the answers are known.
    """
    scale = view.scale
    if scale is None:
        known = view.hpa.status.current_replicas
        return msgspec.structs.replace(view, shadow=Shadow(why, known, known))
    real = scale.spec.replicas
    shadowed = msgspec.structs.replace(view, shadow=Shadow(why, real, scale.status.replicas))
    if not real or count is None or count == real:
        return shadowed
    return msgspec.structs.replace(shadowed, scale=_with(scale, count, count))


def applied(view: View, verdict: Verdict, answers: Sequence[Answer]) -> tuple[View, Sequence[Answer]]:
    """Returns the view and the answers that the shadow decides on; `answers` are those about the real pods.

    A recorded view has been through this: its shadow has `metrics`, and stays as it is.
    """
    shadow, scale = view.shadow, view.scale
    if shadow is None or shadow.metrics is not None or scale is None or not isinstance(verdict, Proceed):
        return view, answers
    real = msgspec.structs.replace(view, scale=_with(scale, shadow.replicas, shadow.observed))
    metrics = tuple(metric_status(propose(real, *each)) for each in zip(verdict.metrics, answers, strict=True))
    made = Modelled(view.pods, answers)
    if view.replicas != shadow.replicas:
        made = evenly(view, answers, shadow.replicas)
    shadow = msgspec.structs.replace(shadow, metrics=metrics)
    return msgspec.structs.replace(view, pods=made.pods, shadow=shadow), made.answers


def count_after(view: View, decision: Decision) -> int | None:
    """Returns the count of the shadow after this decision; None where there is no other count than the target's."""
    if view.shadow is None or view.scale is None or not view.shadow.replicas:
        return None
    return decision.current if decision.scale_to is None else decision.scale_to


def left(history: History) -> History:
    """Returns the history of an HPA that leaves shadow mode: what was wanted counts, and no rescale was made."""
    return msgspec.structs.replace(history, scale_ups=(), scale_downs=())


def _with(scale: Scale, replicas: int, observed: int) -> Scale:
    status = msgspec.structs.replace(scale.status, replicas=observed)
    return msgspec.structs.replace(scale, spec=ScaleSpec(replicas), status=status)
