"""Error responses of the API server: `Status` objects with reason, details and code.

Clients match on these texts; they are as recorded from Kubernetes 1.36.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpad.api import problem
from hpad.lab.cluster.attributes import Attributes
from hpad.lab.cluster.resources import Resource

UNKNOWN = "the server could not find the requested resource"
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of `details.causes`: the path of a field, and its error."""

    field: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class ApiError(Exception):
    """An error response with the HTTP status `code`, the body `status()`, and `headers`."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata = metadata or {}
        self.headers = dict(headers or {})

    def status(self) -> dict[str, Any]:
        """Returns the `Status` object in the form of the API."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": dict(self.metadata),
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = dict(self.details)
        return {**body, "code": self.code}


def named(resource: Resource, name: str) -> dict[str, str]:
    """Returns the `details` of an error about one object; core kinds have no group."""
    group = {"group": resource.group} if resource.group else {}
    return {"name": name, **group, "kind": resource.plural}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def internal(message: str) -> ApiError:
    """Returns a 500 with reason InternalError and one cause."""
    details = {"causes": [{"message": message}]}
    return ApiError(500, "InternalError", f"Internal error occurred: {message}", details=details)


def without_reason(message: str) -> ApiError:
    """Returns a 500 without a reason."""
    return ApiError(500, "", message)


def other_name(name: str, in_path: str) -> ApiError:
    return bad_request(f"the name of the object ({name}) does not match the name on the URL ({in_path})")


def timed_out() -> ApiError:
    """Returns a 504: a request exceeded its timeout."""
    message = "Timeout: request did not complete within requested timeout - context deadline exceeded"
    return ApiError(504, "Timeout", message, details={})


def unauthorized() -> ApiError:
    """Returns a 401: unknown credentials."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(what: Attributes, user: str, reason: str = "") -> ApiError:
    """Returns a 403: no rule allows the request; `reason` names roles that could not be read."""
    refused = f'User "{user}" {what}' + (f": {reason}" if reason else "")
    if what.path:
        return ApiError(403, "Forbidden", f"forbidden: {refused}", details={})
    qualified = f"{what.resource}.{what.group}" if what.group else what.resource
    name = f' "{what.name}"' if what.name else ""
    parts = {"name": what.name, "group": what.group, "kind": what.resource}
    details = {key: value for key, value in parts.items() if value}
    return ApiError(403, "Forbidden", f"{qualified}{name} is forbidden: {refused}", details=details)


def unknown_resource() -> ApiError:
    return ApiError(404, "NotFound", UNKNOWN, details={})


def not_found(resource: Resource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource} "{name}" not found', details=named(resource, name))


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, details={})


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    message = "the body of the request was in an unknown format - accepted media types include: "
    return ApiError(415, "UnsupportedMediaType", message + ", ".join(accepted))


def already_exists(resource: Resource, name: str) -> ApiError:
    message = f'{resource} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=named(resource, name))


def conflict(resource: Resource, name: str, why: str = MODIFIED) -> ApiError:
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=named(resource, name))


def uid_mismatch(resource: Resource, namespace: str, name: str, requested: str, actual: str) -> ApiError:
    """Returns a 409: an update carries the uid of an object that has been replaced since."""
    key = "/".join(part for part in ("/registry", resource.plural, namespace, name) if part)
    why = (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {requested}, UID in object meta: {actual}"
    )
    return conflict(resource, name, why)


def precondition_failed(resource: Resource, name: str, field: str, requested: str, actual: str) -> ApiError:
    """Returns a 409: a delete has a precondition for another object or version; names the kind, not the resource."""
    label, maybe = ("UID", "deleted and then recreated") if field == "uid" else ("ResourceVersion", "modified")
    why = f"the {label} in the precondition ({requested}) does not match the {label} in record ({actual})"
    qualified = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    message = f'Operation cannot be fulfilled on {qualified} "{name}": {why}. The object might have been {maybe}'
    return ApiError(409, "Conflict", message, details={**named(resource, name), "kind": resource.kind})


def expired(message: str, **metadata: str) -> ApiError:
    """Returns a 410: a resourceVersion or a continue token is older than the stored history."""
    return ApiError(410, "Expired", message, metadata=metadata)


def too_large_version(requested: int, current: int) -> ApiError:
    """Returns a 504: a read requires a resourceVersion that the server has not reached."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {requested}, current: {current}",
        details={"causes": [cause], "retryAfterSeconds": 1},
        headers={"Retry-After": "1"},
    )


def invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """Returns a 422 with all causes. Its message has equal causes once, and several causes in brackets."""
    texts = list(dict.fromkeys(map(str, causes)))
    what = f"[{', '.join(texts)}]" if len(texts) > 1 else texts[0]
    qualified = f"{kind}.{group}" if group else kind
    details: dict[str, Any] = {"name": name} if name else {}
    if group:
        details["group"] = group
    if kind:
        details["kind"] = kind
    details["causes"] = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {what}', details=details)


def required(field: str, hint: str = "") -> Cause:
    return Cause(field, problem.REQUIRED, f"Required value: {hint}" if hint else "Required value")


def unsupported(field: str, value: object, known: Sequence[str]) -> Cause:
    listed = ", ".join(f'"{each}"' for each in known)
    message = f"Unsupported value: {problem.shown(value)}: supported values: {listed}"
    return Cause(field, problem.NOT_SUPPORTED, message)


def wrong(field: str, value: object, hint: str) -> Cause:
    return Cause(field, problem.INVALID, f"Invalid value: {problem.shown(value)}: {hint}")
