"""Validates the query parameters of requests.

Source: Kubernetes 1.36, apimachinery/pkg/apis/meta/v1/validation/validation.go and
apimachinery/pkg/apis/meta/internalversion/validation/validation.go.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from hpad.api import duration
from hpad.lab.cluster import attributes, errors

Query = Mapping[str, str]
MATCH: Final = "resourceVersionMatch"
NOT_OLDER: Final = "NotOlderThan"
_FORBIDDEN: Final = "FieldValueForbidden"
_KINDS: Final = {
    "create": "CreateOptions",
    "update": "UpdateOptions",
    "patch": "PatchOptions",
    "delete": "DeleteOptions",
}
_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_PROPAGATIONS: Final = ("Foreground", "Background", "Orphan")
_LONGEST_S: Final = 60.0


def check_list(query: Query) -> None:
    """Raises ApiError 422 for contradictory parameters of a list."""
    _refuse("ListOptions", list(_list_causes(query)))


def check_watch(query: Query) -> None:
    """Raises ApiError 422 for contradictory parameters of a watch."""
    _refuse("ListOptions", list(_watch_causes(query)))


def check_write(verb: str, query: Query) -> None:
    """Raises ApiError 422 for unknown values of dryRun and fieldValidation."""
    causes = []
    if (dry_run := query.get("dryRun", "")) not in ("", "All"):
        causes.append(errors.unsupported("dryRun", [dry_run], ("All",)))
    if verb != "delete" and (validation := query.get("fieldValidation", "")) not in _VALIDATIONS:
        causes.append(errors.unsupported("fieldValidation", validation, _VALIDATIONS))
    _refuse(_KINDS[verb], causes)


def check_propagation(policy: str) -> None:
    """Raises ApiError 422 for an unknown propagationPolicy."""
    if policy not in _PROPAGATIONS:
        cause = errors.unsupported("propagationPolicy", policy, (*_PROPAGATIONS, "nil"))
        _refuse(_KINDS["delete"], [cause])


def check_apply(query: Query) -> None:
    """Raises ApiError 422 for a server-side apply without a field manager."""
    if not query.get("fieldManager"):
        _refuse(_KINDS["patch"], [errors.required("fieldManager", "is required for apply patch")])


def seconds(query: Query) -> float:
    """Returns the timeout of a request in seconds, at most 60; raises ApiError 400 for an invalid `timeout`."""
    text = query.get("timeout", "")
    if not text:
        return _LONGEST_S
    try:
        total = duration.parse(text).total_seconds()
    except ValueError:
        is_number = re.fullmatch(r"[-+]?(?:\d+\.?\d*|\.\d+)", text)
        problem = f'missing unit in duration "{text}"' if is_number else f'invalid duration "{text}"'
        raise errors.bad_request(f"invalid timeout specified in the request URL - time: {problem}") from None
    return min(total, _LONGEST_S) if total > 0 else _LONGEST_S


def wants_initial_events(query: Query) -> bool:
    return attributes.is_true(query.get("sendInitialEvents"))


def _list_causes(query: Query) -> Iterator[errors.Cause]:
    match = query.get(MATCH, "")
    if match:
        if not query.get("resourceVersion"):
            yield _forbidden(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided")
        if query.get("continue"):
            yield _forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided")
        if match not in ("Exact", NOT_OLDER):
            yield errors.unsupported(MATCH, match, ("Exact", NOT_OLDER, ""))
        elif match == "Exact" and query.get("resourceVersion") == "0":
            yield _forbidden(MATCH, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if "sendInitialEvents" in query:
        yield _forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")


def _watch_causes(query: Query) -> Iterator[errors.Cause]:
    match = query.get(MATCH, "")
    if "sendInitialEvents" in query:
        if match != NOT_OLDER:
            yield _forbidden(MATCH, f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER}")
        if match not in ("", NOT_OLDER):
            yield errors.unsupported(MATCH, match, (NOT_OLDER,))
    elif match:
        yield _forbidden(MATCH, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    if query.get("continue"):
        yield _forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided")


def _forbidden(field: str, why: str) -> errors.Cause:
    return errors.Cause(field, _FORBIDDEN, f"Forbidden: {why}")


def _refuse(kind: str, causes: list[errors.Cause]) -> None:
    if causes:
        raise errors.invalid(kind, "meta.k8s.io", "", causes)
