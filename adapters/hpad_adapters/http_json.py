"""Numbers from JSON documents that HTTP servers publish.

The configuration names the document and the place of the number in it. An HPA chooses a metric by its name
and may set the URL parameters that the configuration lists.
"""

import asyncio
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import msgspec

from hpad.adapter import (
    EXTERNAL,
    AdapterError,
    Answer,
    Context,
    ExternalSample,
    Quantity,
    Query,
    meant,
    or_error,
    positive_duration,
    shown,
)
from hpad.adapter_http import Http, HttpOptions, SecretRef, TlsOptions, decoded, url_error

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[(\*)\]")
_INT64 = range(-(2**63), 2**63)

_JSON = msgspec.json.Decoder()

Step = str | int | None


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The place of a metric's number.

    url: the document. path: the number in it: names with dots between, [0] for an element of a list, [*] for each of
    its elements (whose values count together), such as "queues[0].depth" or "shards[*].backlog"; "" for a document that
    is only a number. params: the labels that the metric's selector must give, sent as parameters of the URL.
    """

    url: str
    path: str
    params: list[str] = []

    def __post_init__(self) -> None:
        if error := url_error(self.url, ("http", "https"), "http://host/path"):
            raise ValueError(f"url: {error}")
        if urllib.parse.urlsplit(self.url).fragment:
            raise ValueError(f'url: {shown(self.url)} is not of the form "http://host/path"')
        steps(self.path)


class HttpJsonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """metrics: name -> the place of its number.

    headers: sent with each request; a value may be {file: …} or {env: …}, which is read again for each request.
    ca: a PEM file to trust instead of the system's, loaded again when it changes; insecure: trust any certificate.
    proxy: the URL of an HTTP proxy. max_bytes, max_elements: a document with more bytes, or with more values, lists and
    objects, is refused, and only its own metrics fail. request_timeout: of one document.
    """

    renamed: ClassVar[Mapping[str, str]] = {"header_files": "headers: {NAME: {file: …}}"}

    metrics: dict[str, Metric]
    headers: dict[str, str | SecretRef] = {}
    ca: str = ""
    insecure: bool = False
    proxy: str = ""
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 1 << 20
    max_elements: Annotated[int, msgspec.Meta(ge=1)] = 50_000
    request_timeout: str = "5s"

    def __post_init__(self) -> None:
        self.http_options()

    def __repr__(self) -> str:
        return f"HttpJsonSettings(metrics={self.metrics!r}, …)"

    def http_options(self) -> HttpOptions:
        """Returns the options of requests; raises ValueError."""
        timeout = positive_duration("request_timeout", self.request_timeout).total_seconds()
        return HttpOptions(
            headers=self.headers,
            tls=TlsOptions(ca=self.ca, insecure=self.insecure),
            proxy=self.proxy,
            timeout=timeout,
            connect_timeout=timeout,
            max_bytes=self.max_bytes,
        )


class HttpJson:
    """External metrics from JSON documents; each document is fetched once per batch."""

    serves = frozenset({EXTERNAL})
    metrics: tuple[str, ...] = ()
    Settings = HttpJsonSettings

    def __init__(self, settings: HttpJsonSettings, context: Context) -> None:
        self.metrics = tuple(settings.metrics)
        self._settings = settings
        self._clock = context.clock
        self._http = Http(context, settings.http_options())

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Returns a sample or an error per query; each document is fetched once."""
        urls = [self._url(query) for query in queries]
        distinct = list(dict.fromkeys(url for url in urls if isinstance(url, str)))
        bodies = await asyncio.gather(*(or_error(self._body(url)) for url in distinct))
        return await asyncio.to_thread(self._samples, queries, urls, dict(zip(distinct, bodies, strict=True)))

    def group(self, query: Query) -> str | None:
        """Returns the URL of the document: one request serves all the numbers in it."""
        url = self._url(query)
        return None if isinstance(url, AdapterError) else url

    async def aclose(self) -> None:
        """Does nothing: hpad closes the session."""

    def _url(self, query: Query) -> str | AdapterError:
        metric = self._settings.metrics.get(query.name)
        if metric is None:
            known = ", ".join(self._settings.metrics)
            hint = meant(query.name, self._settings.metrics)
            return AdapterError(f'there is no metric "{query.name}"{hint}; there are {known}', "spec")
        parameters: dict[str, str] = {}
        for term in query.selector.requirements if query.selector is not None else ():
            if term.operator.value not in ("=", "==") or term.key not in metric.params:
                listed = ", ".join(f"{name}=…" for name in metric.params) or "no selector"
                return AdapterError(f'metric "{query.name}" cannot be selected by "{term}"; it takes {listed}', "spec")
            parameters[term.key] = term.values[0]
        missing = [name for name in metric.params if name not in parameters]
        if missing:
            return AdapterError(f'metric "{query.name}" needs a selector with {missing[0]}=…', "spec")
        if not parameters:
            return metric.url
        return f"{metric.url}{'&' if '?' in metric.url else '?'}{urllib.parse.urlencode(parameters)}"

    async def _body(self, url: str) -> bytes:
        response = await self._http.fetch(url, name=_name(url))
        if response.status != 200:
            raise AdapterError(f"{_name(url)} answers {response.status}")
        return response.body

    def _samples(
        self, queries: Sequence[Query], urls: Sequence[str | AdapterError], bodies: Mapping[str, bytes | AdapterError]
    ) -> list[Answer]:
        """Decodes the documents. Runs in a thread, because a document may hold `max_elements` numbers."""
        documents = {url: self._decoded(url, body) for url, body in bodies.items()}
        return [
            url if isinstance(url, AdapterError) else self._sample(query, documents[url])
            for query, url in zip(queries, urls, strict=True)
        ]

    def _decoded(self, url: str, body: bytes | AdapterError) -> Any:
        """Returns the document, or an AdapterError."""
        if isinstance(body, AdapterError):
            return body
        try:
            return decoded(_JSON, body, _name(url), "JSON", max_elements=self._settings.max_elements)
        except AdapterError as error:
            return _unfit(error.message, lasting=error.lasting)

    def _sample(self, query: Query, document: Any) -> Answer:
        if isinstance(document, AdapterError):
            return document
        path = self._settings.metrics[query.name].path
        try:
            values = tuple(_milli(value) for value in _found(document, steps(path)))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            return _unfit(f'metric "{query.name}": there is no number at "{path}" of the document: {_reason(error)}')
        if not values:
            return _unfit(f'metric "{query.name}": the list at "{path}" of the document is empty')
        return ExternalSample(values, self._clock.now())


def _unfit(message: str, *, lasting: bool = False) -> AdapterError:
    """Makes an error of one document: the server has answered, and its other documents may be valid."""
    return AdapterError(message, lasting=lasting, alive=True)


def _name(url: str) -> str:
    """Returns the document's name in errors: its URL without parameters, whose values may come from an HPA."""
    return urllib.parse.urlsplit(url)._replace(query="").geturl()


def steps(path: str) -> list[Step]:
    """Parses a path into names, positions, and None for every element of a list. Raises ValueError."""
    found: list[Step] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or (match.start() == 0 and match.group().startswith(".")):
            raise ValueError(f'path: {shown(path)} is not of the form "queues[0].depth"')
        found.append(match[1] if match[1] else int(match[2]) if match[2] else None)
        position = match.end()
    return found


def _found(document: Any, path: Sequence[Step]) -> list[Any]:
    """Returns the values at the end of the path; raises KeyError, IndexError or TypeError if a step is absent."""
    values = [document]
    for step in path:
        if step is None:
            values = [element for value in values for element in _list(value)]
        elif isinstance(step, int):
            values = [_list(value)[step] for value in values]
        else:
            values = [value[step] for value in values]
    return values


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _milli(value: Any) -> int:
    """Returns thousandths of a JSON number, or of a number in quotes; raises ValueError, TypeError."""
    # In Python a bool is an int.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    milli = value * 1000 if isinstance(value, int) else Quantity.parse(value).milli()
    if milli not in _INT64:
        raise ValueError
    return milli


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no {shown(error.args[0])}"
    return "the list is too short" if isinstance(error, IndexError) else "the value there is of another kind"
