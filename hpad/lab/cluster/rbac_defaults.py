"""Some of the default roles and bindings of a Kubernetes cluster.

Source: Kubernetes 1.36, plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go.
"""

from collections.abc import Mapping
from typing import Any, Final

from hpad.lab.cluster import users
from hpad.lab.cluster.rbac import GROUP
from hpad.lab.cluster.resources import Object


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
ALL: Final = (
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
