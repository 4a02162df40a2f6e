"""Finds the containers that hpad's objects refer to."""

from collections import deque
from collections.abc import Iterator
from typing import Any


def containers(root: Any) -> dict[str, int]:
    """Maps the attribute path of each container in hpad's objects to its size."""
    sizes: dict[str, int] = {}
    seen: set[int] = set()
    todo = [("", root)]
    while todo:
        path, value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, dict | list | set | deque):
            sizes[path] = max(len(value), sizes.get(path, 0))
            inside = value.values() if isinstance(value, dict) else value
            todo.extend((f"{path}[]", each) for each in list(inside))
        elif type(value).__module__.startswith("hpad."):
            todo.extend((f"{path}.{name}", each) for name, each in _attributes(value))
    return sizes


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(value, "__dict__", {}).items()
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if name != "__weakref__" and hasattr(value, name):  # reading it fails on CPython before 3.11.3
                yield name, getattr(value, name)
