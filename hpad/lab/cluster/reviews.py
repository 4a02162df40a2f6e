"""Reviews of tokens and of access: TokenReview, SelfSubjectReview and the access reviews. They are not stored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hpad import clock as clocks
from hpad.lab.cluster import authenticator, errors, strategy, users
from hpad.lab.cluster.attributes import Attributes
from hpad.lab.cluster.resources import Object, Registry, Resource

AUTHENTICATION: Final = "authentication.k8s.io"
AUTHORIZATION: Final = "authorization.k8s.io"
AUDIENCE: Final = "https://kubernetes.default.svc"


def _kind(group: str, kind: str, *, namespaced: bool = False) -> Resource:
    plural = f"{kind.lower()}s"
    return Resource(
        group, ("v1",), plural, kind, namespaced=namespaced, has_status=False, verbs=("create",), virtual=True
    )


TOKEN = _kind(AUTHENTICATION, "TokenReview")
SELF = _kind(AUTHENTICATION, "SelfSubjectReview")
ACCESS = _kind(AUTHORIZATION, "SubjectAccessReview")
LOCAL_ACCESS = _kind(AUTHORIZATION, "LocalSubjectAccessReview", namespaced=True)
OWN_ACCESS = _kind(AUTHORIZATION, "SelfSubjectAccessReview")
OWN_RULES = _kind(AUTHORIZATION, "SelfSubjectRulesReview")
KINDS: Final = (TOKEN, SELF, ACCESS, LOCAL_ACCESS, OWN_ACCESS, OWN_RULES)


def register(registry: Registry) -> None:
    """Adds the reviews to the registry."""
    for kind in KINDS:
        registry.add(kind)


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Answers reviews by the users and rules of the authenticator."""

    authenticator: authenticator.Authenticator
    clock: clocks.Clock

    def answer(self, kind: Resource, namespace: str, caller: users.User, body: Object) -> Object:
        """Returns the review with its status; raises ApiError 400 or 422 for an invalid review."""
        spec = body.get("spec") or {}
        head = {"kind": kind.kind, "apiVersion": kind.api_version}
        metadata = dict(body.get("metadata") or {})
        if kind == SELF:
            made = {"creationTimestamp": strategy.timestamp(self.clock.now())}
            return {**head, "metadata": made, "status": {"userInfo": caller.info()}}
        if kind == OWN_RULES:
            return {**head, "metadata": {}, "spec": {}, "status": self._rules(caller, spec.get("namespace", ""))}
        if kind == TOKEN:
            status = self._token(spec)
        else:
            user = caller if kind == OWN_ACCESS else _subject(spec)
            if kind == LOCAL_ACCESS:
                metadata["namespace"] = namespace
                _check_namespace(spec, namespace)
            verdict = self.authenticator.authorizer.authorize(user, _attributes(spec))
            status = {"allowed": verdict.allowed, **({"reason": verdict.reason} if verdict.reason else {})}
        return {**head, "metadata": metadata, "spec": spec, "status": status}

    def _token(self, spec: Mapping[str, Any]) -> Object:
        if not spec.get("token"):
            raise errors.bad_request("token is required for TokenReview in authentication")
        audiences = [each for each in spec.get("audiences") or (AUDIENCE,) if each == AUDIENCE]
        user = self.authenticator.known.of_token(spec["token"]) if self.authenticator.known and audiences else None
        if user is None:
            return {"user": {}, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user.info(), "audiences": audiences}

    def _rules(self, user: users.User, namespace: str) -> Object:
        if not namespace:
            raise errors.bad_request("no namespace on request")
        rules = self.authenticator.authorizer.rules_of(user, namespace)
        return {
            "resourceRules": [rule for rule in rules if not rule.get("nonResourceURLs")],
            "nonResourceRules": [rule for rule in rules if rule.get("nonResourceURLs")],
            "incomplete": False,
        }


def _attributes(spec: Mapping[str, Any]) -> Attributes:
    """Returns the reviewed attributes; raises ApiError 422 unless the review has exactly one kind of them."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        shown = {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
        raise _invalid(
            "spec.nonResourceAttributes", shown, "cannot be specified in combination with resourceAttributes"
        )
    if resource is not None:
        names = ("verb", "group", "resource", "subresource", "namespace", "name")
        return Attributes(**{name: str(resource.get(name, "")) for name in names})
    if path is not None:
        return Attributes(str(path.get("verb", "")), path=str(path.get("path", "")))
    hint = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    raise _invalid("spec.resourceAttributes", None, hint)


def _subject(spec: Mapping[str, Any]) -> users.User:
    """Returns the reviewed user, with exactly the groups in the review; raises ApiError 422."""
    _attributes(spec)  # Kubernetes reports missing attributes before a missing user
    name, groups = spec.get("user", ""), tuple(spec.get("groups") or ())
    if not name and not groups:
        raise _invalid("spec.user", "", "at least one of user or group must be specified")
    return users.User(name, groups)


def _check_namespace(spec: Mapping[str, Any], namespace: str) -> None:
    if (spec.get("resourceAttributes") or {}).get("namespace", "") != namespace:
        raise errors.bad_request(f"spec.resourceAttributes.namespace must match namespace: {namespace}")


def _invalid(field: str, value: object, hint: str) -> errors.ApiError:
    """Returns a 422 without a kind, as the API server sends it for reviews."""
    cause = errors.wrong(field, value, hint)
    details = {
        "group": AUTHORIZATION,
        "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field}],
    }
    return errors.ApiError(422, "Invalid", f'.{AUTHORIZATION} "" is invalid: {cause}', details=details)
