"""One line on an HPA: what matters most."""

from hpad.simulation.advice.assessment import Facts, ModelTrust
from hpad.simulation.advice.choice import Choice
from hpad.simulation.advice.faults import FoundFault


def of(facts: Facts, findings: tuple[FoundFault, ...], chosen: Choice | None, trust: ModelTrust) -> str:
    """Returns the line."""
    if chosen is not None:
        return chosen.advice.text
    return findings[0].text if findings else "nothing is wrong"
