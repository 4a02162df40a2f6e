"""The patch formats of the API: JSON merge patch, JSON patch, and strategic merge by known keys.

Strategic merge and apply know no per-kind schema here: a list is merged by the keys that `MERGE_KEYS` gives for
its name, any other list (the metrics of an HPA among them) is replaced. That is what the served kinds need.
"""

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hpad.lab.cluster import errors

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
"""By which of these fields, the first that all elements carry, the elements of a list of this name are matched."""


def apply(media_type: str, target: Any, patch: Any) -> Any:
    """`target` with `patch` applied, as a new value; raises ApiError 400, 415 or 422."""
    if media_type == JSON:
        return _json_patch(copy.deepcopy(target), patch)
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
    return copy.deepcopy(patch)


def _merge_objects(target: Mapping[str, Any], patch: Mapping[str, Any], *, by_key: bool) -> dict[str, Any]:
    result = dict(target)
    if by_key and patch.get("$patch") not in (None, "replace", "merge", "delete"):
        raise errors.unexplained(f"unknown patch type: {patch['$patch']} in map: {dict(patch)}")
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
    """The field by which the elements of a list are matched; None for a list that is replaced as a whole."""
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
    """With lists in the order of a strategic merge: that of the patch, the rest by its place in what there is."""
    if isinstance(merged, Mapping) and isinstance(patch, Mapping):
        before = live if isinstance(live, Mapping) else {}
        asked = {key: patch.get(key, patch.get(f"$setElementOrder/{key}")) for key in merged}
        return {key: _ordered(each, before.get(key), asked[key], key) for key, each in merged.items()}
    key = merge_key(name, merged) if isinstance(merged, list) and isinstance(patch, list) else None
    if key is None or not isinstance(live, list):
        return merged
    wanted, places = _places(patch, key), _places(live, key)
    ours = sorted((each for each in merged if each[key] in wanted), key=lambda each: wanted[each[key]])
    theirs = sorted((each for each in merged if each[key] not in wanted), key=lambda each: places[each[key]])
    return list(_interleaved(theirs, ours, key, places))


def _places(elements: list[Any], key: str) -> dict[Any, int]:
    return {each[key]: place for place, each in enumerate(elements) if isinstance(each, Mapping) and key in each}


def _interleaved(theirs: list[Any], ours: list[Any], key: str, places: Mapping[Any, int]) -> Iterator[Any]:
    """Both in their own order; one of theirs goes before one of ours that follows it where both are known."""
    left, right = deque(theirs), deque(ours)
    while left and right:
        first, second = places.get(left[0][key]), places.get(right[0][key])
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
        value = copy.deepcopy(_value_at(holder, operation["from"]))
        if name == "move":
            _remove(holder, operation["from"])
        _add(holder, path, value)
    else:
        raise ValueError(name)


def _walk(holder: Any, path: str) -> tuple[Any, str]:
    """The container that holds the last segment of a JSON pointer, and that segment."""
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
