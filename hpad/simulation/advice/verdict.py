"""One line on an HPA: what matters most."""

from typing import Final

from hpad.engine.words import replicas
from hpad.simulation.advice.assessment import Facts, Level, ModelTrust
from hpad.simulation.advice.choosing.choice import Choice
from hpad.simulation.advice.faults import FoundFault, HpaFault, Severity
from hpad.simulation.advice.words import days, often, share
from hpad.simulation.history import DAY

LONGEST: Final = 100
"""Characters of a line, where its parts allow it."""
_MUCH: Final = 0.05
"""The share of the time above goal from which on an HPA without a fault, whose load moves fast, is not praised."""
_WASTE: Final = frozenset({HpaFault.IDLE_MINIMUM, HpaFault.GOAL_LOW, HpaFault.WINDOW_USELESS, HpaFault.WINDOW_SHORT})
"""Faults of which the advice that mends them says all that there is to say."""


def of(facts: Facts, findings: tuple[FoundFault, ...], chosen: Choice | None, trust: ModelTrust) -> str:
    """Returns the line: the most severe fault, with the change that mends it; the advice; or that all is well."""
    worst = next((each for each in findings if each.severity is not Severity.NOTE), None)
    if worst is None and chosen is None:
        return _calm(facts, findings, trust)
    if chosen is None:
        assert worst is not None
        return worst.brief or worst.text
    if worst is None or (worst.severity is Severity.WARNING and worst.fault in _WASTE):
        return chosen.advice.text
    return _with_change(worst.brief or worst.text, chosen)


def _with_change(fault: str, chosen: Choice) -> str:
    """Returns the fault and, where the line has room, the changes of the advice, which its text begins with."""
    both = f"{fault}; advice: {chosen.advice.text.partition(':')[0]}"
    return both if len(both) <= LONGEST else fault


def _calm(facts: Facts, findings: tuple[FoundFault, ...], trust: ModelTrust) -> str:
    if not facts.seconds:
        return "no replica count is known in this time"
    if facts.above_goal is None:
        return f"its metrics are not readable: {_counts(facts)}, {_rescales(facts)}; nothing else is known"
    well = facts.above_goal < _MUCH * facts.seconds
    begin = f"{'does its job' if well else 'no fault found'}: {_counts(facts)}"
    if facts.measured < DAY:
        return f"{begin}; only {days(facts.measured)} are known, a day is needed to tell idle replicas"
    above = (
        f"above goal {share(facts.above_goal, facts.seconds)} of the time" if facts.above_goal else "never above goal"
    )
    parts = [begin, above, _rescales(facts)]
    if trust.level is not Level.POOR and not findings:
        parts.append("no better settings found")
    while len(line := ", ".join(parts)) > LONGEST:
        parts.pop()
    return line


def _counts(facts: Facts) -> str:
    if facts.lowest == facts.highest:
        return f"{replicas(facts.highest)} all the time"
    return f"{facts.lowest} to {replicas(facts.highest)}"


def _rescales(facts: Facts) -> str:
    if not facts.rescales:
        return "no rescales"
    return often(facts.rescales, "rescale", facts.seconds)
