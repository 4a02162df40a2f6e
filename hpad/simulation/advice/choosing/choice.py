"""Chooses the settings that would have served an HPA better.

Candidates are chosen by the first days. An HPA that is overloaded too often gets those with the least overload within
the budget; one that starts and stops replicas in turn, the cheapest that halve that; any HPA, the cheapest that are not
worse in overload and flaps. The first that holds on the last days is advised, if it is worth a change.
"""

import enum
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from hpad.engine.spec import UTILIZATION, compiled_spec
from hpad.engine.words import percent
from hpad.simulation.advice.assessment import (
    Advice,
    AdviceOptions,
    Facts,
    Figures,
    FoundFault,
    HpaFault,
    ModelTrust,
    Severity,
)
from hpad.simulation.advice.choosing.candidates import FLAPS, SHORTAGE, SettingCandidate, Situation, candidates
from hpad.simulation.advice.choosing.comparison import more_overload, whole, worse
from hpad.simulation.advice.finding.findings import causes
from hpad.simulation.advice.model.load_model import LoadModel
from hpad.simulation.advice.model.rerun import Rerun, rerun
from hpad.simulation.advice.words import per_day, share
from hpad.simulation.history import DAY

_TRIES: Final = 3
"""Candidates that are checked on the last days before there is no advice."""
_PAIRS: Final = 2
_REPLICAS: Final = 0.5
"""Replicas on average below which a saving is not worth a person's time."""
_NAMED: Final = 0.03
"""The share of the replica-hours that mending a fault has to save, where the record shows the fault already."""
_NEAR: Final = 0.03
"""Candidates that differ by less of the replica-hours are equal, and the smallest change is taken."""
_HALF: Final = 0.5
_EASED: Final = 0.6
"""The part of the overload that may be left."""
_STILL: Final = 0.75
"""What was halved on the first days has to fall to this on the last ones."""
_MORE: Final = 1.5
"""On the last days the budget may be exceeded by half."""
_RESCALES: Final = 24.0
"""Rescales a day from which on fewer of them are worth a change."""
_SHORTLY: Final = 0.005
"""A share of the time with overload that is not worth a change,"""
_SELDOM: Final = 0.002
"""and one where the record shows a fault."""
_ABOVE: Final = 0.05
"""Shares of the time above the goal that differ by less are equal."""


class Aim(enum.Enum):
    """What is looked for."""

    LOAD = "less overload"
    CALM = "fewer rescales"
    SAVING = "fewer replica-hours"


class Choice(NamedTuple):
    """An advice, how its spec did, and the fault that it mends (None: one that is found already)."""

    advice: Advice
    rerun: Rerun
    fault: FoundFault | None = None


class Tried(NamedTuple):
    """A candidate, and how it did."""

    candidate: SettingCandidate
    run: Rerun


def choose(
    model: LoadModel, facts: Facts, findings: tuple[FoundFault, ...], now: Rerun, trust: ModelTrust
) -> Choice | None:
    """Returns the best candidate; None if none is better than the spec of now, or less than a day is known."""
    if facts.seconds < DAY:
        return None
    found = Situation.of(model, facts, findings, now)
    singles = [run for each in candidates(found) if (run := _try(found, each)) is not None]
    for aim in _aims(found) if singles else ():
        every = [*singles, *_pairs(found, aim, singles)]
        for each in ranked(found, aim, every)[:_TRIES]:
            if holds(aim, found, each):
                return _choice(found, aim, each)
    return None


def _try(found: Situation, candidate: SettingCandidate) -> Tried | None:
    hpa = candidate.applied(found.model.past.hpa)
    return None if hpa is None else Tried(candidate, rerun(hpa, found.model))


def _aims(found: Situation) -> Iterator[Aim]:
    if found.overloaded:
        yield Aim.LOAD
    if found.restless:
        yield Aim.CALM
    yield Aim.SAVING


def _pairs(found: Situation, aim: Aim, singles: Sequence[Tried]) -> Iterator[Tried]:
    """Yields the best candidate that helps together with the first of each other setting, two pairs at most.

    Against overload both have to help alone. A lower minimum may save only once a higher goal asks for less.
    """
    if aim is Aim.CALM:
        return  # one window is enough
    before, options = found.now.chosen, found.model.options
    helping = [each for each in singles if _helps(aim, before, each.run.chosen, options)]
    if not helping:
        return
    best = min(helping, key=_order(aim))
    others: dict[tuple[str, ...], Tried] = {_paths(best): best}
    for each in helping if aim is Aim.LOAD else singles:
        others.setdefault(_paths(each), each)
    for other in [*others.values()][1 : 1 + _PAIRS]:
        pair = _try(found, best.candidate.joined(other.candidate))
        if pair is not None:
            yield pair


def _paths(tried: Tried) -> tuple[str, ...]:
    return tuple(change.path for change in tried.candidate.changes)


def _helps(aim: Aim, before: Figures, after: Figures, options: AdviceOptions) -> bool:
    if aim is Aim.LOAD:
        return more_overload(after, before) and _within(before, after, options.budget)
    return saved(before, after) >= _NEAR and not any(worse(before, after))


def saved(before: Figures, after: Figures) -> float:
    """Returns the share of the replica-hours that is saved."""
    return 1 - after.replica_seconds / before.replica_seconds if before.replica_seconds else 0.0


def _within(before: Figures, after: Figures, budget: float) -> bool:
    return after.replica_seconds <= before.replica_seconds * (1 + budget)


def ranked(found: Situation, aim: Aim, tried: Sequence[Tried]) -> list[Tried]:
    """Returns the candidates that reach the aim on the first days, the best first."""
    before = found.now.chosen
    fitting = [each for each in tried if _reaches(aim, found, each, before)]
    fitting.sort(key=_order(aim))
    if aim is not Aim.SAVING or not fitting:
        return fitting
    most = fitting[0].run.chosen.replica_seconds + _NEAR * before.replica_seconds
    near = [each for each in fitting if each.run.chosen.replica_seconds <= most]
    return [*sorted(near, key=_size), *fitting[len(near) :]]


def _reaches(aim: Aim, found: Situation, tried: Tried, before: Figures) -> bool:
    after, options = tried.run.chosen, found.model.options
    if aim is Aim.LOAD:
        least = _SELDOM if found.faults & SHORTAGE else _SHORTLY
        less = before.overloaded - after.overloaded >= least * before.seconds
        eased = after.overloaded <= _EASED * before.overloaded
        return less and eased and _within(before, after, options.budget) and not _flapping(before, after)
    if aim is Aim.CALM:
        calm = _calmer(before, after, _HALF)
        return calm and _within(before, after, options.budget) and not more_overload(before, after)
    return _saves(found, tried.candidate, before, after) and not any(worse(before, after))


def _flapping(before: Figures, after: Figures) -> bool:
    """Whether flaps doubled to a number that matters; some more are the price of following the load."""
    return after.flaps > before.flaps / _HALF and after.flaps * DAY >= FLAPS * after.seconds


def _calmer(before: Figures, after: Figures, part: float) -> bool:
    """Whether flaps, or all rescales where they are many, fell to this part."""
    days = before.seconds / DAY
    pairs = ((before.flaps, after.flaps, FLAPS), (before.rescales, after.rescales, _RESCALES))
    often = [(one, two) for one, two, least in pairs if one >= least * days]
    return bool(often) and all(two <= part * one for one, two in often)


def _saves(found: Situation, candidate: SettingCandidate, before: Figures, after: Figures) -> bool:
    named = bool(found.faults & {*candidate.mends})
    least = _NAMED if named else found.model.options.saving
    replicas = (before.replica_seconds - after.replica_seconds) / before.seconds if before.seconds else 0.0
    return saved(before, after) >= least and replicas >= (_REPLICAS * _HALF if named else _REPLICAS)


def _by_load(tried: Tried) -> tuple[float, ...]:
    """Orders by time with overload, then by time above the goal, in coarse steps; then by replica-hours.

    A maximum that only ends the overload would leave the HPA at its maximum.
    """
    figures = tried.run.chosen
    seconds = max(1.0, figures.seconds)
    overloaded, above = figures.overloaded / seconds // _SHORTLY, figures.above_goal / seconds // _ABOVE
    return overloaded, above, figures.replica_seconds, len(tried.candidate.changes)


def _by_cost(tried: Tried) -> tuple[float, ...]:
    return tried.run.chosen.replica_seconds, len(tried.candidate.changes)


def _order(aim: Aim) -> Callable[[Tried], tuple[float, ...]]:
    return _by_load if aim is Aim.LOAD else _by_cost


def _size(tried: Tried) -> tuple[float, float]:
    """Returns the number of changes, and how large they are together."""
    changes = tried.candidate.changes
    numbers = [
        (each.before, each.after)
        for each in changes
        if isinstance(each.before, int) and isinstance(each.after, int) and each.before
    ]
    return len(changes), sum(abs(after - before) / before for before, after in numbers)


def holds(aim: Aim, found: Situation, tried: Tried) -> bool:
    """Whether a candidate does on the last days what it did on the first ones. Without last days there is no check."""
    before, after, options = found.now.checked, tried.run.checked, found.model.options
    if not before.seconds:
        return True
    if aim is Aim.SAVING:
        named = bool(found.faults & {*tried.candidate.mends})
        least = _HALF * (_NAMED if named else options.saving)
        return saved(before, after) >= least and not any(worse(before, after))
    if more_overload(before, after) or not _within(before, after, _MORE * options.budget):
        return False
    if aim is Aim.CALM:
        busy = before.flaps * DAY >= FLAPS * before.seconds or before.rescales * DAY >= _RESCALES * before.seconds
        return not busy or _calmer(before, after, _STILL)
    rare = before.overloaded < _SHORTLY * before.seconds
    return not _flapping(before, after) and (rare or after.overloaded <= _STILL * before.overloaded)


def _choice(found: Situation, aim: Aim, tried: Tried) -> Choice:
    now, run = found.now, tried.run
    text = sentence(found, tried)
    advice = Advice(
        changes=tried.candidate.changes,
        text=text,
        before=now.chosen,
        after=run.chosen,
        checked_before=now.checked,
        checked_after=run.checked,
    )
    mends = tried.candidate.mends
    if found.faults & {*mends}:
        return Choice(advice, run)
    fault = FoundFault(mends[0], Severity.WARNING, f"{_FAULTS[mends[0]]}; {text}")
    return Choice(advice, run, fault)


_FAULTS: Final[Mapping[HpaFault, str]] = {
    HpaFault.GOAL_LOW: "the goal keeps more replicas than the load needs",
    HpaFault.GOAL_HIGH: "the goal leaves pods no room until more are ready",
    HpaFault.IDLE_MINIMUM: "the minimum keeps replicas that the load does not need",
    HpaFault.WINDOW_SHORT: "the scale-down window lets replicas go that are needed again soon after",
    HpaFault.WINDOW_USELESS: "the scale-down window keeps replicas that the load does not need",
    HpaFault.POLICY_SLOW: "policies or the window of scale-ups hold replicas back that the load needs",
    HpaFault.AT_MAXIMUM: "the maximum is below what the metrics ask for",
    HpaFault.QUEUE_SLOW: "the queue stays above its goal although replicas could be added",
}


def sentence(found: Situation, tried: Tried) -> str:
    """Returns the advice in one sentence, with the figures of all days."""
    before, after = found.figures, whole(tried.run)
    parts = [_hours(before, after), _load(found.model, before, after), _rescales(before, after)]
    if not found.now.checked.seconds:
        parts.append("not checked on other days")
    text = f"{tried.candidate.words}: {', '.join(part for part in parts if part)}"
    if HpaFault.AT_MAXIMUM in tried.candidate.mends:
        most = math.ceil(found.model.asked[-1])
        text += f"; the metrics asked for up to {most}, and do not show what pods at their limit could not serve"
    return text


def _hours(before: Figures, after: Figures) -> str:
    less = saved(before, after)
    if abs(less) < 0.005:
        return "as many replica-hours"
    return f"{percent(abs(less))} {'fewer' if less > 0 else 'more'} replica-hours"


def _load(model: LoadModel, before: Figures, after: Figures) -> str:
    metrics = compiled_spec(model.hpa).metrics
    above = "overloaded"
    if len(metrics) == 1:
        by_percent = metrics[0].kind == UTILIZATION
        above = f"above {model.levels[0]:.0f} % of the request" if by_percent else "above the present goal"
    was, will = (share(each.overloaded, each.seconds) for each in (before, after))
    if not before.overloaded and not after.overloaded:
        return f"never {above}"
    if was == will:
        return f"{above} {will} of the time as before"
    if not after.overloaded:
        return f"never {above} instead of {was} of the time"
    return f"{above} {will} of the time instead of {was}"


def _rescales(before: Figures, after: Figures) -> str:
    """Returns the rescales a day, where they changed by half and are worth a word."""
    most, least = max(before.rescales, after.rescales), min(before.rescales, after.rescales)
    if most * DAY < FLAPS * before.seconds or least > _HALF * most:
        return ""
    was, will = (per_day(each.rescales, each.seconds) for each in (before, after))
    return f"{will} rescales a day instead of {was}"


def with_fault(findings: tuple[FoundFault, ...], chosen: Choice) -> tuple[FoundFault, ...]:
    """Returns the faults with the one that only the advice shows, unless one of them explains it."""
    return findings if chosen.fault is None else causes((*findings, chosen.fault))
