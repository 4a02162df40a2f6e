"""Chooses the settings that would have served an HPA better."""

from typing import NamedTuple

from hpad.simulation.advice.assessment import Advice, Facts, ModelTrust
from hpad.simulation.advice.faults import FoundFault, HpaFault
from hpad.simulation.advice.rerun import LoadModel, Rerun


class Choice(NamedTuple):
    """An advice, how its spec did, and the fault that it mends (None: one that is found already)."""

    advice: Advice
    rerun: Rerun
    fault: FoundFault | None = None


def choose(
    model: LoadModel, facts: Facts, findings: tuple[FoundFault, ...], now: Rerun, trust: ModelTrust
) -> Choice | None:
    """Returns the best candidate; None if none is better than the spec of now."""
    return None


def with_fault(findings: tuple[FoundFault, ...], chosen: Choice) -> tuple[FoundFault, ...]:
    """Returns the faults with the one that only the advice shows."""
    known: set[HpaFault] = {each.fault for each in findings}
    return findings if chosen.fault is None or chosen.fault.fault in known else (*findings, chosen.fault)
