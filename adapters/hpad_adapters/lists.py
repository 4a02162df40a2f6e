"""What adapters that read lists share: a bound on their size, pages, and an index of objects by label."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from hpad.adapter import AdapterError, Selector, positive_duration
from hpad.adapter_http import count_elements
from hpad_adapters.selection import EQUALITY

T = TypeVar("T")
_MOST_ELEMENTS = 2_000_000
"""Values, lists and objects of one list; the metrics of a pod have some twenty."""


class ListMetadata(msgspec.Struct, frozen=True, rename={"more": "continue"}):
    """`more` names the next page of a list, "" for the last one."""

    more: str = ""


def sized(body: bytes) -> bytes:
    """Returns the JSON text of a list, before anything is made of it; raises AdapterError if it has too many values."""
    if len(body) > _MOST_ELEMENTS and count_elements(body, _MOST_ELEMENTS) > _MOST_ELEMENTS:
        raise AdapterError(f"the answer has more than {_MOST_ELEMENTS} values", "cluster", lasting=True)
    return body


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """request_timeout: of one request, such as "5s"."""

    request_timeout: str = "5s"

    def __post_init__(self) -> None:
        self.timeout_seconds()

    def timeout_seconds(self) -> float:
        """Returns the timeout in seconds; raises ValueError."""
        return positive_duration("request_timeout", self.request_timeout).total_seconds()


class LabelIndex(Generic[T]):
    """Objects by each of their labels, so that each of many selectors tests few of them.

    `unlabelled`: whether there are objects, and none of them has a label.
    """

    def __init__(self, objects: Sequence[T], labels: Callable[[T], Mapping[str, str] | None]) -> None:
        self._objects = objects
        self._labels = labels
        self._by_value: dict[str, dict[str, list[T]]] = {}
        """For each label that a selector has asked for, the objects by its value."""
        self.unlabelled = bool(objects) and not any(map(labels, objects))

    def select(self, selector: Selector) -> list[T]:
        """Returns the objects that the selector matches, in their order."""
        exact = [term for term in selector.requirements if term.operator in EQUALITY and len(term.values) == 1]
        narrowed = [self._with(term.key).get(term.values[0], []) for term in exact]
        if len(narrowed) == len(selector.requirements) == 1:
            return narrowed[0]  # as with most selectors: nothing else is required
        candidates = min(narrowed, key=len, default=self._objects)
        return [each for each in candidates if selector.matches(self._labels(each) or {})]

    def _with(self, label: str) -> dict[str, list[T]]:
        """Returns the objects that have the label, by its value."""
        found = self._by_value.get(label)
        if found is None:
            found = self._by_value[label] = {}
            for each in self._objects:
                value = (self._labels(each) or {}).get(label)
                if value is not None:
                    found.setdefault(value, []).append(each)
        return found
