"""What is looked for in a candidate, and what it lacks of that: on the first days, by which it is chosen, and the last.

What a candidate lacks is a clause for a person, "" if it lacks nothing: the choice and its reasons are one.
"""

import enum
from typing import Final, NamedTuple

from hpad.engine.words import percent
from hpad.simulation.advice.assessment import Figures
from hpad.simulation.advice.choosing.candidates import FLAPS, SHORTAGE, SettingCandidate, Situation
from hpad.simulation.advice.choosing.comparison import more_overload, overload, worse
from hpad.simulation.advice.model.rerun import Rerun
from hpad.simulation.history import DAY

SHORTLY: Final = 0.005
"""A share of the time with overload that is not worth a change,"""
_SELDOM: Final = 0.002
"""and one where the record shows a fault."""
_REPLICAS: Final = 0.5
"""Replicas on average below which a saving is not worth a person's time."""
_NAMED: Final = 0.03
"""The share of the replica-hours that mending a fault has to save, where the record shows the fault already."""
_HALF: Final = 0.5
_EASED: Final = 0.6
"""The part of the overload that may be left."""
_STILL: Final = 0.75
"""What was halved on the first days has to fall to this on the last ones."""
_MORE: Final = 1.5
"""On the last days the budget may be exceeded by half."""
_RESCALES: Final = 24.0
"""Rescales a day from which on fewer of them are worth a change."""


class Aim(enum.Enum):
    """What is looked for."""

    LOAD = "less overload"
    CALM = "fewer rescales"
    SAVING = "fewer replica-hours"


class Tried(NamedTuple):
    """A candidate, and how it did."""

    candidate: SettingCandidate
    run: Rerun


def saved(before: Figures, after: Figures) -> float:
    """Returns the share of the replica-hours that is saved."""
    return 1 - after.replica_seconds / before.replica_seconds if before.replica_seconds else 0.0


def lacks(aim: Aim, found: Situation, tried: Tried) -> str:
    """Returns what a candidate lacks on the first days."""
    before, after, budget = found.now.chosen, tried.run.chosen, found.model.options.budget
    if aim is Aim.SAVING:
        return _little(found, tried, before, after) or ", ".join(worse(before, after))
    if aim is Aim.CALM:
        if not _calmer(before, after, _HALF):
            return _rescales(before, after)
        return _beyond(before, after, budget) or (overload(before, after) if more_overload(before, after) else "")
    least = _SELDOM if found.faults & SHORTAGE else SHORTLY
    less = before.overloaded - after.overloaded >= least * before.seconds
    if not less or after.overloaded > _EASED * before.overloaded:
        return overload(before, after)
    return _beyond(before, after, budget) or _flapping(before, after)


def lacks_later(aim: Aim, found: Situation, tried: Tried) -> str:
    """Returns what a candidate lacks on the last days of what it did on the first. Without last days it is nothing."""
    before, after = found.now.checked, tried.run.checked
    if not before.seconds:
        return ""
    if aim is Aim.SAVING:
        return _little(found, tried, before, after, _HALF) or ", ".join(worse(before, after))
    if more_overload(before, after):
        return overload(before, after)
    if beyond := _beyond(before, after, _MORE * found.model.options.budget):
        return beyond
    if aim is Aim.CALM:
        busy = before.flaps * DAY >= FLAPS * before.seconds or before.rescales * DAY >= _RESCALES * before.seconds
        return _rescales(before, after) if busy and not _calmer(before, after, _STILL) else ""
    rare = before.overloaded < SHORTLY * before.seconds
    if not rare and after.overloaded > _STILL * before.overloaded:
        return overload(before, after)
    return _flapping(before, after)


def within(before: Figures, after: Figures, budget: float) -> bool:
    """Whether a candidate takes no more replica-hours than the budget allows."""
    return after.replica_seconds <= before.replica_seconds * (1 + budget)


def _beyond(before: Figures, after: Figures, budget: float) -> str:
    if within(before, after, budget):
        return ""
    return f"{percent(-saved(before, after))} more replica-hours, where the budget is {percent(budget)}"


def _flapping(before: Figures, after: Figures) -> str:
    """Names flaps that doubled to a number that matters; some more are the price of following the load."""
    if after.flaps > before.flaps / _HALF and after.flaps * DAY >= FLAPS * after.seconds:
        return f"{after.flaps} flaps instead of {before.flaps}"
    return ""


def _calmer(before: Figures, after: Figures, part: float) -> bool:
    """Whether flaps, or all rescales where they are many, fell to this part."""
    days = before.seconds / DAY
    pairs = ((before.flaps, after.flaps, FLAPS), (before.rescales, after.rescales, _RESCALES))
    often = [(one, two) for one, two, least in pairs if one >= least * days]
    return bool(often) and all(two <= part * one for one, two in often)


def _rescales(before: Figures, after: Figures) -> str:
    return f"{after.rescales} rescales instead of {before.rescales}, {after.flaps} flaps instead of {before.flaps}"


def _little(found: Situation, tried: Tried, before: Figures, after: Figures, part: float = 1.0) -> str:
    """Names a saving that is not worth a change."""
    named = bool(found.faults & {*tried.candidate.mends})
    least = part * (_NAMED if named else found.model.options.saving)
    replicas = (before.replica_seconds - after.replica_seconds) / before.seconds if before.seconds else 0.0
    enough = part < 1 or replicas >= (_REPLICAS * _HALF if named else _REPLICAS)
    less = saved(before, after)
    if less >= least and enough:
        return ""
    return f"{percent(less)} fewer replica-hours" if less > 0 else "no fewer replica-hours"
