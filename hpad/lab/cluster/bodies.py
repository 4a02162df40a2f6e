"""What comes in the body of a request, and the options beside it."""

import json
from typing import Any

import yaml
from multidict import CIMultiDict

from hpad.lab.cluster import admission, errors, paths, protobuf, reads, writes
from hpad.lab.cluster.resources import Object

ACCEPTED = ("application/json", "application/yaml", protobuf.MEDIA_TYPE)


def read(media_type: str, raw: bytes, address: paths.Address) -> Object:
    """The body as an object of the kind that the address wants; raises ApiError 400 or 415."""
    is_scale = address.subresource == "scale"
    kind = "Scale" if is_scale else address.resource.kind
    body = _decoded(media_type, raw, kind)
    if not isinstance(body, dict):
        raise errors.bad_request(f"the object provided is unrecognized (must be of type {kind})")
    expected = "autoscaling/v1" if is_scale else address.resource.group_version(address.version)
    got = str(body.setdefault("apiVersion", expected)), str(body.setdefault("kind", kind))
    version = got[0].rpartition("/")[2]
    cannot = f'{got[1]} in version "{version}" cannot be handled as a {kind}: '
    if got != (expected, kind):
        internal = f"{address.resource.group or 'core'}.{kind}"
        raise errors.bad_request(f"{cannot}converting ({version}.{got[1]}) to ({internal}): unknown conversion")
    for part in ("metadata", "spec", "status"):
        if not isinstance(body.get(part) or {}, dict):
            raise errors.bad_request(f"{cannot}json: {part} must be an object, not {body[part]!r}")
    return body


def _decoded(media_type: str, raw: bytes, kind: str) -> Any:
    if media_type in ("application/json", "application/octet-stream"):
        return from_json(raw, kind)
    if media_type == protobuf.MEDIA_TYPE:
        return protobuf.decode(raw)
    if media_type != "application/yaml":
        raise errors.unsupported_media_type(ACCEPTED)
    return from_yaml(raw)


def applied(raw: bytes, address: paths.Address) -> Object:
    """The body of a server-side apply; raises ApiError 400."""
    body = from_yaml(raw)
    if not isinstance(body, dict) or not all(isinstance(body.get(part) or {}, dict) for part in ("metadata", "spec")):
        raise errors.bad_request(f"the object provided is unrecognized (must be of type {address.resource.kind})")
    return body


def from_yaml(raw: bytes) -> Any:
    """Raises ApiError 400."""
    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError as problem:
        raise errors.bad_request(f"error converting YAML to JSON: {problem}") from problem


def from_json(raw: bytes, kind: str) -> Any:
    """Raises ApiError 400; `kind` says what was wanted."""
    try:
        return json.loads(raw)
    except ValueError as problem:
        text = raw[:200].decode("utf-8", "replace")
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
            f"json parse error: {problem} ({text})"
        ) from problem


def field_warnings(address: paths.Address, body: Object, query: reads.Query) -> CIMultiDict[str]:
    """`Warning` headers for fields that nobody knows; raises ApiError 400 with fieldValidation=Strict."""
    unknown = admission.unknown_fields(address.resource, body)
    if unknown and query.get("fieldValidation") == "Strict":
        listed = ", ".join(f'unknown field "{field}"' for field in unknown)
        kind = address.resource.kind
        raise errors.bad_request(
            f'{kind} in version "{address.version}" cannot be handled as a {kind}: strict decoding error: {listed}'
        )
    return CIMultiDict(("Warning", f'299 - "unknown field \\"{field}\\""') for field in unknown)


def delete_options(query: reads.Query, raw: bytes) -> writes.DeleteOptions:
    """From the query and a DeleteOptions body, the query first; raises ApiError 400."""
    body = from_json(raw, "DeleteOptions") if raw.strip() else {}
    if not isinstance(body, dict):
        raise errors.bad_request("the object provided is unrecognized (must be of type DeleteOptions)")
    grace = query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))
    return writes.DeleteOptions(
        grace=None if grace is None else reads.whole_number(str(grace)),
        propagation=query.get("propagationPolicy") or body.get("propagationPolicy") or "Background",
        preconditions=body.get("preconditions") or {},
        dry_run="All" in (query.get("dryRun"), *(body.get("dryRun") or [])),
    )
