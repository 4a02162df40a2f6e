"""Attributes of a request for authorization: a verb on a resource, or on a non-resource path.

Requests for resources that are not served have attributes too, so that RBAC is checked before the 404.
Source: Kubernetes 1.36, apiserver/pkg/endpoints/request/requestinfo.go: NewRequestInfo.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_NAMESPACES: Final = ("status", "finalize")


@dataclass(frozen=True, slots=True)
class Attributes:
    """For a non-resource request only `verb` and `path` are set."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def full(self) -> str:
        """Resource and subresource as rules of RBAC name them, such as `deployments/scale`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def __str__(self) -> str:
        if self.path:
            return f'cannot {self.verb} path "{self.path}"'
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'cannot {self.verb} resource "{self.full}" in API group "{self.group}" {where}'


def of(method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """Returns the attributes of a request to `path` (without its query)."""
    parts = [part for part in path.split("/") if part]
    if len(parts) >= 3 and parts[0] == "api":
        return _of_resource(method, "", parts[2:], query)
    if len(parts) >= 4 and parts[0] == "apis":
        return _of_resource(method, parts[1], parts[3:], query)
    return Attributes(method.lower(), path=path)


def is_true(text: str | None) -> bool:
    """Returns whether a boolean query parameter is on: present, and neither `0` nor `false`.

    Source: Kubernetes 1.36, apimachinery/pkg/runtime/conversion.go: Convert_Slice_string_To_bool.
    """
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
    """Returns the name in a field selector: a user allowed to get one object may also list or watch it by name."""
    for part in selector.split(","):
        key, _, value = part.replace("==", "=").partition("=")
        if key == "metadata.name":
            return value
    return ""
