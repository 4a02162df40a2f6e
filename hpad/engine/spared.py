"""What a scale-down spares, as part of the decision (`hpad.engine.spare` makes it)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

_MOST_NAMES: Final = 3


class PodCost(NamedTuple):
    """The deletion cost that a pod gets for a scale-down."""

    pod: str
    cost: int


class Spared(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What a scale-down spares. `wanted` and `replicas` are the counts before and after the floor.

    Of the active pods, `busy` hold unfinished work, `unknown` may, and `idle` do not. `floor` is None without
    hpad.io/keep-busy. `error` says why the work of pods is unknown ("": it is known, or of single pods only).
    `costs` are the deletion costs to be written. `first` are the names of the pods that they make go, in order; empty
    where the costs are those of pods that stay, so that any of the idle pods may go. Both are empty without
    `hpad.io/scale-down-order: idle-first`, for a StatefulSet, and where all pods are equally busy.
    """

    wanted: int
    replicas: int
    busy: int
    unknown: int
    idle: int
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
