"""What a scale-down spares, and the deletion costs that make a ReplicaSet remove idle pods first, with few writes.

A ReplicaSet removes first the pods that are not scheduled, pending or not ready, whatever their costs are, and then
those with the lowest cost (0 without the annotation `controller.kubernetes.io/pod-deletion-cost`). Source: Kubernetes
1.36, pkg/controller/controller_utils.go: ActivePodsWithRanks.Less, and KEP-2255.

Either the pods that shall go get costs below those of all others, or the busy pods get one above them. The first needs
no second write where these pods are removed. Costs that users have set decide between pods that are equally busy.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from hpad.api.pod import Pod

LOWEST: Final = -(2**31)
HIGHEST: Final = 2**31 - 1
MOST: Final = 200
"""The largest number of costs for one scale-down: each is a request."""
_NEVER: Final = datetime(1, 1, 1, tzinfo=UTC)
PENDING: Final = "Pending"
_PHASES: Final = {PENDING: 0, "Unknown": 1}
_MOST_NAMES: Final = 3


class PodCost(NamedTuple):
    """The deletion cost that a pod gets for a scale-down."""

    pod: str
    cost: int


class Spared(
    msgspec.Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    omit_defaults=True,
    rename={"wanted": "before", "replicas": "after"},
):
    """What a scale-down spares. `wanted` and `replicas` are the counts before and after the floor.

    Of the active pods, `busy` hold unfinished work, `unknown` may, and `idle` do not. `floor` is None without
    hpad.io/keep-busy. `error` says why the work of pods is unknown ("": it is known, or of single pods only).
    Where a source counts the busy pods and does not know which they are, it says how many at most.
    `costs` are the deletion costs to be written. `first` are the names of the pods that they make go, in order, and of
    pending ones; else empty where the costs are those of pods that stay, so that any of the idle pods may go. Both are
    empty without `hpad.io/scale-down-order: idle-first`, for a StatefulSet, and where all pods are equally busy and
    none is pending.
    """

    wanted: int
    replicas: int
    busy: int
    unknown: int
    idle: int
    most_busy: int | None = None
    floor: int | None = None
    error: str = ""
    first: tuple[str, ...] = ()
    costs: tuple[PodCost, ...] = ()

    @property
    def held(self) -> bool:
        """Whether the floor keeps pods that would have gone."""
        return self.replicas > self.wanted

    @property
    def holding(self) -> str:
        """The clause that gives the pods that count as busy, such as "3 pods hold unfinished work and 1 may"."""
        if self.error:
            return f"it is unknown which pods hold unfinished work ({self.error})"
        if self.most_busy is not None:
            verb = "holds" if self.most_busy == 1 else "hold"
            return f"at most {self.most_busy} of {self.busy + self.unknown} pods {verb} unfinished work, unknown which"
        busy = f"{self.busy} pod{' holds' if self.busy == 1 else 's hold'} unfinished work"
        if not self.unknown:
            return busy
        may = f"{self.unknown} pod{'' if self.unknown == 1 else 's'} may"
        return f"{busy} and {may.replace(' pods', '')}" if self.busy else f"{may} hold unfinished work"

    @property
    def order(self) -> str:
        """The clause that says which pods go first; "" where that is left to the controller of the target."""
        if self.first:
            return f"the pods with the least work go first ({_named(self.first)})"
        if self.costs:
            return f"idle pods go first, and these stay: {_named([each.pod for each in self.costs])}"
        return ""


def _named(pods: Sequence[str]) -> str:
    more = len(pods) - _MOST_NAMES
    return ", ".join(pods[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


class Work(NamedTuple):
    """The unfinished work of a pod: its amount, in milli-units of the metric, and whether that makes it busy."""

    amount: int = 0
    busy: bool = False


def in_order(pods: Sequence[Pod], work: Mapping[str, Work]) -> list[Pod]:
    """Returns the pods in the order in which they shall go: idle ones first, those with unknown work last.

    Of equally busy ones, the order is that of a ReplicaSet: not running or not ready, the user's cost, the youngest.
    """
    return sorted(pods, key=lambda pod: (*_burden(pod, work), *_own_rank(pod)))


def _burden(pod: Pod, work: Mapping[str, Work]) -> tuple[int, int]:
    known = work.get(pod.name)
    if known is None:
        return 2, 0
    return (1, known.amount) if known.busy else (0, 0)


def _own_rank(pod: Pod) -> tuple[Any, ...]:
    age = pod.start_time or _NEVER
    return _PHASES.get(pod.phase, 2), pod.ready == "True", pod.users_cost, -(age - _NEVER).total_seconds(), pod.name


def costs(pods: Sequence[Pod], work: Mapping[str, Work], going: Sequence[Pod]) -> tuple[PodCost, ...]:
    """Returns the costs with which exactly the pods `going`, the first ones `in_order`, are removed first.

    None where all pods are equally busy and none is pending: then it does not matter which of them go. At most `MOST`.

    A pending pod goes first whatever its cost is. One that has started since hpad saw it may work by now: it gets no
    cost below the others, and as many more idle pods get one, or it gets one above them as a busy pod does.
    """
    names = {pod.name for pod in going}
    started = [pod for pod in in_order(pods, work) if pod.phase != PENDING]
    lowered = [pod for pod in started[: len(going)] if pod.name in names or _burden(pod, work)[0] == 0]
    chosen = {pod.name for pod in lowered}
    staying = [pod for pod in pods if pod.name not in chosen]
    if not staying or not lowered or (len(started) == len(pods) and len({_burden(pod, work) for pod in pods}) == 1):
        return ()
    idle = [pod for pod in started if _burden(pod, work)[0] == 0]
    kept = [pod for pod in staying if pod.phase == PENDING or _burden(pod, work)[0] > 0]
    # A cost above the others has to be removed again, one below is gone with its pod.
    highest = max((pod.users_cost for pod in idle), default=HIGHEST)
    if len(going) <= len(idle) and 2 * len(kept) < len(going) and highest < HIGHEST:
        return tuple([PodCost(pod.name, highest + 1) for pod in kept if pod.users_cost <= highest])[:MOST]
    return _below(lowered, staying)[:MOST]


def _below(going: Sequence[Pod], staying: Sequence[Pod]) -> tuple[PodCost, ...]:
    """Each cost differs: if fewer pods are removed than planned, the first ones are."""
    least = min(pod.users_cost for pod in staying)
    base = max(LOWEST, least - len(going))
    lowered = [PodCost(pod.name, base + place) for place, pod in enumerate(going)]
    # Only a user's cost near the smallest one leaves no room below it.
    raised = [PodCost(pod.name, base + len(going)) for pod in staying if pod.users_cost < base + len(going)]
    return (*raised, *lowered)
