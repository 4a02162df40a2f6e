"""The patch formats of the API: JSON merge patch, JSON patch, strategic merge patch, and apply.

Strategic merge and apply use no schema here: a list is merged by the keys in `MERGE_KEYS` for its name, any other list
(such as the metrics of an HPA) is replaced.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hpad.lab.cluster import errors
from hpad.lab.cluster.resources import copied

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
ACCEPTED = (JSON, MERGE, STRATEGIC, APPLY)
MERGE_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "env": ("name",),
    "ephemeralContainers": ("name",),
    "hostAliases": ("ip",),
    "imagePullSecrets": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "port"),
    "topologySpreadConstraints": ("topologyKey",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""Candidate merge keys by name of a list; the first key that all elements have is used."""


def apply(media_type: str, target: Any, patch: Any) -> Any:
    """Returns a new value: `target` with `patch` applied; raises ApiError 400, 415 or 422."""
    if media_type == JSON:
        return _json_patch(copied(target), patch)
    if media_type not in ACCEPTED:
        raise errors.unsupported_media_type(ACCEPTED)
    if not isinstance(patch, Mapping):
        raise errors.bad_request("the patch must be a JSON object")
    merged = _merge(target, patch, by_key=media_type != MERGE)
    return _ordered(merged, target, patch) if media_type == STRATEGIC else merged


def _merge(target: Any, patch: Any, *, by_key: bool, name: str = "") -> Any:
    if isinstance(patch, Mapping):
        return _merge_objects(target if isinstance(target, Mapping) else {}, patch, by_key=by_key)
    if by_key and isinstance(patch, list) and isinstance(target, list):
        key = merge_key(name, [*target, *patch])
        if key is not None:
            return _merge_lists(target, patch, key)
    return copied(patch)


def _merge_objects(target: Mapping[str, Any], patch: Mapping[str, Any], *, by_key: bool) -> dict[str, Any]:
    result = dict(target)
    if by_key and patch.get("$patch") not in (None, "replace", "merge", "delete"):
        raise errors.without_reason(f"unknown patch type: {patch['$patch']} in map: {dict(patch)}")
    if by_key and patch.get("$patch") == "replace":
        result = {}
    for name, value in patch.items():
        if by_key and name.startswith("$"):
            continue
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merge(result.get(name), value, by_key=by_key, name=name)
    return result


def merge_key(name: str, elements: list[Any]) -> str | None:
    """Returns the field by which the elements of a list are matched; None for a list that is replaced as a whole."""
    if not elements or not all(isinstance(element, Mapping) for element in elements):
        return None
    keys = MERGE_KEYS.get(name, ())
    return next((key for key in keys if all(key in element for element in elements)), None)


def _merge_lists(target: list[Any], patch: list[Any], key: str) -> list[Any]:
    merged = {element[key]: element for element in target}
    for element in patch:
        if element.get("$patch") == "delete":
            merged.pop(element[key], None)
        else:
            merged[element[key]] = _merge(merged.get(element[key]), element, by_key=True)
    return list(merged.values())


def _ordered(merged: Any, live: Any, patch: Any, name: str = "") -> Any:
    """Sorts merged lists as a strategic merge does: elements of the patch in its order, the others in the live order.

    Source: Kubernetes 1.36, apimachinery/pkg/util/strategicpatch/patch.go: normalizeElementOrder.
    """
    if isinstance(merged, Mapping) and isinstance(patch, Mapping):
        before = live if isinstance(live, Mapping) else {}
        orders = {key: patch.get(key, patch.get(f"$setElementOrder/{key}")) for key in merged}
        return {key: _ordered(each, before.get(key), orders[key], key) for key, each in merged.items()}
    key = merge_key(name, merged) if isinstance(merged, list) and isinstance(patch, list) else None
    if key is None or not isinstance(live, list):
        return merged
    in_patch, in_live = _positions(patch, key), _positions(live, key)
    patched = sorted((each for each in merged if each[key] in in_patch), key=lambda each: in_patch[each[key]])
    others = sorted((each for each in merged if each[key] not in in_patch), key=lambda each: in_live[each[key]])
    return list(_interleaved(others, patched, key, in_live))


def _positions(elements: list[Any], key: str) -> dict[Any, int]:
    return {each[key]: index for index, each in enumerate(elements) if isinstance(each, Mapping) and key in each}


def _interleaved(others: list[Any], patched: list[Any], key: str, in_live: Mapping[Any, int]) -> Iterator[Any]:
    """Merges two lists, each in its own order; an element of `others` comes first if it precedes in the live list."""
    left, right = deque(others), deque(patched)
    while left and right:
        first, second = in_live.get(left[0][key]), in_live.get(right[0][key])
        is_before = first is not None and second is not None and first < second
        yield left.popleft() if is_before else right.popleft()
    yield from (*left, *right)


def _json_patch(document: Any, operations: Any) -> Any:
    if not isinstance(operations, list):
        raise errors.bad_request("a JSON patch must be a list of operations")
    holder = {"": document}
    for operation in operations:
        try:
            _operate(holder, operation)
        except (KeyError, IndexError, TypeError, ValueError) as problem:
            message = "the server rejected our request due to an error in our request"
            raise errors.ApiError(422, "Invalid", message, details={}) from problem
    return holder[""]


def _operate(holder: dict[str, Any], operation: Mapping[str, Any]) -> None:
    name, path = operation["op"], operation["path"]
    if name == "test":
        if _value_at(holder, path) != operation["value"]:
            raise ValueError(path)
    elif name == "remove":
        _remove(holder, path)
    elif name == "replace":
        _remove(holder, path)
        _add(holder, path, operation.get("value"))
    elif name == "add":
        _add(holder, path, operation.get("value"))
    elif name in ("move", "copy"):
        value = copied(_value_at(holder, operation["from"]))
        if name == "move":
            _remove(holder, operation["from"])
        _add(holder, path, value)
    else:
        raise ValueError(name)


def _walk(holder: Any, path: str) -> tuple[Any, str]:
    """Returns the container with the last segment of a JSON pointer, and that segment."""
    if path and not path.startswith("/"):
        raise ValueError(path)
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]
    for part in parents:
        holder = holder[int(part)] if isinstance(holder, list) else holder[part]
    return holder, last


def _value_at(holder: Any, path: str) -> Any:
    container, last = _walk(holder, path)
    return container[int(last)] if isinstance(container, list) else container[last]


def _remove(holder: Any, path: str) -> None:
    container, last = _walk(holder, path)
    if isinstance(container, list):
        del container[int(last)]
    else:
        del container[last]


def _add(holder: Any, path: str, value: Any) -> None:
    container, last = _walk(holder, path)
    if isinstance(container, list):
        container.insert(len(container) if last == "-" else int(last), value)
    else:
        container[last] = value
