"""Decodes the body of a PATCH, applies it to the live object, and validates the result."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from multidict import CIMultiDict

from hpad.lab.cluster import admission, bodies, decoding, errors, gojson, patches, paths, reads, schemas
from hpad.lab.cluster.resources import Object

_ARRAY_OF: Final = "[]handlers.jsonPatchOp"
_OBJECT: Final = "map[string]interface {}"


def patched(media_type: str, raw: bytes, address: paths.Address, live: Object, query: reads.Query) -> bodies.Body:
    """Applies a patch to `live`, which has the version of the address; raises ApiError 400, 415 or 422."""
    if address.resource.is_custom and media_type == patches.STRATEGIC and address.subresource != "scale":
        raise errors.unsupported_media_type([each for each in patches.ACCEPTED if each != patches.STRATEGIC])
    patch = _read(media_type, raw)
    result = live if patch is None else patches.apply(media_type, live, patch)
    by_key = media_type == patches.STRATEGIC

    def refused(why: str, made: Object = result) -> errors.ApiError:
        shown = go_text(patch) if by_key else json.dumps(made, separators=(",", ":"))
        return errors.invalid("", "", "", [errors.wrong("patch", shown, why)])

    head = str(result.get("apiVersion")), str(result.get("kind"))
    schema = schemas.of_kind(*bodies.expected(address))
    if head != bodies.expected(address) and not by_key and schemas.of_kind(*head) is None:
        raise refused(f'no kind "{head[1]}" is registered for version "{head[0]}" {bodies.SCHEME}')
    result = {**result, "apiVersion": live["apiVersion"], "kind": live["kind"]}
    if schema is not None and (problem := decoding.fault(schema, result)):
        raise refused(_restored(problem) if by_key else problem)
    unknown = admission.unknown_fields(address.resource, result)
    return bodies.Body(result, _warnings(unknown, refused, raw, query))


def _warnings(
    unknown: list[str], refused: Callable[[str], errors.ApiError], raw: bytes, query: reads.Query
) -> CIMultiDict[str]:
    """Returns warnings of unknown and duplicate fields; raises ApiError 422 with fieldValidation=Strict."""
    strict = [f'unknown field "{each}"' for each in unknown]
    strict += [f'duplicate field "{each}"' for each in gojson.duplicates(raw) if not each.startswith("[")]
    if strict and query.get("fieldValidation") == "Strict":
        raise refused(f"strict decoding error: {', '.join(strict)}")
    return bodies.warnings(strict, query)


def _read(media_type: str, raw: bytes) -> Any:
    """Decodes a patch; None for `null`, which changes nothing. Raises ApiError 400 or 415."""
    if media_type not in patches.ACCEPTED:
        raise errors.ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    prefix = "" if media_type == patches.STRATEGIC else "error decoding patch: "
    try:
        patch = gojson.loads(raw)
    except gojson.SyntaxFault as problem:
        raise errors.bad_request(f"{prefix}{problem}") from None
    if patch is None and media_type == patches.MERGE:
        raise errors.bad_request("Invalid JSON Patch")
    expected, go_type = (list, _ARRAY_OF) if media_type == patches.JSON else (dict, _OBJECT)
    if patch is not None and not isinstance(patch, expected):
        raise errors.bad_request(
            f"{prefix}json: cannot unmarshal {gojson.kind_of(patch)} into Go value of type {go_type}"
        )
    if media_type == patches.JSON:
        for operation in patch or ():
            if not isinstance(operation, dict):
                kind = gojson.kind_of(operation)
                raise errors.bad_request(f"{prefix}json: cannot unmarshal {kind} into Go value of type {_ARRAY_OF[2:]}")
    return patch


def _restored(problem: str) -> str:
    """Converts a decoding error to that of a strategic merge, where the server builds the object from maps.

    Source: Kubernetes 1.36, apimachinery/pkg/runtime/converter.go: fromUnstructured.
    """
    if not problem.startswith("json: cannot unmarshal "):
        return problem
    what, _, rest = problem.removeprefix("json: cannot unmarshal ").partition(" into Go struct field ")
    value, kind = what.split(" ")[0], rest.rpartition(" ")[2]
    source = {"array": "slice", "object": "map", "number": "int64"}.get(value, value)
    if kind.startswith("[]"):
        return f"cannot restore slice from {source}"
    if kind.startswith("map["):
        return f"cannot restore map from {source}"
    if "." in kind:
        return f"cannot restore struct from: {source}"
    if value == "number":
        return f"cannot convert {'float64' if '.' in what else 'int64'} to {kind}"
    return f"unrecognized type: {kind}"


def go_text(value: Any) -> str:
    """Formats a value as Go's `%v` does."""
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{name}:{go_text(value[name])}' for name in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "<nil>" if value is None else str(value)


def applied(raw: bytes, address: paths.Address) -> Object:
    """Decodes the body of a server-side apply; raises ApiError 400, and 500 for invalid fields, as Kubernetes does."""
    try:
        body = bodies.from_yaml(raw)
    except errors.ApiError as problem:
        raise errors.bad_request(f"error decoding YAML: {problem.message}") from problem
    if not isinstance(body, dict):
        raise errors.bad_request(f"error decoding YAML: the patch must be an object, not {gojson.kind_of(body)}")
    got = str(body.get("apiVersion") or ""), str(body.get("kind") or "")
    if got != bodies.expected(address):
        group, _, version = got[0].rpartition("/")
        named = f"{group}/{version}" if group or not version else version
        raise errors.bad_request(f"invalid object type: {named}, Kind={got[1]}")
    metadata = body.get("metadata") or {}
    if address.name and metadata.get("name", address.name) != address.name:
        raise errors.other_name(metadata["name"], address.name)
    schema = schemas.of_kind(*got)
    where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {got[0]}, Kind={got[1]}"
    untyped = f"failed to create typed patch object ({where})"
    for path in admission.unknown_fields(address.resource, body):
        raise errors.without_reason(f"{untyped}: .{path}: field not declared in schema")
    if schema and (type_error := decoding.fault(schema, body)):
        raise errors.without_reason(f"{untyped}: {type_error}")
    return body
