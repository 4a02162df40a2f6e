"""Lists: selectors, paging, and the semantics of resourceVersion."""

import base64
import json
import string
from collections.abc import Mapping
from dataclasses import dataclass

from hpad.lab.cluster import admission, errors, gojson, options, paths, revisions, selectors
from hpad.lab.cluster.resources import EVENTS, Object
from hpad.lab.cluster.store import Store, key_of

Query = Mapping[str, str]
_VERSION = "meta.k8s.io/v1"
_BASE64 = frozenset(string.ascii_letters + string.digits + "-_")

_CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
    "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
    "modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Page:
    """Stored objects, and the metadata of their list."""

    items: list[Object]
    metadata: dict[str, object]


def predicate(address: paths.Address, query: Query) -> selectors.Predicate:
    """Returns the predicate of the label selector and field selector of a query."""
    by_label = selectors.labels(query.get("labelSelector", ""))
    by_field = selectors.fields(address.resource, query.get("fieldSelector", ""))
    return lambda obj: by_label(obj) and by_field(obj)


def whole_number(text: str) -> int:
    """Parses an integer of a query; raises ApiError 400."""
    if not text.lstrip("-").isdecimal():
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def check_not_ahead(store: Store, query: Query) -> None:
    """Raises ApiError 504 for a read of one object at a future revision."""
    revision = revisions.of_read(query.get("resourceVersion", ""))
    if revision > store.revision:
        raise errors.too_large_version(revision, store.revision)


def page(store: Store, address: paths.Address, query: Query) -> Page:
    """Returns one page of a list; raises ApiError 400, 410, 422 or 504."""
    options.check_list(query)
    limit = _limit(address, query)
    revision, start = _revision_and_start(store, address, query)
    at = store.revision if revision is None or revision < 0 else revision
    if at == store.revision:
        objects = store.objects(address.resource, address.namespace)
    else:
        objects = _at(store, address, at, start)
    matches = predicate(address, query)
    objects = [obj for obj in objects if matches(obj) and "/".join(key_of(obj)) > start]
    metadata: dict[str, object] = {"resourceVersion": str(at)}
    if limit and len(objects) > limit:
        metadata["continue"] = _token(address, at, objects[limit - 1])
        if not query.get("labelSelector") and not query.get("fieldSelector"):
            metadata["remainingItemCount"] = len(objects) - limit
        objects = objects[:limit]
    return Page(objects, metadata)


def render(address: paths.Address, found: Page) -> Object:
    """Returns the list object of a page, whose items have neither kind nor apiVersion."""
    shown = [admission.present(address.resource, obj, address.version) for obj in found.items]
    return {
        "kind": f"{address.resource.kind}List",
        "apiVersion": address.resource.group_version(address.version),
        "metadata": found.metadata,
        "items": [{k: v for k, v in obj.items() if k not in ("kind", "apiVersion")} for obj in shown],
    }


def _limit(address: paths.Address, query: Query) -> int:
    """Returns the limit of a list, 0 for none.

    A list at resourceVersion 0 is complete, since a real API server serves it from its watch cache. Events are not
    cached there.
    """
    limit = max(0, whole_number(query.get("limit") or "0"))
    return 0 if query.get("resourceVersion") == "0" and address.resource != EVENTS else limit


def _revision_and_start(store: Store, address: paths.Address, query: Query) -> tuple[int | None, str]:
    """Returns the revision to read (None: the newest) and the key after which the page starts."""
    if query.get("continue"):
        return _read_token(address, query["continue"])
    revision, match = revisions.of_list(query.get("resourceVersion", "")), query.get(options.MATCH, "")
    if revision is not None and revision > store.revision:
        raise errors.too_large_version(revision, store.revision)
    return (revision if match == "Exact" else None), ""


def _at(store: Store, address: paths.Address, revision: int, start: str) -> list[Object]:
    try:
        return store.objects_at(address.resource, revision, address.namespace)
    except errors.ApiError:
        if start:
            rest = start if address.namespace is None else start.partition("/")[2]
            token = _encode({"v": _VERSION, "rv": -1, "start": f"{rest}\0"})
            raise errors.expired(_CONTINUE_EXPIRED, **{"continue": token}) from None
        raise errors.expired("The resourceVersion for the provided list is too old.") from None


def _token(address: paths.Address, revision: int, last: Object) -> str:
    """Returns the continue token after `last`, with its storage key relative to the listed prefix."""
    namespace, name = key_of(last)
    key = f"{namespace}/{name}" if address.namespace is None and namespace else name
    slash = (
        "" if address.resource == EVENTS else "/"
    )  # keys from the watch cache start with one, those from etcd do not
    return _encode({"v": _VERSION, "rv": revision, "start": f"{slash}{key}\0"})


def _encode(token: Mapping[str, object]) -> str:
    text = json.dumps(token, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(address: paths.Address, text: str) -> tuple[int, str]:
    """Decodes a continue token to the revision and the key after which the page starts; raises ApiError 400."""
    try:
        token = gojson.loads(_from_base64(text))
    except gojson.SyntaxFault as problem:
        raise _bad_token(str(problem)) from None
    if not isinstance(token, dict) or not isinstance(token.get("v", ""), str):
        kind = gojson.kind_of(token.get("v") if isinstance(token, dict) else token)
        raise _bad_token(f"json: cannot unmarshal {kind} into Go struct field continueToken.v of type string")
    version, revision, start = token.get("v", ""), token.get("rv", 0), token.get("start", "")
    if version != _VERSION:
        raise _bad_token(f"server does not recognize this encoded version {version}")
    if not isinstance(revision, int) or revision == 0:
        raise _bad_token(f"incorrect encoded start resourceVersion (version {_VERSION})")
    if not isinstance(start, str) or not start:
        raise _bad_token(f"encoded start key empty (version {_VERSION})")
    key = start.lstrip("/").rstrip("\0")
    return revision, key if address.namespace is None else f"{address.namespace}/{key}"


def _from_base64(text: str) -> bytes:
    position = next((index for index, sign in enumerate(text) if sign not in _BASE64), None)
    if position is None and len(text) % 4 == 1:
        position = len(text) - 1
    if position is not None:
        raise _bad_token(f"illegal base64 data at input byte {position}")
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _bad_token(why: str) -> errors.ApiError:
    return errors.bad_request(f"invalid continue token: continue key is not valid: {why}")
