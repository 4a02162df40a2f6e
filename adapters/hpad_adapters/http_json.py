"""A number out of a JSON document that some HTTP endpoint serves.

The operator writes down where the document is and where in it the number stands. An HPA's author chooses a metric by
its name, and may give values to those parameters of the URL that the operator listed.
"""

import asyncio
import os
import re
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import msgspec
import yarl

from hpad.adapter import (
    EXTERNAL,
    AdapterError,
    Answer,
    Context,
    ExternalSample,
    Quantity,
    Query,
    meant,
    parse_duration,
    read_part,
    reason,
    shown,
)

_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]|\[(\*)\]")
_TEXT = re.compile(rb'"[^"\\]*(?:\\(?:.|\Z)[^"\\]*)*(?:"|\Z)', re.DOTALL)
"""A text, up to the end of the document where it is not closed: it matches at each quote, and so takes linear time."""
_INT64 = range(-(2**63), 2**63)

Step = str | int | None
_Stamp = tuple[int, int, int]


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a metric's number is.

    url: the document. path: the number in it: names with dots between, [0] for an element of a list, [*] for each of
    its elements (whose values count together), such as "queues[0].depth" or "shards[*].backlog"; "" for a document that
    is but a number. params: the labels that the metric's selector must give, sent as parameters of the URL.
    """

    url: str
    path: str
    params: list[str] = []

    def __post_init__(self) -> None:
        try:
            parts = urllib.parse.urlsplit(self.url)
            bad_port = parts.port == 0
        except ValueError:
            raise ValueError("url: no URL, or no number for a port") from None
        if "@" in parts.netloc:
            raise ValueError("url: leave credentials out of it; write headers: {Authorization: {file: …}}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment or bad_port:
            raise ValueError(f'url: {shown(self.url)} is not of the form "http://host/path"')
        steps(self.path)


class Elsewhere(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A value that is kept elsewhere.

    file: whose content it is.
    """

    file: str


class HttpJsonSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """metrics: name -> where it is.

    headers: sent with each request; a value may be {file: …}, which is read for each batch.
    ca: a PEM file to trust instead of the system's, read again when it changes; insecure: trust any certificate.
    max_bytes, max_elements: a document with more bytes, or with more values, lists and objects, is refused, which
    spoils its own metrics alone. request_timeout: of one document, for the same reason.
    """

    renamed: ClassVar[Mapping[str, str]] = {"header_files": "headers: {NAME: {file: …}}"}

    metrics: dict[str, Metric]
    headers: dict[str, str | Elsewhere] = {}
    ca: str = ""
    insecure: bool = False
    max_bytes: int = 1 << 20
    max_elements: int = 50_000
    request_timeout: str = "5s"

    def __post_init__(self) -> None:
        if self.max_bytes < 1 or self.max_elements < 1:
            raise ValueError("max_bytes and max_elements are numbers of 1 or more")
        if self.seconds <= 0:
            raise ValueError(f"request_timeout: {shown(self.request_timeout)} is not a duration above zero")

    @property
    def seconds(self) -> float:
        """The timeout; raises ValueError."""
        return parse_duration(self.request_timeout).total_seconds()

    def __repr__(self) -> str:
        return f"HttpJsonSettings(metrics={self.metrics!r}, …)"


class HttpJson:
    """External metrics from JSON documents; each document is fetched once per batch."""

    serves = frozenset({EXTERNAL})
    metrics: tuple[str, ...] = ()
    Settings = HttpJsonSettings

    def __init__(self, settings: HttpJsonSettings, context: Context) -> None:
        self.metrics = tuple(settings.metrics)
        self._settings = settings
        self._context = context
        self._tls: tuple[_Stamp, ssl.SSLContext] | None = None

    async def answer(self, queries: Sequence[Query]) -> list[Answer]:
        """Every number, or why there is none."""
        urls = [self._url(query) for query in queries]
        wanted = list(dict.fromkeys(url for url in urls if isinstance(url, str)))
        opened = await asyncio.to_thread(self._opened)
        bodies = dict(zip(wanted, await asyncio.gather(*(self._fetched(url, opened) for url in wanted)), strict=True))
        return await asyncio.to_thread(self._samples, queries, urls, bodies)

    def group(self, query: Query) -> str | None:
        """A document is fetched once for all the numbers in it."""
        url = self._url(query)
        return None if isinstance(url, AdapterError) else url

    async def aclose(self) -> None:
        """Nothing to let go of: the session is hpad's."""

    def _url(self, query: Query) -> str | AdapterError:
        metric = self._settings.metrics.get(query.name)
        if metric is None:
            known = ", ".join(self._settings.metrics)
            hint = meant(query.name, self._settings.metrics)
            return AdapterError(f'there is no metric "{query.name}"{hint}; there are {known}', "spec")
        given: dict[str, str] = {}
        for term in query.selector.requirements if query.selector is not None else ():
            if term.operator.value not in ("=", "==") or term.key not in metric.params:
                listed = ", ".join(f"{name}=…" for name in metric.params) or "no selector"
                return AdapterError(f'metric "{query.name}" cannot be selected by "{term}"; it takes {listed}', "spec")
            given[term.key] = term.values[0]
        missing = [name for name in metric.params if name not in given]
        if missing:
            return AdapterError(f'metric "{query.name}" needs a selector with {missing[0]}=…', "spec")
        if not given:
            return metric.url
        return f"{metric.url}{'&' if '?' in metric.url else '?'}{urllib.parse.urlencode(given)}"

    def _opened(self) -> "_Opened | AdapterError":
        """What the settings keep in files; blocks."""
        headers: dict[str, str] = {}
        for name, value in self._settings.headers.items():
            try:
                headers[name] = (
                    value if isinstance(value, str) else Path(value.file).read_text(encoding="utf-8").strip()
                )
            except (OSError, UnicodeDecodeError):
                file = value if isinstance(value, str) else value.file
                return AdapterError(f"headers: {name}: {file} cannot be read")
        if any(character in text for text in headers.values() for character in "\r\n\0"):
            return AdapterError("headers: a value holds a line break, so that no header can carry it")
        try:
            return _Opened(headers, self._trusted())
        except OSError:  # ssl.SSLError among them
            return AdapterError(f"ca: {self._settings.ca} cannot be used")

    def _trusted(self) -> ssl.SSLContext | bool:
        """What aiohttp takes as `ssl`: loaded again when the CA file has changed. Raises OSError."""
        if self._settings.insecure or not self._settings.ca:
            return not self._settings.insecure
        status = os.stat(self._settings.ca)
        stamp = status.st_mtime_ns, status.st_ino, status.st_size
        if self._tls is None or self._tls[0] != stamp:
            self._tls = stamp, ssl.create_default_context(cafile=self._settings.ca)
        return self._tls[1]

    async def _fetched(self, url: str, opened: "_Opened | AdapterError") -> bytes | AdapterError:
        """The document as it came."""
        if isinstance(opened, AdapterError):
            return opened
        where = _where(url)
        target = yarl.URL(url, encoded=True)
        try:
            async with (
                asyncio.timeout(self._settings.seconds),
                self._context.http.get(
                    target, headers=opened.headers, ssl=opened.trusted, allow_redirects=False
                ) as response,
            ):
                if response.status != 200:
                    return AdapterError(f"{where} answers {response.status}")
                body = await self._body(response)
            if body is None:
                return _unfit(f"{where} answers more than max_bytes ({self._settings.max_bytes})", lasting=True)
            return body
        except TimeoutError:
            return AdapterError(f"{where} did not answer in time")
        except (aiohttp.ClientError, OSError) as error:
            return AdapterError(f"{where} cannot be read: {reason(error)}")

    async def _body(self, response: aiohttp.ClientResponse) -> bytes | None:
        body = bytearray()
        while part := await read_part(response):
            body += part
            if len(body) > self._settings.max_bytes:
                return None
        return bytes(body)

    def _samples(
        self, queries: Sequence[Query], urls: Sequence[str | AdapterError], bodies: Mapping[str, bytes | AdapterError]
    ) -> list[Answer]:
        """The answers; runs in a thread, for a document may hold as many numbers as there may be elements in it."""
        documents = {url: self._decoded(url, body) for url, body in bodies.items()}
        return [
            url if isinstance(url, AdapterError) else self._sample(query, documents[url])
            for query, url in zip(queries, urls, strict=True)
        ]

    def _decoded(self, url: str, body: bytes | AdapterError) -> Any:
        """The document, or an AdapterError. Elements are counted before they are made."""
        if isinstance(body, AdapterError):
            return body
        if _elements(body, self._settings.max_elements) > self._settings.max_elements:
            return _unfit(f"{_where(url)} answers more than max_elements ({self._settings.max_elements})", lasting=True)
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return _unfit(f"{_where(url)} answers no JSON")

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
        return ExternalSample(values, self._context.clock.now())


class _Opened(msgspec.Struct, frozen=True):
    """What each request of a batch is sent with."""

    headers: dict[str, str]
    trusted: ssl.SSLContext | bool


def _unfit(message: str, *, lasting: bool = False) -> AdapterError:
    """The server answered: what is wrong is this document's fault, and no other's."""
    return AdapterError(message, lasting=lasting, alive=True)


def _where(url: str) -> str:
    """The address without its parameters, which an HPA's author may have given."""
    return urllib.parse.urlsplit(url)._replace(query="").geturl()


def _elements(body: bytes, most: int) -> int:
    """How many values, lists and objects a JSON text holds; an empty list or object counts twice.

    Each is the first in a list or object, or follows a comma. In texts these signs mean nothing; texts are left out
    only if there are more than `most` signs, since that takes longer.
    """
    count = _signs(body)
    return count if count <= most else _signs(_TEXT.sub(b"", body))


def _signs(body: bytes) -> int:
    return 1 + body.count(b",") + body.count(b"[") + body.count(b"{")


def steps(path: str) -> list[Step]:
    """A path taken apart: names, positions, and None for every element. Raises ValueError."""
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
    """The values at the end of the path; raises KeyError, IndexError, TypeError where it does not lead on."""
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
    """Thousandths of a JSON number, or of a number in quotes; raises ValueError, TypeError."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise TypeError
    milli = value * 1000 if isinstance(value, int) else Quantity.parse(value).milli()
    if milli not in _INT64:
        raise ValueError
    return milli


def _reason(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"no {shown(error.args[0])}"
    return "the list is too short" if isinstance(error, IndexError) else "what is there is something else"
