"""Compares an HPA with what it is to become, over its past and by the model of the advice."""

import enum
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from hpad.api.hpa import HorizontalPodAutoscaler
from hpad.api.metadata import Key
from hpad.engine.spec import CompiledMetric, compiled_spec
from hpad.engine.words import names, percent
from hpad.simulation.advice.assessment import AdviceOptions, Figures, ModelTrust
from hpad.simulation.advice.model import trust
from hpad.simulation.advice.model.load_model import LoadModel
from hpad.simulation.advice.model.rerun import Rerun, rerun
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.history import DAY, is_same

_OVERLOAD: Final = 0.002
"""The share of the time by which overload may grow: as much is chance in a week."""
_OVERLOAD_GROWTH: Final = 1.1
_COST_GROWTH: Final = 1.05
"""Replica-hours may grow by a twentieth, which a model does not tell from nothing."""
_FLAPS_A_DAY: Final = 1.0
_FLAPS_GROWTH: Final = 1.5


class ChangeOutcome(enum.StrEnum):
    """What a change does."""

    WORSE = "worse"
    NOT_WORSE = "not worse"
    UNKNOWN = "cannot be judged"
    """The model is not trusted, or has no values."""


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """How a change of an HPA compares. `reasons` are sentences. Trust and figures are None where nothing was run."""

    key: Key
    outcome: ChangeOutcome
    reasons: tuple[str, ...]
    trust: ModelTrust | None
    before: Figures | None = None
    after: Figures | None = None


class ChangedPast(NamedTuple):
    """The past of an HPA, and the HPA as it is to become."""

    past: HpaPast
    changed: HorizontalPodAutoscaler


def compared(found: ChangedPast, options: AdviceOptions) -> Compared:
    """Returns how the changed HPA compares with the one of now. Runs for about a second per week."""
    past, changed = found
    model = LoadModel.of(past, options)
    now = None if model is None else rerun(past.hpa, model)
    trusted = trust.judged(past, now)
    if model is None or now is None or not trusted.suffices:
        return unknown(past.hpa.key, trusted.text, trusted)
    try:
        fitting = _fitting(past.hpa, changed)
    except ValueError as error:
        return unknown(past.hpa.key, str(error), trusted)
    before, after = whole(now), whole(rerun(fitting, model))
    reasons = tuple(worse(before, after))
    return Compared(
        key=past.hpa.key,
        outcome=ChangeOutcome.WORSE if reasons else ChangeOutcome.NOT_WORSE,
        reasons=reasons or (_not_worse(before, after),),
        trust=trusted,
        before=before,
        after=after,
    )


def safely(found: ChangedPast, options: AdviceOptions) -> Compared:
    """Returns what `compared` does, also where it fails: one HPA shall not hide what is said of the others."""
    try:
        return compared(found, options)
    except Exception as error:  # noqa: BLE001 - whatever a defect raises
        return unknown(found.past.hpa.key, f"could not be compared: {type(error).__name__}: {error}")


def unknown(key: Key, reason: str, trusted: ModelTrust | None = None) -> Compared:
    """Returns that nothing can be said of a change, and why."""
    return Compared(key=key, outcome=ChangeOutcome.UNKNOWN, reasons=(reason,), trust=trusted)


def _fitting(now: HorizontalPodAutoscaler, changed: HorizontalPodAutoscaler) -> HorizontalPodAutoscaler:
    """Returns the changed HPA with its metrics in the order of now. Raises ValueError if it is not comparable."""
    if changed.spec.scale_target_ref != now.spec.scale_target_ref:
        raise ValueError("it would scale another target, whose past is another one")
    present, new = compiled_spec(now).metrics, compiled_spec(changed).metrics
    order = [next((index for index, each in enumerate(new) if is_same(each, metric)), None) for metric in present]
    places = [index for index in order if index is not None]
    if len(places) != len(new) or len(new) != len(present) or len({*places}) != len(places):
        raise ValueError(f"it would {_other_metrics(present, new)}, and overload by other metrics is not comparable")
    metrics = changed.spec.metrics or ()
    spec = msgspec.structs.replace(changed.spec, metrics=tuple(metrics[index] for index in places))
    return msgspec.structs.replace(changed, spec=spec)


def _other_metrics(present: Sequence[CompiledMetric], new: Sequence[CompiledMetric]) -> str:
    """Returns what becomes of the metrics: "add memory and remove cpu"."""
    added, removed = _not_in(present, new), _not_in(new, present)
    parts = {
        "change the query or the kind of target of": added & removed,
        "add": added - removed,
        "remove": removed - added,
    }
    said = [f"{what} {names(sorted(labels))}" for what, labels in parts.items() if labels]
    return " and ".join(said) or "read the same metric several times"


def _not_in(others: Sequence[CompiledMetric], metrics: Sequence[CompiledMetric]) -> set[str]:
    """Returns the labels of the metrics that are not among the others."""
    return {metric.label for metric in metrics if not any(is_same(metric, each) for each in others)}


def whole(run: Rerun) -> Figures:
    """Returns the figures of all days."""
    first, last = run.chosen, run.checked
    if not last.seconds:
        return first
    return Figures(
        seconds=first.seconds + last.seconds,
        replica_seconds=first.replica_seconds + last.replica_seconds,
        above_goal=first.above_goal + last.above_goal,
        overloaded=first.overloaded + last.overloaded,
        rescales=first.rescales + last.rescales,
        flaps=first.flaps + last.flaps,
        lowest=min(first.lowest, last.lowest),
        highest=max(first.highest, last.highest),
    )


def worse(before: Figures, after: Figures) -> Iterator[str]:
    """Yields a sentence for each respect in which `after` is clearly worse.

    Overload may grow by 0.2 % of the time or a tenth, whichever is more; replica-hours by a twentieth, or by any number
    if overload falls as clearly; flaps by one a day or by half.
    """
    if more_overload(before, after):
        yield overload(before, after)
    eased = more_overload(after, before)
    if after.replica_seconds > before.replica_seconds * _COST_GROWTH and not eased:
        more = percent(after.replica_seconds / before.replica_seconds - 1) if before.replica_seconds else "some"
        yield f"{more} more replica-hours without less overload"
    if more_flaps(before, after):
        yield f"{after.flaps} flaps instead of {before.flaps}"


def overload(before: Figures, after: Figures) -> str:
    """Returns the overload of both in a clause."""
    return f"overloaded {_share(after)} of the time instead of {_share(before)}"


def more_overload(before: Figures, after: Figures) -> bool:
    """Whether overload grew clearly."""
    return _grew(before.overloaded, after.overloaded, _OVERLOAD * before.seconds, _OVERLOAD_GROWTH)


def more_flaps(before: Figures, after: Figures) -> bool:
    """Whether flaps grew clearly. What was read of two days lacks its last step, and is two days all the same."""
    return _grew(before.flaps, after.flaps, _FLAPS_A_DAY * round(before.seconds / DAY, 1), _FLAPS_GROWTH)


def _grew(before: float, after: float, by: float, growth: float) -> bool:
    return after > max(before + by, before * growth)


def _share(figures: Figures) -> str:
    return percent(figures.overloaded / figures.seconds) if figures.seconds else "0 %"


def _not_worse(before: Figures, after: Figures) -> str:
    hours = more_hours(before, after, 0.0005)
    return f"{hours}; overloaded {_share(after)} of the time, before {_share(before)}"


def more_hours(before: Figures, after: Figures, same: float) -> str:
    """Returns "12 % fewer replica-hours"; those that differ by less than the share `same` are as many."""
    change = after.replica_seconds / before.replica_seconds - 1 if before.replica_seconds else 0.0
    if abs(change) < same:
        return "as many replica-hours"
    return f"{percent(abs(change))} {'more' if change > 0 else 'fewer'} replica-hours"
