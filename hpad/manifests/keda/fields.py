"""An object of the input that remembers which of its fields were read, so that none is dropped without a word."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hpad.api.fields import FieldError, invalid

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_MOST: Final = 2**31 - 1


class Wrong(Exception):
    """The object is not one that KEDA takes either."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(error.message)
        self.error = error


class Fields:
    """The fields of the object at `path` of a document; `unread` yields those that no method was called for.

    A field whose value is null counts as absent, as in Kubernetes.
    """

    def __init__(self, value: Mapping[Any, Any], path: str = "") -> None:
        self._value = {str(name): each for name, each in value.items() if each is not None}
        self._path = path
        self._read: set[str] = set()
        self._within: dict[str, list[Fields]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._value

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def at(self, name: str) -> str:
        """The path of a field, whether there is one or not."""
        if not _PLAIN.fullmatch(name):
            return f"{self._path}[{name}]"
        return f"{self._path}.{name}" if self._path else name

    def get(self, name: str, default: Any = None) -> Any:
        """The whole value; from now on the caller answers for all that is in it."""
        self._read.add(name)
        return self._value.get(name, default)

    def text(self, name: str, default: str = "") -> str:
        """A text, or a number or truth as text, which KEDA wants as text; raises Wrong for anything else."""
        value = self.get(name, default)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (dict, list)):
            raise Wrong(invalid(self.at(name), value, "must be text"))
        return str(value)

    def truth(self, name: str) -> bool:
        """A truth, also as text; absent is false."""
        return self.text(name).lower() in ("true", "t", "1")

    def count(self, name: str, default: int) -> int:
        """A whole number of 31 bits; raises Wrong for anything else."""
        value = self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST:
            raise Wrong(invalid(self.at(name), value, f"must be a whole number from 0 to {_MOST}"))
        return value

    def object(self, name: str) -> "Fields":
        """The object that a field holds, empty where it is absent; raises Wrong for anything else."""
        if name not in self._within:
            value = self._value.get(name, {})
            if not isinstance(value, dict):
                raise Wrong(invalid(self.at(name), value, "must be an object"))
            self._within[name] = [Fields(value, self.at(name))]
        return self._within[name][0]

    def objects(self, name: str) -> "list[Fields]":
        """The objects of a list, empty where it is absent; raises Wrong for anything else."""
        value = self._value.get(name, [])
        if not isinstance(value, list):
            raise Wrong(invalid(self.at(name), value, "must be a list"))
        for index, entry in enumerate(value):
            if not isinstance(entry, dict):
                raise Wrong(invalid(f"{self.at(name)}[{index}]", entry, "must be an object"))
        self._within[name] = [Fields(entry, f"{self.at(name)}[{index}]") for index, entry in enumerate(value)]
        return self._within[name]

    def skip(self) -> None:
        """Count all that is in the object as read: it was noted as a whole."""
        self._within.clear()
        self._read.update(self._value)

    def unread(self) -> Iterator[str]:
        """The paths of the fields that nothing was made of: of an object that was not looked into, its own alone."""
        for name in self._value:
            if name in self._within:
                for each in self._within[name]:
                    yield from each.unread()
            elif name not in self._read:
                yield self.at(name)
