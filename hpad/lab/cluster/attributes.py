"""What a request wants to do, in the terms of authorization: a verb on a resource, or on a path that is none.

The rules are those of the API server's request info; what is not served has attributes as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_NAMESPACES: Final = ("status", "finalize")


@dataclass(frozen=True, slots=True)
class Attributes:
    """`path` is set, and everything but the verb empty, where no resource is meant."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full(self) -> str:
        """The resource as rules name it, e.g. `deployments/scale`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        if self.path:
            return f'cannot {self.verb} path "{self.path}"'
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'cannot {self.verb} resource "{self.full}" in API group "{self.group}" {where}'


def of(method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """The attributes of a request."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        return _of_resource(method, "", parts[2:], query)
    if len(parts) >= 4 and parts[0] == "apis":
        return _of_resource(method, parts[1], parts[3:], query)
    return Attributes(method.lower(), path=path)


def is_true(text: str | None) -> bool:
    """A boolean of a query: anything but nothing, `0` and `false`."""
    return text is not None and text.lower() not in ("0", "false")


def _of_resource(method: str, group: str, rest: list[str], query: Mapping[str, str]) -> Attributes:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
            rest = rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    verb = _VERBS.get(method, "")
    if not name and verb in ("get", "delete"):
        reading = "watch" if is_true(query.get("watch")) else "list"
        verb = reading if verb == "get" else "deletecollection"
        name = _only_name(query.get("fieldSelector", ""))
    return Attributes(verb, group, resource, subresource, namespace, name)


def _only_name(selector: str) -> str:
    """The name that a field selector asks for: who may see one object may list it alone."""
    for part in selector.split(","):
        key, _, value = part.replace("==", "=").partition("=")
        if key == "metadata.name":
            return value
    return ""
