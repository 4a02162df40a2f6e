"""Chooses the settings that would have served an HPA better.

Candidates are chosen by the first days. An HPA that is overloaded too often gets those with the least overload within
the budget; one that starts and stops replicas in turn, the cheapest that halve that; any HPA, the cheapest that are not
worse in overload and flaps (`aims.py`). The first that holds on the last days is advised, if it is worth a change.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from hpad.engine.spec import UTILIZATION, compiled_spec
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
from hpad.simulation.advice.choosing.aims import SHORTLY, Aim, Tried, lacks, lacks_later, saved, within
from hpad.simulation.advice.choosing.candidates import FLAPS, SettingCandidate, Situation, candidates
from hpad.simulation.advice.choosing.comparison import more_hours, more_overload, whole, worse
from hpad.simulation.advice.finding import causes
from hpad.simulation.advice.model.load_model import LoadModel
from hpad.simulation.advice.model.rerun import Rerun, rerun
from hpad.simulation.advice.words import per_day, share
from hpad.simulation.history import DAY

UNTRUSTED: Final = "its past does not show what other settings would do (see trust)"
_TRIES: Final = 3
"""Candidates that are checked on the last days before there is no advice."""
_PAIRS: Final = 2
_NEAR: Final = 0.03
"""Candidates that differ by less of the replica-hours are equal, and the smallest change is taken."""
_HALF: Final = 0.5
_ABOVE: Final = 0.05
"""Shares of the time above the goal that differ by less are equal."""


class Choice(NamedTuple):
    """An advice, how its spec did, and the fault that it mends (None: one that is found already)."""

    advice: Advice
    rerun: Rerun
    fault: FoundFault | None = None


def choose(
    model: LoadModel, facts: Facts, findings: tuple[FoundFault, ...], now: Rerun, trust: ModelTrust
) -> Choice | str:
    """Returns the best candidate, or why none is advised: what the one lacks that came nearest to it."""
    if facts.seconds < DAY:
        return "less than a day is known; run it again when there is one"
    if not trust.suffices:
        return UNTRUSTED
    found = Situation.of(model, facts, findings, now)
    singles = [run for each in candidates(found) if (run := _try(found, each)) is not None]
    if not singles:
        return _untried(found)
    failed, refused = [], []
    for aim in _aims(found):
        every = [*singles, *_pairs(found, aim, singles)]
        fitting = ranked(found, aim, every)
        for each in fitting[:_TRIES]:
            if not lacks_later(aim, found, each):
                return _choice(found, each)
        if fitting:
            failed.append(_failed(aim, found, fitting[0]))
        else:
            refused.append(_refused(aim, found, every))
    return [*failed, *refused][0]


def _untried(found: Situation) -> str:
    """Returns why there is no candidate."""
    if found.restless and found.has_backlog:
        return "which window suits a queue is not known without its rates, which the file of --series can give"
    if HpaFault.MINIMUM_IS_MAXIMUM in found.faults:
        return "which range it may have is not in its past"
    if HpaFault.GOAL_LOW in found.faults:
        return "only a goal of CPU is raised, and only where surges stay within the request"
    return "its past calls for no other goal, bound, window or policy"


def _refused(aim: Aim, found: Situation, tried: Sequence[Tried]) -> str:
    """Returns what the best of the candidates lacks; of those that may mend a fault, if there are any."""
    mending = [each for each in tried if found.faults & {*each.candidate.mends}]
    best = min(mending or tried, key=_by_calm if aim is Aim.CALM else _order(aim))
    lacking = f"{best.candidate.words}: {lacks(aim, found, best)}"
    if len(tried) == 1:
        return f"one change was tried, and would not serve better: {lacking}"
    return f"{len(tried)} changes were tried, and the best would not serve better: {lacking}"


def _failed(aim: Aim, found: Situation, best: Tried) -> str:
    """Returns what a candidate lacks on the last days."""
    lacking = f"{best.candidate.words}: {lacks_later(aim, found, best)}"
    return f"what served better on the first days did not on the last: {lacking}"


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
        return more_overload(after, before) and within(before, after, options.budget)
    return saved(before, after) >= _NEAR and not any(worse(before, after))


def ranked(found: Situation, aim: Aim, tried: Sequence[Tried]) -> list[Tried]:
    """Returns the candidates that reach the aim on the first days, the best first."""
    before = found.now.chosen
    fitting = [each for each in tried if not lacks(aim, found, each)]
    fitting.sort(key=_order(aim))
    if aim is not Aim.SAVING or not fitting:
        return fitting
    most = fitting[0].run.chosen.replica_seconds + _NEAR * before.replica_seconds
    near = [each for each in fitting if each.run.chosen.replica_seconds <= most]
    return [*sorted(near, key=_size), *fitting[len(near) :]]


def _by_load(tried: Tried) -> tuple[float, ...]:
    """Orders by time with overload, then by time above the goal, in coarse steps; then by replica-hours.

    A maximum that only ends the overload would leave the HPA at its maximum.
    """
    figures = tried.run.chosen
    seconds = max(1.0, figures.seconds)
    overloaded, above = figures.overloaded / seconds // SHORTLY, figures.above_goal / seconds // _ABOVE
    return overloaded, above, figures.replica_seconds, len(tried.candidate.changes)


def _by_cost(tried: Tried) -> tuple[float, ...]:
    return tried.run.chosen.replica_seconds, len(tried.candidate.changes)


def _by_calm(tried: Tried) -> tuple[float, ...]:
    return tried.run.chosen.flaps, tried.run.chosen.rescales


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


def _choice(found: Situation, tried: Tried) -> Choice:
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
    parts = [more_hours(before, after, 0.005), _load(found.model, before, after), _rescales(before, after)]
    if not found.now.checked.seconds:
        parts.append("not checked on other days")
    text = f"{tried.candidate.words}: {', '.join(part for part in parts if part)}"
    if HpaFault.AT_MAXIMUM in tried.candidate.mends:
        most = math.ceil(found.model.asked[-1])
        text += f"; the metrics asked for up to {most}, and do not show what pods at their limit could not serve"
    return text


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
