"""What the queue carries and maps are keyed by: a namespace and a name, never an object."""

from typing import NamedTuple

from hpad.model.quoting import shown


class Key(NamedTuple):
    """The identity of a namespaced object of a known kind; prints as `namespace/name`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> "Key":
        """Read `namespace/name`; raises ValueError for any other form."""
        namespace, slash, name = text.partition("/")
        if not (namespace and slash and name) or "/" in name:
            raise ValueError(f"{shown(text)} is not of the form namespace/name")
        return cls(namespace, name)
