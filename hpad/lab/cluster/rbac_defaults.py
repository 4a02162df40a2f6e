"""The roles and bindings that every Kubernetes cluster begins with, as far as they matter here."""

from collections.abc import Mapping
from typing import Any, Final

from hpad.lab.cluster import users
from hpad.lab.cluster.rbac import GROUP
from hpad.lab.cluster.resources import Object


def _may(name: str, *rules: Mapping[str, Any]) -> Object:
    return {"kind": "ClusterRole", "apiVersion": f"{GROUP}/v1", "metadata": _default(name), "rules": list(rules)}


def _have(name: str, *groups: str) -> Object:
    subjects = [{"kind": "Group", "apiGroup": GROUP, "name": group} for group in groups]
    role = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
    head = {"kind": "ClusterRoleBinding", "apiVersion": f"{GROUP}/v1", "metadata": _default(name)}
    return {**head, "roleRef": role, "subjects": subjects}


def _default(name: str) -> Object:
    return {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}


def _create(group: str, *plurals: str) -> Mapping[str, Any]:
    return {"verbs": ["create"], "apiGroups": [group], "resources": list(plurals)}


def _read(*urls: str) -> Mapping[str, Any]:
    return {"verbs": ["get"], "nonResourceURLs": list(urls)}


_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"
_HEALTH: Final = ("/healthz", "/livez", "/readyz", "/version", "/version/")
ALL: Final = (
    _may(
        "cluster-admin",
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
        {"verbs": ["*"], "nonResourceURLs": ["*"]},
    ),
    _may("system:public-info-viewer", _read(*_HEALTH)),
    _may("system:discovery", _read("/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*", *_HEALTH)),
    _may(
        "system:basic-user",
        _create(_AUTHORIZATION, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
        _create(_AUTHENTICATION, "selfsubjectreviews"),
    ),
    _may(
        "system:auth-delegator",
        _create(_AUTHENTICATION, "tokenreviews"),
        _create(_AUTHORIZATION, "subjectaccessreviews"),
    ),
    _have("cluster-admin", users.MASTERS),
    _have("system:public-info-viewer", users.AUTHENTICATED, *users.ANONYMOUS.groups),
    _have("system:discovery", users.AUTHENTICATED),
    _have("system:basic-user", users.AUTHENTICATED),
)
