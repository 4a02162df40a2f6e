"""Lists: selectors, paging and the resourceVersion rules of the API's list call."""

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass

from hpad.lab.cluster import admission, errors, paths, selectors
from hpad.lab.cluster.resources import Object
from hpad.lab.cluster.store import Store, key_of

Query = Mapping[str, str]

_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Page:
    """Objects as stored, and the metadata of the list they belong to."""

    items: list[Object]
    metadata: dict[str, object]


def predicate(address: paths.Address, query: Query) -> selectors.Predicate:
    """Both selectors of a query, and the name of a single-object watch, as one predicate."""
    by_label = selectors.labels(query.get("labelSelector", ""))
    by_field = selectors.fields(address.resource, query.get("fieldSelector", ""))
    return lambda obj: by_label(obj) and by_field(obj)


def read_revision(text: str) -> int | None:
    """A resourceVersion of a query; None when empty. Raises ApiError 400 for anything but digits."""
    if not text:
        return None
    if not text.isdecimal():
        raise errors.bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def whole_number(text: str) -> int:
    """A number of a query; raises ApiError 400 for anything else."""
    if not text.lstrip("-").isdecimal():
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def page(store: Store, address: paths.Address, query: Query) -> Page:
    """One page of a list; raises ApiError 400, 410, 422 or 504 as the API server does."""
    limit = _limit(query)
    revision, start = _revision_and_start(store, query)
    at = store.revision if revision is None or revision < 0 else revision
    if at == store.revision:
        objects = store.objects(address.resource, address.namespace)
    else:
        objects = _at(store, address, at, start)
    wanted = predicate(address, query)
    objects = [obj for obj in objects if wanted(obj) and "/".join(key_of(obj)) > start]
    metadata: dict[str, object] = {"resourceVersion": str(at)}
    if limit and len(objects) > limit:
        metadata["continue"] = _token(at, objects[limit - 1])
        if not query.get("labelSelector") and not query.get("fieldSelector"):
            metadata["remainingItemCount"] = len(objects) - limit
        objects = objects[:limit]
    return Page(objects, metadata)


def render(address: paths.Address, found: Page) -> Object:
    """The list object of a page: items carry neither kind nor apiVersion."""
    shown = [admission.present(address.resource, obj, address.version) for obj in found.items]
    return {
        "kind": f"{address.resource.kind}List",
        "apiVersion": address.resource.group_version(address.version),
        "metadata": found.metadata,
        "items": [{k: v for k, v in obj.items() if k not in ("kind", "apiVersion")} for obj in shown],
    }


def _limit(query: Query) -> int:
    return max(0, whole_number(query.get("limit") or "0"))


def _revision_and_start(store: Store, query: Query) -> tuple[int | None, str]:
    """Which revision to read (None: the newest) and the key after which to start."""
    if query.get("continue"):
        return _read_token(query["continue"])
    revision, match = read_revision(query.get("resourceVersion", "")), query.get("resourceVersionMatch", "")
    if match and revision is None:
        hint = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        cause = errors.Cause("resourceVersionMatch", "FieldValueForbidden", hint)
        raise errors.invalid("ListOptions", "meta.k8s.io", "", [cause])
    if revision is not None and revision > store.revision:
        raise errors.too_large_version(revision, store.revision)
    return (revision if match == "Exact" else None), ""


def _at(store: Store, address: paths.Address, revision: int, start: str) -> list[Object]:
    try:
        return store.objects_at(address.resource, revision, address.namespace)
    except errors.ApiError:
        if start:
            token = _encode({"v": "meta.k8s.io/v1", "rv": -1, "start": start})
            raise errors.expired(_CONTINUE_EXPIRED, **{"continue": token}) from None
        raise errors.expired("The resourceVersion for the provided list is too old.") from None


def _token(revision: int, last: Object) -> str:
    return _encode({"v": "meta.k8s.io/v1", "rv": revision, "start": "/".join(key_of(last))})


def _encode(token: Mapping[str, object]) -> str:
    text = json.dumps(token, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(text: str) -> tuple[int, str]:
    try:
        token = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return int(token["rv"]), str(token["start"])
    except (ValueError, KeyError, TypeError, binascii.Error) as problem:
        raise errors.bad_request("invalid continue token: continue key is not valid") from problem
