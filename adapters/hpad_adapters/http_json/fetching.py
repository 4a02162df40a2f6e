"""Requests of documents: from a URL, or from each pod of a Service."""

import asyncio
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from hpad.adapter import AdapterError, ApiReader, Context, Member, Query, or_error, public
from hpad.adapter_http import UNDECODABLE, Http, Request, first_line
from hpad_adapters.http_json import settings
from hpad_adapters.http_json.settings import Format, HttpJsonSettings, Metric
from hpad_adapters.lists import ListMetadata
from hpad_adapters.selection import labels

# The ready pods of a Service, from its EndpointSlices.
#
# Source: Kubernetes, API discovery.k8s.io/v1 EndpointSlice; "EndpointSlices" of its documentation (conditions, dual
# stack, duplicate endpoints).

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


class _Slices(msgspec.Struct, frozen=True):
    items: tuple[_Slice, ...] = ()
    metadata: ListMetadata = ListMetadata()


_SLICES: Final = msgspec.json.Decoder(_Slices)


class EndpointPod(msgspec.Struct, frozen=True):
    """A pod of a Service: its name, or its address where the slice names none, and the URL of its document."""

    name: str
    url: str


async def pods(api: ApiReader | None, service: tuple[str, str], url: str, max_pods: int) -> list[EndpointPod]:
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
    except UNDECODABLE:
        raise AdapterError(f"{where}: the API server answered something other than EndpointSlices") from None
    # Endpoints can be in two slices for a moment.
    found = {pod.url: pod for pod in _pods(_of_one_family(listed.items), url, where)}
    if listed.metadata.more or len(found) > max_pods:
        raise AdapterError(f"{where} has more than max_pods ({max_pods}) ready pods", alive=True)
    if not found:
        raise AdapterError(f"{where} has no ready pods, or does not exist", alive=True)
    return list(found.values())


def at(name: str, address: str, url: str, port: int | None) -> EndpointPod:
    """Returns a pod with `url` at its address and port; None: the default port of the scheme."""
    host = f"[{address}]" if ":" in address else address
    netloc = host if port is None else f"{host}:{port}"
    return EndpointPod(name, urlsplit(url)._replace(netloc=netloc).geturl())


def _of_one_family(slices: Iterable[_Slice]) -> list[_Slice]:
    ready = [each for each in slices if any(endpoint.is_ready for endpoint in each.endpoints or ())]
    families = ([each for each in ready if each.address_type == family] for family in _FAMILIES)
    return next((family for family in families if family), [])


def _pods(slices: Iterable[_Slice], url: str, where: str) -> Iterable[EndpointPod]:
    for each in slices:
        port = _port(each, urlsplit(url).port, where)
        for endpoint in each.endpoints or ():
            if endpoint.is_ready:
                address = endpoint.addresses[0]
                name = endpoint.target_ref.name if endpoint.target_ref is not None else ""
                yield at(name or address, address, url, port)


def _port(slice_: _Slice, wanted: int | None, where: str) -> int:
    offered = slice_.numbers
    if wanted is None and len(offered) == 1:
        return next(iter(offered))
    if wanted in offered:
        return int(wanted or 0)
    listed = ", ".join(map(str, sorted(offered))) or "no port"
    missing = "no port in the url" if wanted is None else f"port {wanted} of the url is none of its pods"
    raise AdapterError(f"{where}: {missing}; write the port of the pods, not of the Service: {listed}", "spec")


_CONCURRENCY: Final = 16
_OWN_AT_ONCE: Final = 8
"""Documents that only Autoscalers ask for; the other connections of the source stay free for the configured ones."""
_ACCEPT: Final[Mapping[Format, str]] = {
    "json": "application/json",
    "xml": "application/xml, text/xml;q=0.9, */*;q=0.1",
    "yaml": "application/yaml, text/yaml;q=0.9, */*;q=0.1",
    "prometheus": "text/plain;version=0.0.4, */*;q=0.1",
}


class FetchedDocument(msgspec.Struct, frozen=True):
    """What one request, or one request to each pod of a Service, returns; equal for metrics that share it.

    `url` and `content` have places for times.
    """

    url: str
    format: Format
    method: str
    content: str | None
    content_type: str
    service: tuple[str, str] | None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request."""
        kind = {} if self.content is None else {"Content-Type": self.content_type}
        return {"Accept": _ACCEPT[self.format], **kind}


class Part(msgspec.Struct, frozen=True):
    """The answer of one server or pod, whose name is for errors."""

    name: str
    body: bytes | AdapterError


def document(query: Query, metric: Metric) -> FetchedDocument:
    """Returns what the metric of a query is read from; raises AdapterError for an unfit selector."""
    url = _url(metric, labels(query, metric.params))
    method = metric.method or ("GET" if metric.body is None else "POST")
    service = metric.service if metric.pods is not None else None
    return FetchedDocument(url, metric.format, method, metric.content, metric.content_type, service)


class Fetcher:
    """Fetches documents; of all Services together, from a bounded number of pods at a time."""

    def __init__(self, settings: HttpJsonSettings, context: Context) -> None:
        self._settings = settings
        self._api = context.api
        self._clock = context.clock
        options = settings.http_options()
        self._timeout = context.within(options.timeout)
        self._http = Http(context, options)
        self._semaphore = asyncio.Semaphore(_CONCURRENCY)
        self._of_own = asyncio.Semaphore(_OWN_AT_ONCE)

    async def parts(self, document: FetchedDocument, *, own: bool = False) -> Sequence[Part]:
        """Returns the answer of the server, or of each pod, whose errors are part of it; raises AdapterError.

        `own`: only Autoscalers ask for the document. There may be thousands of these.
        """
        if document.service is not None:
            return await self._of_pods(document, document.service)
        request = self._filled(document, document.url, public(document.url))
        body = self._in_time(request, self._deadline(), self._of_own) if own else self._body(request)
        return [Part(request.name, await body)]

    async def of_members(self, document: FetchedDocument, members: Sequence[Member]) -> Sequence[Part]:
        """Returns the answer of each pod that has an address, whose errors are part of it; the parts have their names.

        One timeout holds for all.
        """
        deadline = self._deadline()
        known = [each for each in members if each.address]
        url, port = document.url, urlsplit(document.url).port
        requests = [self._request(document, at(each.name, each.address, url, port)) for each in known]
        bodies = await self._answers(requests, deadline)
        return [Part(each.name, body) for each, body in zip(known, bodies, strict=True)]

    async def _of_pods(self, document: FetchedDocument, service: tuple[str, str]) -> Sequence[Part]:
        # One timeout for all: many pods that hang must not use up the time of the other documents of a batch.
        deadline = self._deadline()
        try:
            async with asyncio.timeout_at(deadline):
                found = await pods(self._api, service, document.url, self._settings.max_pods)
        except TimeoutError:
            raise AdapterError(f"the API server did not answer within {self._timeout:g}s", "cluster") from None
        requests = [self._request(document, pod) for pod in found]
        bodies = await self._answers(requests, deadline)
        return [Part(request.name, body) for request, body in zip(requests, bodies, strict=True)]

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout

    def _request(self, document: FetchedDocument, pod: EndpointPod) -> Request:
        """Returns the request to a pod, with the Host header and the certificate's name of its Service."""
        of = urllib.parse.urlsplit(document.url)
        return msgspec.structs.replace(
            self._filled(document, pod.url, f"pod {pod.name} ({public(pod.url)})"),
            headers={**document.headers, "Host": of.netloc},
            server_name=self._settings.server_name or of.hostname or "",
        )

    def _filled(self, document: FetchedDocument, url: str, name: str) -> Request:
        now = self._clock.now()
        return Request(
            url=settings.with_times(url, now),
            name=name,
            method=document.method,
            content=None if document.content is None else settings.with_times(document.content, now).encode(),
            headers=document.headers,
        )

    async def _answers(self, requests: Sequence[Request], deadline: float) -> list[bytes | AdapterError]:
        return await asyncio.gather(*(or_error(self._in_time, each, deadline, self._semaphore) for each in requests))

    async def _in_time(self, request: Request, deadline: float, free: asyncio.Semaphore) -> bytes:
        try:
            async with asyncio.timeout_at(deadline), free:
                return await self._body(request)
        except TimeoutError:
            raise AdapterError(f"{request.name} did not answer within {self._timeout:g}s") from None

    async def _body(self, request: Request) -> bytes:
        response = await self._http.send(request)
        if response.status != 200:
            raise AdapterError(f"{request.name} answers {response.status}{first_line(response.body)}")
        return response.body


def _url(metric: Metric, parameters: Mapping[str, str]) -> str:
    if not parameters:
        return metric.url
    return f"{metric.url}{'&' if '?' in metric.url else '?'}{urllib.parse.urlencode(parameters)}"
