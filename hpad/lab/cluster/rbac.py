"""Authorization by Roles, ClusterRoles and their bindings, as in kube-apiserver.

Source: Kubernetes 1.36, plugin/pkg/auth/authorizer/rbac/rbac.go. Aggregated ClusterRoles and the prevention of
privilege escalation are missing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hpad.lab.cluster import resources, users
from hpad.lab.cluster.attributes import Attributes
from hpad.lab.cluster.resources import Object, Resource
from hpad.lab.cluster.store import Store

GROUP: Final = "rbac.authorization.k8s.io"


def _kind(plural: str, kind: str, *, namespaced: bool) -> Resource:
    return Resource(GROUP, ("v1",), plural, kind, namespaced=namespaced, has_status=False, has_generation=False)


ROLES = _kind("roles", "Role", namespaced=True)
ROLE_BINDINGS = _kind("rolebindings", "RoleBinding", namespaced=True)
CLUSTER_ROLES = _kind("clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS = _kind("clusterrolebindings", "ClusterRoleBinding", namespaced=False)
SERVICE_ACCOUNTS = Resource(
    "", ("v1",), "serviceaccounts", "ServiceAccount", short_names=("sa",), has_status=False, has_generation=False
)
KINDS: Final = (ROLES, ROLE_BINDINGS, CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, SERVICE_ACCOUNTS)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a request is allowed; `reason` names the binding that allows it, or missing roles of bindings."""

    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Authorizer:
    """Authorizes by the roles and bindings in the store; allows everything unless `enabled`."""

    store: Store
    enabled: bool = True

    def authorize(self, user: users.User, what: Attributes) -> Verdict:
        if not self.enabled or users.MASTERS in user.groups:
            return Verdict(True)
        missing = []
        for binding in self._bindings(what.namespace):
            subject = _subject(binding, user)
            if subject is None:
                continue
            rules = self._rules(binding)
            if rules is None:
                missing.append(_not_there(binding))
            elif any(allows(rule, what) for rule in rules):
                return Verdict(True, _allowed_by(binding, subject))
        return Verdict(False, f"RBAC: {_listed(missing)}" if missing else "")

    def rules_of(self, user: users.User, namespace: str) -> list[Mapping[str, Any]]:
        """Returns all rules that apply to a user in a namespace."""
        if not self.enabled or users.MASTERS in user.groups:
            return [
                {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ]
        bindings = [each for each in self._bindings(namespace) if _subject(each, user)]
        return [rule for each in bindings for rule in self._rules(each) or ()]

    def _bindings(self, namespace: str) -> Iterator[Object]:
        yield from self.store.objects(CLUSTER_ROLE_BINDINGS)
        if namespace:
            yield from self.store.objects(ROLE_BINDINGS, namespace)

    def _rules(self, binding: Object) -> list[Mapping[str, Any]] | None:
        reference = binding["roleRef"]
        if reference["kind"] == "ClusterRole":
            role = self.store.find(CLUSTER_ROLES, "", reference["name"])
        else:
            role = self.store.find(ROLES, binding["metadata"].get("namespace", ""), reference["name"])
        return None if role is None else list(role.get("rules") or ())


def allows(rule: Mapping[str, Any], what: Attributes) -> bool:
    """Returns whether one rule of a role allows a request."""
    if not {"*", what.verb} & set(rule.get("verbs") or ()):
        return False
    if what.path:
        return any(_matches_path(pattern, what.path) for pattern in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames") or ()
    patterns = {"*", what.full, *([f"*/{what.subresource}"] if what.subresource else ())}
    return bool(
        {"*", what.group} & set(rule.get("apiGroups") or ())
        and patterns & set(rule.get("resources") or ())
        and (not names or what.name in names)
    )


def _matches_path(pattern: str, path: str) -> bool:
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def _subject(binding: Object, user: users.User) -> str | None:
    """Describes the subject of a binding that matches a user; None if there is none."""
    for subject in binding.get("subjects") or ():
        kind, name = subject["kind"], subject["name"]
        namespace = subject.get("namespace") or binding["metadata"].get("namespace", "")
        if kind == "User" and user.name == name:
            return f'User "{name}"'
        if kind == "Group" and name in user.groups:
            return f'Group "{name}"'
        if kind == "ServiceAccount" and user.name == f"system:serviceaccount:{namespace}:{name}":
            return f'ServiceAccount "{name}/{namespace}"'
    return None


def _allowed_by(binding: Object, subject: str) -> str:
    metadata, role = binding["metadata"], binding["roleRef"]
    name = "/".join(part for part in (metadata["name"], metadata.get("namespace", "")) if part)
    return f'RBAC: allowed by {binding["kind"]} "{name}" of {role["kind"]} "{role["name"]}" to {subject}'


def _not_there(binding: Object) -> str:
    role = binding["roleRef"]
    return f'{role["kind"].lower()}.{GROUP} "{role["name"]}" not found'


def _listed(problems: list[str]) -> str:
    distinct = list(dict.fromkeys(problems))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def register(registry: resources.Registry) -> None:
    """Adds the kinds of RBAC to the registry, except those that it has already."""
    for kind in KINDS:
        if registry.find(kind.group, "v1", kind.plural) is None:
            registry.add(kind)


# Some of the default roles and bindings of a cluster.
#
# Source: Kubernetes 1.36, plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go.


def _role(name: str, *rules: Mapping[str, Any]) -> Object:
    return {"kind": "ClusterRole", "apiVersion": f"{GROUP}/v1", "metadata": _metadata(name), "rules": list(rules)}


def _binding(name: str, *groups: str) -> Object:
    subjects = [{"kind": "Group", "apiGroup": GROUP, "name": group} for group in groups]
    role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
    head = {"kind": "ClusterRoleBinding", "apiVersion": f"{GROUP}/v1", "metadata": _metadata(name)}
    return {**head, "roleRef": role, "subjects": subjects}


def _metadata(name: str) -> Object:
    return {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}


def _create(group: str, *plurals: str) -> Mapping[str, Any]:
    return {"verbs": ["create"], "apiGroups": [group], "resources": list(plurals)}


def _read(*urls: str) -> Mapping[str, Any]:
    return {"verbs": ["get"], "nonResourceURLs": list(urls)}


_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"
_HEALTH: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
DEFAULTS: Final = (
    _role(
        "cluster-admin",
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ),
    _role("system:public-info-viewer", _read(*_HEALTH)),
    _role("system:discovery", _read("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH)),
    _role(
        "system:basic-user",
        _create(_AUTHORIZATION, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
        _create(_AUTHENTICATION, "selfsubjectreviews"),
    ),
    _role(
        "system:auth-delegator",
        _create(_AUTHENTICATION, "tokenreviews"),
        _create(_AUTHORIZATION, "subjectaccessreviews"),
    ),
    _binding("cluster-admin", users.MASTERS),
    _binding("system:public-info-viewer", users.AUTHENTICATED, *users.ANONYMOUS.groups),
    _binding("system:discovery", users.AUTHENTICATED),
    _binding("system:basic-user", users.AUTHENTICATED),
)
