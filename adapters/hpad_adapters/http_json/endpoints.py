"""The ready pods of a Service, from its EndpointSlices.

Source: Kubernetes, API discovery.k8s.io/v1 EndpointSlice; "EndpointSlices" of its documentation (conditions, dual
stack, duplicate endpoints).
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from hpad.adapter import AdapterError, ApiReader

_FAMILIES: Final = ("IPv4", "IPv6")
_SERVICE_LABEL: Final = "kubernetes.io/service-name"
_MOST_SLICES: Final = 100


class _Port(msgspec.Struct, frozen=True):
    port: int | None = None


class _Conditions(msgspec.Struct, frozen=True):
    ready: bool | None = None


class _Reference(msgspec.Struct, frozen=True):
    name: str = ""


class _Endpoint(msgspec.Struct, frozen=True, rename="camel"):
    addresses: tuple[str, ...] = ()
    conditions: _Conditions | None = None
    target_ref: _Reference | None = None

    @property
    def is_ready(self) -> bool:
        # An absent condition counts as ready, as for every consumer of the API.
        return bool(self.addresses) and (self.conditions is None or self.conditions.ready is not False)


class _Slice(msgspec.Struct, frozen=True, rename="camel"):
    address_type: str = ""
    endpoints: tuple[_Endpoint, ...] | None = ()
    ports: tuple[_Port, ...] | None = ()

    @property
    def numbers(self) -> set[int]:
        return {each.port for each in self.ports or () if each.port is not None}


class _Metadata(msgspec.Struct, frozen=True, rename={"more": "continue"}):
    more: str = ""


class _Slices(msgspec.Struct, frozen=True):
    items: tuple[_Slice, ...] = ()
    metadata: _Metadata = _Metadata()


_SLICES: Final = msgspec.json.Decoder(_Slices)


class Pod(msgspec.Struct, frozen=True):
    """A pod of a Service: its name, or its address where the slice names none, and the URL of its document."""

    name: str
    url: str


async def pods(api: ApiReader | None, service: tuple[str, str], url: str, max_pods: int) -> list[Pod]:
    """Returns the ready pods of a Service (name, namespace), each with `url` at its own address.

    The port is that of the URL, which the pods listen on; without one, the only port of the slices. Of a dual-stack
    Service the pods are asked by one family of addresses. Raises AdapterError.
    """
    name, namespace = service
    where = f'Service "{name}" of namespace {namespace}'
    if api is None:
        raise AdapterError(f"{where}: hpad runs without an API server, so its pods are unknown", "spec")
    path = f"/apis/discovery.k8s.io/v1/namespaces/{quote(namespace)}/endpointslices"
    body = await api.get(path, {"labelSelector": f"{_SERVICE_LABEL}={name}", "limit": str(_MOST_SLICES)})
    try:
        listed = _SLICES.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise AdapterError(f"{where}: the API server answered something other than EndpointSlices") from None
    # Endpoints can be in two slices for a moment.
    found = {pod.url: pod for pod in _pods(_of_one_family(listed.items), url, where)}
    if listed.metadata.more or len(found) > max_pods:
        raise AdapterError(f"{where} has more than max_pods ({max_pods}) ready pods", lasting=True, alive=True)
    if not found:
        raise AdapterError(f"{where} has no ready pods, or does not exist", alive=True)
    return list(found.values())


def at(name: str, address: str, url: str) -> Pod:
    """Returns a pod with `url` at its address."""
    parts = urlsplit(url)
    host = f"[{address}]" if ":" in address else address
    port = "" if parts.port is None else f":{parts.port}"
    return Pod(name, parts._replace(netloc=f"{host}{port}").geturl())


def _of_one_family(slices: Iterable[_Slice]) -> list[_Slice]:
    ready = [each for each in slices if any(endpoint.is_ready for endpoint in each.endpoints or ())]
    families = ([each for each in ready if each.address_type == family] for family in _FAMILIES)
    return next((family for family in families if family), [])


def _pods(slices: Iterable[_Slice], url: str, where: str) -> Iterable[Pod]:
    parts = urlsplit(url)
    for each in slices:
        port = _port(each, parts.port, where)
        for endpoint in each.endpoints or ():
            if endpoint.is_ready:
                address = endpoint.addresses[0]
                host = f"[{address}]" if ":" in address else address
                name = endpoint.target_ref.name if endpoint.target_ref is not None else ""
                yield Pod(name or address, parts._replace(netloc=f"{host}:{port}").geturl())


def _port(slice_: _Slice, wanted: int | None, where: str) -> int:
    offered = slice_.numbers
    if wanted is None and len(offered) == 1:
        return next(iter(offered))
    if wanted in offered:
        return int(wanted or 0)
    listed = ", ".join(map(str, sorted(offered))) or "no port"
    missing = "no port in the url" if wanted is None else f"port {wanted} of the url is none of its pods"
    raise AdapterError(f"{where}: {missing}; write the port of the pods, not of the Service: {listed}", "spec")
