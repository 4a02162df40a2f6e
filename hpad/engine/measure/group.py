"""Which pods count: the readiness rules of the HPA (Kubernetes documentation, "Algorithm details")."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from hpad.api.pod import Pod
from hpad.api.sample import PodValue
from hpad.model.tunables import Tunables

_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)


class Groups(msgspec.Struct, frozen=True):
    """`counted`: pod name -> value of every sample that counts (one of a pod nobody listed included).

    `ready` pods have a value that counts; the names of the others: `unready` (pending, or starting), `missing`
    (without a value) and `ignored` (being deleted, or failed).
    """

    counted: dict[str, int]
    ready: int
    unready: list[str]
    missing: list[str]
    ignored: list[str]


def group(
    pods: Sequence[Pod], values: Mapping[str, PodValue], is_cpu: bool, now: datetime, tunables: Tunables
) -> Groups:
    """Sort pods into those that count and those that don't; only CPU is doubted while a pod starts."""
    counted = {name: value.value for name, value in values.items()}
    ready, unready, missing, ignored = 0, [], [], []
    gone = ("Failed", "Succeeded") if tunables.gates.HPASucceededPodsIgnored else ("Failed",)
    for pod in pods:
        name = pod.name
        if pod.deleted or pod.phase in gone:
            ignored.append(name)
        elif pod.phase == "Pending":
            unready.append(name)
        elif (value := values.get(name)) is None:
            missing.append(name)
        elif is_cpu and _starts(pod, value, now, tunables):
            unready.append(name)
        else:
            ready += 1
    for name in ignored:
        counted.pop(name, None)
    for name in unready:
        counted.pop(name, None)
    return Groups(counted, ready, unready, missing, ignored)


def _starts(pod: Pod, value: PodValue, now: datetime, tunables: Tunables) -> bool:
    """Whether the pod's CPU may still be that of its start.

    Within the CPU initialization period a sample counts only if the pod is ready and the sample's whole window lies
    after it became so; later only a pod that has never been ready is doubted.
    """
    start, state = pod.start_time, pod.ready
    if start is None or state is None:
        return True
    since = pod.ready_since or _NEVER
    # What lies between two dates is always a duration; a date with a duration added may lie beyond all dates.
    if now - start < tunables.cpu_initialization_period:
        return state == "False" or value.timestamp - since < value.window
    return state == "False" and since - start < tunables.initial_readiness_delay
