"""Requests of documents: from a URL, or from each pod of a Service."""

import asyncio
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from hpad.adapter import AdapterError, Context, Member, Query, or_error, public
from hpad.adapter_http import Http, Request, first_line
from hpad_adapters.http_json import endpoints, times
from hpad_adapters.http_json.settings import Format, HttpJsonSettings, Metric

_CONCURRENCY: Final = 16
_ACCEPT: Final[Mapping[Format, str]] = {
    "json": "application/json",
    "xml": "application/xml, text/xml;q=0.9, */*;q=0.1",
    "yaml": "application/yaml, text/yaml;q=0.9, */*;q=0.1",
    "prometheus": "text/plain;version=0.0.4, */*;q=0.1",
}


class Document(msgspec.Struct, frozen=True):
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


def document(query: Query, metric: Metric) -> Document:
    """Returns what the metric of a query is read from; raises AdapterError for an unfit selector."""
    url = _url(metric, _parameters(query, metric))
    method = metric.method or ("GET" if metric.body is None else "POST")
    service = metric.service if metric.pods is not None else None
    return Document(url, metric.format, method, metric.content, metric.content_type, service)


class Fetcher:
    """Fetches documents; of all Services together, from a bounded number of pods at a time."""

    def __init__(self, settings: HttpJsonSettings, context: Context) -> None:
        self._settings = settings
        self._api = context.api
        self._clock = context.clock
        options = settings.http_options()
        self._timeout = options.timeout
        self._http = Http(context, options)
        self._semaphore = asyncio.Semaphore(_CONCURRENCY)

    async def parts(self, document: Document) -> Sequence[Part]:
        """Returns the answer of the server, or of each pod, whose errors are part of it; raises AdapterError."""
        if document.service is not None:
            return await self._of_pods(document, document.service)
        name = public(document.url)
        return [Part(name, await self._body(self._filled(document, document.url, name)))]

    async def of_members(self, document: Document, members: Sequence[Member]) -> Sequence[Part]:
        """Returns the answer of each pod that has an address, whose errors are part of it; the parts have their names.

        One timeout holds for all.
        """
        deadline = asyncio.get_running_loop().time() + self._timeout
        known = [each for each in members if each.address]
        requests = [self._request(document, endpoints.at(each.name, each.address, document.url)) for each in known]
        bodies = await asyncio.gather(*(self._answer(request, deadline) for request in requests))
        return [Part(each.name, body) for each, body in zip(known, bodies, strict=True)]

    async def _of_pods(self, document: Document, service: tuple[str, str]) -> Sequence[Part]:
        # One timeout for all: many pods that hang must not use up the time of the other documents of a batch.
        deadline = asyncio.get_running_loop().time() + self._timeout
        try:
            async with asyncio.timeout_at(deadline):
                found = await endpoints.pods(self._api, service, document.url, self._settings.max_pods)
        except TimeoutError:
            raise AdapterError(f"the API server did not answer within {self._timeout:g}s", "cluster") from None
        requests = [self._request(document, pod) for pod in found]
        bodies = await asyncio.gather(*(self._answer(request, deadline) for request in requests))
        return [Part(request.name, body) for request, body in zip(requests, bodies, strict=True)]

    def _request(self, document: Document, pod: endpoints.Pod) -> Request:
        """Returns the request to a pod, with the Host header and the certificate's name of its Service."""
        of = urllib.parse.urlsplit(document.url)
        return msgspec.structs.replace(
            self._filled(document, pod.url, f"pod {pod.name} ({public(pod.url)})"),
            headers={**document.headers, "Host": of.netloc},
            server_name=self._settings.server_name or of.hostname or "",
        )

    def _filled(self, document: Document, url: str, name: str) -> Request:
        now = self._clock.now()
        return Request(
            url=times.filled(url, now),
            name=name,
            method=document.method,
            content=None if document.content is None else times.filled(document.content, now).encode(),
            headers=document.headers,
        )

    async def _answer(self, request: Request, deadline: float) -> bytes | AdapterError:
        # A coroutine that is passed on, and then cancelled before it starts, was never awaited, which Python reports.
        return await or_error(self._in_time(request, deadline))

    async def _in_time(self, request: Request, deadline: float) -> bytes:
        try:
            async with asyncio.timeout_at(deadline), self._semaphore:
                return await self._body(request)
        except TimeoutError:
            raise AdapterError(f"{request.name} did not answer within {self._timeout:g}s") from None

    async def _body(self, request: Request) -> bytes:
        response = await self._http.send(request)
        if response.status != 200:
            raise AdapterError(f"{request.name} answers {response.status}{first_line(response.body)}")
        return response.body


def _parameters(query: Query, metric: Metric) -> dict[str, str]:
    """Returns the parameters of the URL that the query's selector gives; raises AdapterError."""
    parameters: dict[str, str] = {}
    for term in query.selector.requirements if query.selector is not None else ():
        if term.operator.value not in ("=", "==") or term.key not in metric.params:
            listed = ", ".join(f"{name}=…" for name in metric.params) or "no selector"
            raise AdapterError(f'metric "{query.name}" cannot be selected by "{term}"; it takes {listed}', "spec")
        parameters[term.key] = term.values[0]
    missing = [name for name in metric.params if name not in parameters]
    if missing:
        raise AdapterError(f'metric "{query.name}" needs a selector with {missing[0]}=…', "spec")
    return parameters


def _url(metric: Metric, parameters: Mapping[str, str]) -> str:
    if not parameters:
        return metric.url
    return f"{metric.url}{'&' if '?' in metric.url else '?'}{urllib.parse.urlencode(parameters)}"
