"""The fields of KEDA's objects. `Fields` tracks which of them were read, so that no field is dropped without a note."""

import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from hpad.api.problem import Invalid, invalid

API_VERSION: Final = "keda.sh/v1alpha1"
SCALED_OBJECT: Final = "ScaledObject"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")
"""Booleans as Go reads them (strconv.ParseBool)."""
_MAX_INT: Final = 2**31 - 1


class Note(msgspec.Struct, frozen=True):
    """A field that is not carried over unchanged, and what the user can do.

    `lost`: the result lacks the field's effect. False: the effect is kept in another way, or the field has none.
    """

    field: str
    text: str
    lost: bool = True

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def split_url(text: str) -> urllib.parse.SplitResult:
    """Splits a URL. The result is empty for an invalid one, such as one whose port is not a number."""
    try:
        parts = urllib.parse.urlsplit(text)
        _ = parts.port  # raises ValueError, unlike urlsplit itself
    except ValueError:
        return urllib.parse.urlsplit("")
    return parts


def without_null(value: Any) -> Any:
    """Returns a value without fields that are null: for Go they are absent."""
    if isinstance(value, dict):
        return {key: without_null(each) for key, each in value.items() if each is not None}
    return [without_null(each) for each in value] if isinstance(value, list) else value


def host_of(parts: urllib.parse.SplitResult) -> str:
    """Returns the host of a URL as it is written, without brackets; `hostname` is in lower case."""
    host = parts.netloc.rpartition("@")[2]
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


class Fields:
    """The fields of the object at `path` of a document. Tracks which of them were read.

    A field whose value is null counts as absent, as in Kubernetes.
    """

    def __init__(self, value: Mapping[Any, Any], path: str = "") -> None:
        self._value = {str(name): each for name, each in value.items() if each is not None}
        self._path = path
        self._read: set[str] = set()
        self._known: set[str] = set()
        self._within: dict[str, list[Fields]] = {}

    def __contains__(self, name: str) -> bool:
        self._known.add(name)
        return name in self._value

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def at(self, name: str) -> str:
        """Returns the path of a field, present or absent."""
        if not _PLAIN.fullmatch(name):
            return f"{self._path}[{name}]"
        return f"{self._path}.{name}" if self._path else name

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the whole value. Marks it as read, with everything in it."""
        self._read.add(name)
        return self._value.get(name, default)

    def text(self, name: str, default: str = "") -> str:
        """Returns a string, or a number or boolean as a string. Raises Invalid for an object or list.

        KEDA cuts the white space around parameters as well: typed_config.go: configParamValue.
        """
        value = self.get(name, default)
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, (dict, list)):
            raise Invalid(invalid(self.at(name), value, "must be text"))
        return str(value).strip()

    def truth(self, name: str) -> bool:
        """Returns a boolean, which may be written as a string; False if absent.

        Raises Invalid for text that Go's strconv.ParseBool refuses.
        """
        text = self.text(name)
        if text not in (*_TRUE, *FALSE, ""):
            raise Invalid(invalid(self.at(name), text, "must be true or false"))
        return text in _TRUE

    def count(self, name: str, default: int) -> int:
        """Returns a whole number from 0 to 2^31 - 1. Raises Invalid for anything else."""
        value = self.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_INT:
            raise Invalid(invalid(self.at(name), value, f"must be a whole number from 0 to {_MAX_INT}"))
        return value

    def object(self, name: str) -> "Fields":
        """Returns the object in a field, empty if absent. Raises Invalid for anything else."""
        if name not in self._within:
            value = self._value.get(name, {})
            if not isinstance(value, dict):
                raise Invalid(invalid(self.at(name), value, "must be an object"))
            self._within[name] = [Fields(value, self.at(name))]
        return self._within[name][0]

    def objects(self, name: str) -> "list[Fields]":
        """Returns the objects in a list, empty if absent. Raises Invalid for anything else."""
        value = self._value.get(name, [])
        if not isinstance(value, list):
            raise Invalid(invalid(self.at(name), value, "must be a list"))
        found = self._within[name] = []
        for index, entry in enumerate(value):
            path = f"{self.at(name)}[{index}]"
            if not isinstance(entry, dict):
                raise Invalid(invalid(path, entry, "must be an object"))
            found.append(Fields(entry, path))
        return found

    @property
    def known(self) -> frozenset[str]:
        """The names that were looked up, present or absent."""
        return frozenset(self._read | self._known)

    def unread_names(self) -> list[str]:
        """Returns the names of the fields that were not read."""
        return [name for name in self._value if name not in self._read]

    def skip(self) -> None:
        """Marks all fields as read, for an object that has a note as a whole."""
        self._within.clear()
        self._read.update(self._value)

    def unread(self) -> Iterator[str]:
        """Yields the paths of the unread fields; for an object that was never read, only its own path."""
        for name in self._value:
            if name in self._within:
                for each in self._within[name]:
                    yield from each.unread()
            elif name not in self._read:
                yield self.at(name)
