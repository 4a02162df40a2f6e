"""Decodes the bodies of requests: objects, and DeleteOptions."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from multidict import CIMultiDict

from hpad.api.text import shown
from hpad.lab.cluster import admission, decoding, errors, gojson, options, paths, protobuf, reads, schemas, writes
from hpad.lab.cluster.resources import Object, Resource

ACCEPTED: Final = ("application/json", "application/yaml", protobuf.MEDIA_TYPE)
_HEAD: Final = r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
_SHOWN_BYTES: Final = 30
SCHEME: Final = 'in scheme "k8s.io/kubernetes/pkg/api/legacyscheme/scheme.go:30"'


@dataclass(frozen=True, slots=True)
class Body:
    """A received object, and the `Warning` headers of the response."""

    object: Object
    warnings: CIMultiDict[str] = field(default_factory=CIMultiDict)


def expected(address: paths.Address) -> tuple[str, str]:
    """Returns the apiVersion and kind that an address accepts."""
    if address.subresource == "scale":
        return "autoscaling/v1", "Scale"
    return address.resource.group_version(address.version), address.resource.kind


def read(media_type: str, raw: bytes, address: paths.Address, query: reads.Query) -> Body:
    """Decodes a body to an object of the kind that the address accepts; raises ApiError 400 or 415."""
    api_version, kind = expected(address)
    body = _decoded(media_type, raw, kind)
    body = {} if body is None else body
    problem = head_fault(body)
    if problem:
        raise _unrecognized(kind, f"couldn't get version/kind; json parse error: {problem}", raw)
    got = str(body.get("apiVersion") or api_version), str(body.get("kind") or kind)
    body = {**body, "apiVersion": got[0], "kind": got[1]}
    cannot = f'{got[1]} in version "{got[0].rpartition("/")[2]}" cannot be handled as a {kind}: '
    if got != (api_version, kind):
        raise errors.bad_request(_wrong_kind(got, (api_version, kind), cannot, address))
    if problem := type_fault(address.resource, body):
        raise errors.bad_request(cannot + problem)
    strict = [f'unknown field "{each}"' for each in admission.unknown_fields(address.resource, body)]
    if media_type == ACCEPTED[0]:
        strict += [f'duplicate field "{each}"' for each in gojson.duplicates(raw)]
    return Body(body, warnings(strict, query, cannot))


def type_fault(resource: Resource, body: Object) -> str | None:
    """Returns the decoding error of the first field with a wrong type, None if all fit. The head must be sound."""
    schema = schemas.of_kind(body["apiVersion"], body["kind"])
    if schema is not None:
        return decoding.fault(schema, body)
    # a custom kind has no built-in schema: its spec and status are checked by its own schema, if it has one
    for part in ("metadata",) if resource.schema is not None else ("metadata", "spec", "status"):
        if not isinstance(body.get(part) or {}, dict):
            return f"json: {part} must be an object, not {shown(body[part])}"
    return None


def warnings(strict: Sequence[str], query: reads.Query, cannot: str = "") -> CIMultiDict[str]:
    """Returns warnings of unknown and duplicate fields; raises ApiError 400 with fieldValidation=Strict."""
    validation = query.get("fieldValidation") or "Warn"
    if strict and validation == "Strict":
        raise errors.bad_request(f"{cannot}strict decoding error: {', '.join(strict)}")
    reported = strict if validation == "Warn" else ()
    return CIMultiDict(("Warning", f'299 - "{_escaped(each)}"') for each in reported)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def head_fault(body: Any) -> str | None:
    """Returns the decoding error of the kind and apiVersion of a body, None when both are strings or absent."""
    if not isinstance(body, dict):
        return f"json: cannot unmarshal {gojson.kind_of(body)} into Go value of type {_HEAD}"
    for name in ("apiVersion", "kind"):
        if not isinstance(body.get(name) or "", str):
            kind = gojson.kind_of(body[name])
            return f"json: cannot unmarshal {kind} into Go struct field .{name} of type string"
    return None


def _wrong_kind(got: tuple[str, str], expected: tuple[str, str], cannot: str, address: paths.Address) -> str:
    """Returns the message of the 400 for an object of another kind or version; pairs are (apiVersion, kind)."""
    group, _, version = got[0].rpartition("/")
    if got[1] == expected[1] and group == address.resource.group and version in address.resource.versions:
        return f"the API version in the data ({got[0]}) does not match the expected API version ({expected[0]})"
    if schemas.of_kind(*got) is None:
        return f'{cannot}no kind "{got[1]}" is registered for version "{got[0]}" {SCHEME}'
    internal = f"{address.resource.group or 'core'}.{expected[1]}"
    return f"{cannot}converting ({got[0].rpartition('/')[2]}.{got[1]}) to ({internal}): unknown conversion"


def _unrecognized(kind: str, why: str, raw: bytes) -> errors.ApiError:
    shown = raw[:_SHOWN_BYTES].decode("utf-8", "replace") if raw[:1] == b"{" else raw[:_SHOWN_BYTES].hex()
    cut = " ..." if len(raw) > _SHOWN_BYTES else ""
    excerpt = f"{shown}{cut}" if raw else "<empty>"
    return errors.bad_request(f"the object provided is unrecognized (must be of type {kind}): {why} ({excerpt})")


def _decoded(media_type: str, raw: bytes, kind: str) -> Any:
    if media_type in ("application/json", "application/octet-stream"):
        try:
            return gojson.loads(raw)
        except gojson.SyntaxFault as problem:
            raise _unrecognized(kind, f"couldn't get version/kind; json parse error: {problem}", raw) from None
    if media_type == protobuf.MEDIA_TYPE:
        return protobuf.decode(raw)
    if media_type != "application/yaml":
        raise errors.unsupported_media_type(ACCEPTED)
    return from_yaml(raw)


def from_yaml(raw: bytes) -> Any:
    """Decodes YAML; raises ApiError 400."""
    try:
        return yaml.safe_load(raw)
    except yaml.YAMLError as problem:
        raise errors.bad_request(f"error converting YAML to JSON: {problem}") from problem


def delete_options(query: reads.Query, raw: bytes) -> writes.DeleteOptions:
    """Reads the options of a delete from its query, else from its DeleteOptions body; raises ApiError 400 or 422."""
    try:
        body = gojson.loads(raw) if raw.strip() else {}
    except gojson.SyntaxFault as problem:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {problem}") from None
    if bad_head := head_fault(body):
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {bad_head}")
    grace = query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))
    propagation = query.get("propagationPolicy") or body.get("propagationPolicy") or "Background"
    options.check_propagation(propagation)
    return writes.DeleteOptions(
        grace=None if grace is None else reads.whole_number(str(grace)),
        propagation=propagation,
        preconditions=body.get("preconditions") or {},
        dry_run="All" in (query.get("dryRun"), *(body.get("dryRun") or [])),
    )
