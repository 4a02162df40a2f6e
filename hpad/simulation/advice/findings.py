"""The faults that the facts of an HPA show."""

from hpad.simulation.advice.assessment import Facts, ModelTrust
from hpad.simulation.advice.faults import FoundFault, HpaFault, Severity
from hpad.simulation.advice.past import HpaPast
from hpad.simulation.advice.rerun import Rerun


def found(past: HpaPast, facts: Facts, now: Rerun | None, trust: ModelTrust) -> tuple[FoundFault, ...]:
    """Returns the faults, the most severe first."""
    spec = past.hpa.spec
    if spec.min_replicas == spec.max_replicas:
        text = f"minReplicas and maxReplicas are both {spec.max_replicas}, so it never scales"
        return (FoundFault(HpaFault.MINIMUM_IS_MAXIMUM, Severity.WARNING, text),)
    return ()
