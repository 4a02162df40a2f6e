"""Responses of discovery and OpenAPI, in the form that the request accepts.

API groups of aggregated API servers, registered by APIService objects, are listed and answered with 503. Requests are
not proxied. The cluster itself serves `metrics.k8s.io`; no other APIService has a server.
"""

import json
from collections.abc import Iterator
from typing import Final

from aiohttp import web

from hpad.lab.cluster import discovery, errors, openapi, pods
from hpad.lab.cluster.resources import API_SERVICES, Registry
from hpad.lab.cluster.store import Store

_CACHED: Final = {"Cache-Control": "public"}


def response(registry: Registry, store: Store, request: web.Request) -> web.Response:
    """Answers a GET outside of resources, with 404 in plain text for an unknown path.

    Raises ApiError 404 for an unknown version of a built-in group.
    """
    parts = [part for part in request.path.split("/") if part]
    if not parts:
        return web.json_response({"paths": list(_addresses(registry))})
    if parts[:1] == ["openapi"]:
        return _openapi(registry, parts[1:], request)
    accept = request.headers.get("Accept", "")
    aggregated = "as=APIGroupDiscoveryList" in accept and "v=v2" in accept.replace("v=v2beta1", "")
    elsewhere = registered(store)
    body = discovery.answer(registry, parts, aggregated=aggregated, host=request.host, elsewhere=elsewhere)
    if body is None:
        _check_group(registry, parts)
        return not_found()
    is_aggregated = body.get("kind") == "APIGroupDiscoveryList"
    headers = {"Content-Type": discovery.AGGREGATED, **_CACHED} if is_aggregated else {}
    return web.Response(body=json.dumps(body).encode(), headers={"Content-Type": "application/json", **headers})


def _openapi(registry: Registry, parts: list[str], request: web.Request) -> web.Response:
    if parts == ["v2"] and openapi.V2_ACCEPTED in request.headers.get("Accept", ""):
        return web.Response(body=openapi.v2_encoded(registry), headers={"Content-Type": openapi.V2_MEDIA_TYPE})
    if parts == ["v2"]:
        return web.json_response(openapi.v2_document(registry))
    if parts == ["v3"]:  # text/plain, as a real API server sends it
        return web.Response(text=json.dumps(openapi.index(registry)))
    document = openapi.document(registry, parts[1:]) if parts[:1] == ["v3"] else None
    if document is None:
        return web.Response(status=404) if parts[:1] == ["v3"] else not_found()
    return web.json_response(document, headers={"Etag": f'"{openapi.digest(document)}"'})


def _check_group(registry: Registry, parts: list[str]) -> None:
    """Raises ApiError 404 for an unknown version of a built-in group; other unknown groups get 404 in plain text."""
    root, group = parts[0], "" if parts[0] == "api" else parts[1] if len(parts) > 2 else None
    if root in ("api", "apis") and group in registry.groups() and len(parts) > 1:
        served = registry.in_version(group, registry.groups()[group][0])
        if any(not (each.is_custom or each.is_measured) for each in served):
            raise errors.unknown_resource()


def _addresses(registry: Registry) -> Iterator[str]:
    """Yields the paths that `/` lists, sorted."""
    roots = ["/api", "/apis"]
    for group, versions in registry.groups().items():
        here = f"/apis/{group}" if group else "/api"
        roots += [here, *(f"{here}/{version}" for version in versions)]
    yield from sorted({*roots, "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"})


def not_found() -> web.Response:
    return web.Response(status=404, text="404 page not found\n")


UNAVAILABLE: Final = "service unavailable\n"
UNREACHABLE: Final = "error trying to reach service: dial tcp: connect: connection refused\n"


def registered(store: Store) -> dict[tuple[str, str], bool]:
    """Maps group and version of each APIService with a service to whether its condition Available is True."""
    found = {}
    for obj in store.objects(API_SERVICES):
        spec = obj.get("spec") or {}
        if spec.get("service"):
            is_available = (pods.condition(obj, "Available") or {}).get("status") == "True"
            found[str(spec.get("group", "")), str(spec.get("version", ""))] = is_available
    return found


def refusal(store: Store, registry: Registry, path: str) -> str | None:
    """Returns the text of the 503 for a request to an aggregated group without a server; None for other requests."""
    root, _, rest = path.strip("/").partition("/")
    group, version, *_ = (*rest.split("/"), "", "")
    if root != "apis" or not version:
        return None
    is_available = registered(store).get((group, version))
    if is_available is None or (is_available and version in registry.groups().get(group, ())):
        return None
    return UNREACHABLE if is_available else UNAVAILABLE
