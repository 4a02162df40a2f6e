"""The deletion cost of a pod, and the marks on pods whose cost hpad has set.

hpad sets a cost together with the annotation `COST_SET`, which says what it wrote and when. A pod with this annotation
is marked. `COST_BEFORE` holds the cost that a user had set before; a pod that had none does not get it.
Source: KEP-2255; Kubernetes 1.36, pkg/apis/core/helper: GetDeletionCostFromPodAnnotations.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

import msgspec

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
COST_SET: Final = "hpad.io/deletion-cost-set"
"""The annotation that marks a pod: the cost that hpad wrote, a space, and the time (RFC 3339)."""
COST_BEFORE: Final = "hpad.io/deletion-cost-before"
_COST: Final = re.compile(r"(?P<sign>-0*|(?!0.))(?P<digits>[0-9]{1,10})", re.ASCII)
_COSTS: Final = range(-(2**31), 2**31)


class DeletionCost(msgspec.Struct, frozen=True, gc=False):
    """The annotations of a pod about its deletion cost, as text; None where there is none.

    `text` is the cost, `mark` is `COST_SET`, `before` is `COST_BEFORE`.
    """

    text: str | None = None
    mark: str | None = None
    before: str | None = None

    @property
    def users(self) -> str | None:
        """The text that a user has set; None for none. A cost that differs from what hpad wrote is a user's."""
        if self.mark is None or self.text != self.mark.partition(" ")[0]:
            return self.text
        return self.before

    @property
    def restored(self) -> str | None:
        """The text to be left without the mark. The API server accepts no invalid cost, which would count as 0."""
        return self.users if is_valid(self.users) else None


def set_by_hpad(found: DeletionCost | None, cost: int, at: datetime) -> DeletionCost:
    """Returns the annotations of a pod with these ones after hpad has set its cost."""
    mark = f"{cost} {at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return DeletionCost(str(cost), mark, None if found is None else found.users)


def of_annotations(annotations: Mapping[str, str]) -> DeletionCost | None:
    """Returns the deletion cost in the annotations of a pod; None where there is none."""
    found = [annotations.get(name) for name in (DELETION_COST, COST_SET, COST_BEFORE)]
    return DeletionCost(*found) if any(text is not None for text in found) else None


def to_annotations(cost: DeletionCost) -> dict[str, str | None]:
    """Returns each annotation that a deletion cost consists of, None for one that is not there."""
    return {DELETION_COST: cost.text, COST_SET: cost.mark, COST_BEFORE: cost.before}


def value(text: str | None) -> int:
    """Returns the cost as the ReplicaSet controller reads it: 0 for none and for an invalid one."""
    return _number(text) or 0


def is_valid(text: str | None) -> bool:
    """Whether the API server accepts this cost."""
    return _number(text) is not None


def _number(text: str | None) -> int | None:
    """Returns a 32-bit integer. A plus sign, and leading zeros of one that is not negative, make it invalid."""
    found = None if text is None else _COST.fullmatch(text)
    if found is None:
        return None
    number = int(found["digits"]) * (-1 if found["sign"] else 1)
    return number if number in _COSTS else None
