"""Faults of an HPA that does not come to rest: flapping, and windows that are too short."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from hpad.simulation.advice import rescales
from hpad.simulation.advice.assessment import FoundFault, HpaFault, Severity
from hpad.simulation.advice.finding.case import Case
from hpad.simulation.advice.words import UNKNOWN_LOAD, amount_of_load, often, rounded
from hpad.simulation.history import is_total

TEETH: Final = 8
"""Turns of a sawtooth, up and down: fewer are what a restless hour or a release looks like."""
TEETH_PER_DAY: Final = 12
"""Turns of all sawteeth: fewer cost nothing worth a change."""
REGRETS_PER_DAY: Final = 6
"""Scale-downs that were needed again soon after: one in four hours."""
REGRETTED: Final = 1 / 3
"""The share of all scale-downs from which on they are the rule."""
SWING: Final = 0.3
"""A load whose mean over five minutes moves by this part of a sawtooth has a part in it."""
ASKED: Final = 0.6
"""A load whose mean moves by this part of a sawtooth asks for it."""
_SMOOTH: Final = 300.0
_DEFAULT_WINDOW: Final = 300.0
_NEIGHBOURS: Final = 0.1
"""The part of the count, or one replica, by which a count goes up and down between the two that bracket a load."""


def restless(case: Case) -> Iterator[FoundFault]:
    """Yields flapping, and a window that is too short.

    A sawtooth under a load that stays is flapping. Where the load itself goes down and up, the window of scale-downs
    should have bridged it. Where a load that moves a little becomes a long sawtooth, both are named.
    """
    teeth, tooth, swing = sum(map(len, rescales.series(case.legs))), case.facts.sawtooth, _swing(case)
    often = tooth is not None and tooth.rescales >= TEETH and case.per_day(teeth) >= TEETH_PER_DAY
    asked = swing is not None and swing >= ASKED
    # Replicas that come and go with a load, and are not missed in between, or none at all: that is scaling.
    flapping = often and (_is_regretted(case) or not asked) and tooth is not None and tooth.lowest > 0
    if _is_regretted(case) and (asked or (swing or 0) >= SWING or (not flapping and _window(case) < _DEFAULT_WINDOW)):
        yield _short(case)
    if flapping:
        yield _flapping(case, teeth)


def _is_regretted(case: Case) -> bool:
    """Whether scale-downs are needed again soon after as a rule."""
    downs, regretted = len(rescales.scale_downs(case.legs)), case.facts.regretted
    return case.per_day(regretted) >= REGRETS_PER_DAY and regretted >= max(REGRETTED * downs, TEETH / 2)


def _flapping(case: Case, teeth: int) -> FoundFault:
    tooth = case.facts.sawtooth
    assert tooth is not None
    range_ = f"between {tooth.lowest} and {tooth.highest} replicas"
    brief = f"up and down {often(teeth, 'time', case.facts.seconds)} {range_}"
    length = (tooth.end - tooth.begin).total_seconds()
    text = f"{brief}, the longest sawtooth {tooth.rescales} turns in {rounded(length)}"
    needed = [load for load in _loads(case) if load is not None]
    if case.facts.hides_load:
        text += f"; {UNKNOWN_LOAD}"
    elif needed:
        text += f"; the mean load then needed {amount_of_load(min(needed))} to {amount_of_load(max(needed))} replicas"
    if _window(case) < _DEFAULT_WINDOW:
        text += f", and the scale-down window is {rounded(_window(case))}"
    near = tooth.highest - tooth.lowest <= max(1, _NEIGHBOURS * tooth.highest)
    return FoundFault(HpaFault.FLAPPING, _severity(case) if near else Severity.WARNING, text, brief)


def _short(case: Case) -> FoundFault:
    downs, regretted = len(rescales.scale_downs(case.legs)), case.facts.regretted
    window, each = rounded(_window(case)), often(regretted, "time", case.facts.seconds)
    brief = f"the scale-down window of {window} is short: {regretted} of {downs} scale-downs were soon undone"
    text = f"{brief}, within ten minutes, {each}; a longer window would have kept the replicas"
    return FoundFault(HpaFault.WINDOW_SHORT, _severity(case), text, brief)


def _severity(case: Case) -> Severity:
    """Returns how much removals that are regretted matter.

    A backlog answers to the count: with fewer workers it grows until one more is asked for, with any window. Where its
    rates are not known, nothing shows that a longer window would have kept them.
    """
    unknown = (is_total(metric) and name not in case.past.queues for name, metric in case.metrics.items())
    return Severity.NOTE if all(unknown) else Severity.WARNING


def _window(case: Case) -> float:
    behavior = case.spec.behavior
    window = None if behavior is None else behavior.down.window
    return _DEFAULT_WINDOW if window is None else window.total_seconds()


def _load(case: Case) -> Sequence[float | None]:
    """Returns the load in replicas; where only the length of a queue is known, what that asks for."""
    return case.record.load if case.facts.idle is None else case.record.need


def _loads(case: Case) -> list[float | None]:
    """Returns the mean load around each moment of the longest sawtooth, in replicas."""
    tooth, record = case.facts.sawtooth, case.record
    if tooth is None or not record.step:
        return []
    begin, end = tooth.begin.timestamp(), tooth.end.timestamp()
    inside = [load for at, load in zip(record.begins, _load(case), strict=True) if begin <= at <= end]
    width = max(1, round(_SMOOTH / record.step))
    parts = [inside[at : at + width] for at in range(max(0, len(inside) - width + 1))]
    means = [[load for load in part if load is not None] for part in parts]
    return [sum(known) / len(known) if known else None for known in means]


def _swing(case: Case) -> float | None:
    """Returns how much of a tooth the load asks for; None where that is not known, or without a sawtooth.

    Without a sawtooth the turns are apart, and the load was there for each.
    """
    tooth = case.facts.sawtooth
    if tooth is None:
        return _moved(case)
    known = sorted(load for load in _loads(case) if load is not None)
    if not known:
        return None
    return (known[-1 - len(known) // 20] - known[len(known) // 20]) / (tooth.highest - tooth.lowest)


def _moved(case: Case) -> float | None:
    """Returns the median change of the load between a scale-down and the scale-up after it, per change of the count."""
    at = dict(zip(case.record.begins, _load(case), strict=True))
    moved = [
        (up - down) / (two.after - two.before)
        for one, two in itertools.pairwise(case.legs)
        if not one.up and two.up
        if (down := at.get(one.begin)) is not None and (up := at.get(two.begin)) is not None
    ]
    return sorted(moved)[len(moved) // 2] if moved else None
