"""One sample against one goal."""

from collections.abc import Sequence
from datetime import datetime

from hpad.api.pod import Pod
from hpad.api.sample import EXTERNAL, ExternalSample, ObjectSample, PodSample, Sample
from hpad.engine.measure.per_pod import per_pod
from hpad.engine.measure.total import total
from hpad.engine.measure.usage import Unmeasurable, Usage
from hpad.model.goal import Goal
from hpad.model.tunables import Tunables

__all__ = ["Unmeasurable", "Usage", "measure"]


def measure(
    goal: Goal, sample: Sample, pods: Sequence[Pod], status_replicas: int, now: datetime, tunables: Tunables
) -> Usage:
    """Usage against the goal; raises Unmeasurable where the sample says nothing about it."""
    if goal.of_pods:
        if not isinstance(sample, PodSample):
            raise _misfit(goal, sample, PodSample)
        return per_pod(goal, sample, pods, now, tunables)
    wanted = ExternalSample if goal.type == EXTERNAL else ObjectSample
    if isinstance(sample, PodSample) or not isinstance(sample, wanted):
        raise _misfit(goal, sample, wanted)
    return total(goal, sample, pods, status_replicas, tunables.gates)


def _misfit(goal: Goal, sample: Sample, wanted: type) -> Unmeasurable:
    got = type(sample).__name__
    return Unmeasurable(f"the metric source answered a {goal.type} metric with {got}; it takes {wanted.__name__}")
