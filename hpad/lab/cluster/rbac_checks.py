"""Validates roles and bindings.

Source: Kubernetes 1.36, pkg/apis/rbac/validation/validation.go.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from hpad.lab.cluster import errors
from hpad.lab.cluster.resources import Object

_SUBJECTS: Final = ("ServiceAccount", "User", "Group")


def causes(obj: Object) -> Iterator[errors.Cause]:
    """Yields the errors of a Role, a ClusterRole or a binding."""
    name = obj["metadata"].get("name", "")
    yield from (errors.wrong("metadata.name", name, f"may not contain '{sign}'") for sign in "/%" if sign in name)
    if obj["kind"].endswith("Role"):
        for number, rule in enumerate(obj.get("rules") or ()):
            yield from _rule(f"rules[{number}]", rule, namespaced=obj["kind"] == "Role")
    elif obj["kind"].endswith("Binding"):
        kinds = ("Role", "ClusterRole") if obj["kind"] == "RoleBinding" else ("ClusterRole",)
        yield from _reference(obj.get("roleRef") or {}, kinds)
        for number, subject in enumerate(obj.get("subjects") or ()):
            yield from _subject(f"subjects[{number}]", subject, obj["metadata"].get("namespace"))


def check_unchanged(obj: Object, old: Object, group: str) -> None:
    """Raises ApiError 422 for a change of roleRef, which is immutable."""
    if obj.get("roleRef") != old.get("roleRef"):
        shown = {name: obj["roleRef"].get(name[0].lower() + name[1:], "") for name in ("Kind", "Name")}
        shown = {"APIGroup": obj["roleRef"].get("apiGroup", ""), **shown}
        cause = errors.wrong("roleRef", shown, "cannot change roleRef")
        raise errors.invalid(old["kind"], group, old["metadata"]["name"], [cause])


def _rule(path: str, rule: Mapping[str, Any], *, namespaced: bool) -> Iterator[errors.Cause]:
    if not rule.get("verbs"):
        yield errors.required(f"{path}.verbs", "verbs must contain at least one value")
    if urls := rule.get("nonResourceURLs"):
        if namespaced:
            yield errors.wrong(f"{path}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
        elif any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            hint = "rules cannot apply to both regular resources and non-resource URLs"
            yield errors.wrong(f"{path}.nonResourceURLs", urls, hint)
        return
    if not rule.get("apiGroups"):
        yield errors.required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield errors.required(f"{path}.resources", "resource rules must supply at least one resource")


def _reference(role: Mapping[str, Any], kinds: Sequence[str]) -> Iterator[errors.Cause]:
    if role.get("kind") not in kinds:
        yield errors.unsupported("roleRef.kind", role.get("kind", ""), kinds)
    if not role.get("name"):
        yield errors.required("roleRef.name")


def _subject(path: str, subject: Mapping[str, Any], namespace: str | None) -> Iterator[errors.Cause]:
    if not subject.get("name"):
        yield errors.required(f"{path}.name")
    if subject.get("kind") not in _SUBJECTS:
        yield errors.unsupported(f"{path}.kind", subject.get("kind", ""), _SUBJECTS)
    elif subject["kind"] == "ServiceAccount" and not subject.get("namespace") and not namespace:
        yield errors.required(f"{path}.namespace")
