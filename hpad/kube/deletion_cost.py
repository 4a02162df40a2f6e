"""The patches of a pod that set its deletion cost, and that remove one which hpad has set."""

from typing import Any, Final

import msgspec

from hpad.api.deletion_cost import COST_SET, DELETION_COST, DeletionCost, to_annotations

MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json-patch+json"
Json = dict[str, Any]


def setting(cost: DeletionCost) -> bytes:
    """Returns the merge patch that gives a pod these annotations."""
    return msgspec.json.encode({"metadata": {"annotations": to_annotations(cost)}})


def removing(found: DeletionCost) -> bytes:
    """Returns the JSON patch that removes the mark and restores the user's cost.

    The API server refuses it with 422 if the cost or its mark is not the one found any more.
    """
    left = DeletionCost(found.restored)
    steps = [_step("test", name, text) for name, text in _present(found).items() if name in (COST_SET, DELETION_COST)]
    steps += [_step("remove", name) for name in _present(found)]
    steps += [_step("add", name, text) for name, text in _present(left).items()]
    return msgspec.json.encode(steps)


def _present(cost: DeletionCost) -> dict[str, str]:
    return {name: text for name, text in to_annotations(cost).items() if text is not None}


def _step(operation: str, annotation: str, value: str | None = None) -> Json:
    path = f"/metadata/annotations/{annotation.replace('/', '~1')}"
    return {"op": operation, "path": path} if value is None else {"op": operation, "path": path, "value": value}
