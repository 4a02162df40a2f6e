"""The subresource `proxy` of pods and services: passes GET requests on to a port of a pod.

Source: Kubernetes 1.36, pkg/registry/core/pod/strategy.go and pkg/registry/core/service/storage/storage.go:
ResourceLocation. Two things differ: the pods of this cluster are processes of this machine, so the address is always
127.0.0.1, which a kube-apiserver refuses; and the pods of a Service are those of its selector, without Endpoints.
"""

import itertools
from collections.abc import Iterator
from typing import Final, NamedTuple

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from hpad.lab.cluster import errors, pods
from hpad.lab.cluster.paths import Address
from hpad.lab.cluster.resources import PODS, Object
from hpad.lab.cluster.store import Store

_SECONDS: Final = 30.0
_DROPPED: Final = (
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"),
    *("upgrade", "content-length", "authorization"),
)
"""Headers of one connection, and the credentials of the client, which only the API server may see."""
_turns = itertools.count()


class _Backend(NamedTuple):
    scheme: str
    port: int


async def answer(store: Store, request: web.Request, address: Address) -> web.StreamResponse:
    """Passes a request on to the pod or service of `address`; raises ApiError."""
    backend = _of_pod(store, address) if address.resource == PODS else _of_service(store, address)
    url = URL(f"{backend.scheme}://127.0.0.1:{backend.port}{_rest(request)}", encoded=True)
    headers = CIMultiDict((name, value) for name, value in request.headers.items() if name.lower() not in _DROPPED)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(trust_env=False, timeout=timeout, auto_decompress=False) as session,
            session.get(url, headers=headers, allow_redirects=False, ssl=False) as found,
        ):
            return await _passed_on(request, found)
    except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
        raise unavailable(f"error trying to reach service: {error}") from None


async def _passed_on(request: web.Request, found: aiohttp.ClientResponse) -> web.StreamResponse:
    response = web.StreamResponse(status=found.status, reason=found.reason)
    response.headers.extend((name, value) for name, value in found.headers.items() if name.lower() not in _DROPPED)
    await response.prepare(request)
    async for piece in found.content.iter_any():
        await response.write(piece)
    await response.write_eof()
    return response


def unavailable(message: str) -> errors.ApiError:
    return errors.ApiError(503, "ServiceUnavailable", message)


def _rest(request: web.Request) -> str:
    """Returns what follows `/proxy` in the path as it was sent, with the query."""
    path, question, query = request.raw_path.partition("?")
    segments = path.split("/")
    return f"/{'/'.join(segments[8:])}{question}{query}"  # "", api, v1, namespaces, NAMESPACE, pods, NAME, proxy


def _of_pod(store: Store, address: Address) -> _Backend:
    scheme, name, port = _split(address)
    pod = store.get(PODS, address.namespace or "", name)
    if pods.phase(pod) != "Running":
        raise errors.bad_request("address not allowed")  # a kube-apiserver finds no IP address
    ports = [each for container in pod["spec"]["containers"] for each in container.get("ports") or ()]
    number = port or (str(ports[0]["containerPort"]) if ports else {"http": "80", "https": "443"}[scheme])
    if not number.isdigit():
        raise unavailable(f"error trying to reach service: dial tcp: lookup tcp/{number}: unknown port")
    return _Backend(scheme, int(number))


def _of_service(store: Store, address: Address) -> _Backend:
    scheme, name, port = _split(address)
    service = store.get(address.resource, address.namespace or "", name)
    entry = _entry(service, port)
    members = list(_members(store, service))
    if not members:
        raise unavailable(f'no endpoints available for service "{name}"')
    unready = bool(service["spec"].get("publishNotReadyAddresses"))
    ready = [pod for pod in members if unready or pods.is_ready(pod)]
    numbers = [number for pod in ready for number in _numbers(pod, entry)]
    if not numbers:
        raise unavailable(f'no endpoints available for service "{address.name}"')
    return _Backend(scheme, numbers[next(_turns) % len(numbers)])


def _entry(service: Object, port: str) -> Object:
    """Returns the port of a Service with this number or name, {} for an unknown name; raises ApiError 503."""
    declared = service["spec"].get("ports") or []
    if not port.isdigit():
        return next((each for each in declared if each.get("name", "") == port), {})
    found: Object | None = next((each for each in declared if each["port"] == int(port)), None)
    if found is None:
        raise unavailable(f'no service port {port} found for service "{service["metadata"]["name"]}"')
    return found


def _split(address: Address) -> tuple[str, str, str]:
    """Splits `web`, `web:80` and `https:web:80` into scheme, name and port ("" if there is none).

    Source: Kubernetes 1.36, apimachinery/pkg/util/net/port_split.go: SplitSchemeNamePort.
    """
    parts = address.name.split(":")
    scheme = parts.pop(0) if len(parts) == 3 else "http"
    name, port = (*parts, "")[:2]
    if len(parts) > 2 or scheme not in ("", "http", "https") or not name:
        raise errors.bad_request(f'invalid {address.resource.kind.lower()} request "{address.name}"')
    return scheme or "http", name, port


def _members(store: Store, service: Object) -> Iterator[Object]:
    """Yields the running pods of the selector of a Service, ready or not."""
    wanted: Object = service["spec"].get("selector") or {}
    for pod in store.objects(PODS, service["metadata"]["namespace"]):
        labels = pod["metadata"].get("labels") or {}
        if wanted and wanted.items() <= labels.items() and pods.phase(pod) == "Running":
            yield pod


def _numbers(pod: Object, entry: Object) -> Iterator[int]:
    """Yields the number of the target port of a Service in one pod, if the pod has a port of that name."""
    target: str | int | None = entry.get("targetPort")
    if isinstance(target, int):
        yield target
        return
    ports = [each for container in pod["spec"]["containers"] for each in container.get("ports") or ()]
    yield from [each["containerPort"] for each in ports if target and each.get("name") == target][:1]
