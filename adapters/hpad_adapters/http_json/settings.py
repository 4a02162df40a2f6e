"""The settings of an `http-json` source, and of its metrics."""

import re
import urllib.parse
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from hpad.adapter import parse_duration, public, shown
from hpad.adapter_http import HttpLoginSettings, HttpOptions, SecretRef, refuse, url_error
from hpad_adapters.http_json import documents

Format = Literal["json", "xml", "yaml", "prometheus"]
Combine = Literal["sum", "avg", "max", "min"]
EACH: Final = "each"
POD: Final = "pod"
"""The host that stands for the address of each pod."""

_PATH: Final = re.compile(r"/[!-~]*")
_SERVICE: Final = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)(?:\.svc(?:\..+)?)?")


class Metric(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The place of a metric's number.

    url: the document. In it and in the body, <<now>> or <<now-5m>> stands for a time in seconds since 1970, <<now:ms>>
        for one in milliseconds, <<now:iso>> for one like 2026-01-31T12:00:00Z.
    path: the number in it: names with dots between (["a.b"] for one that has a dot), [0] for the first element of a
        list, [-1] for the last, [*] for each (whose values count together), [#] for the length of a list, such as
        "queues[0].depth" or "shards[*].backlog"; "" for a document that is only a number. In XML the first name is that
        of the root, and @name is an attribute. With format prometheus: the series, such as 'jobs{queue="mail"}'; the
        values of all that match count together.
    params: the labels that the metric's selector must give, sent as parameters of the URL.
    format: of the document: json, xml, yaml, or prometheus (its text format).
    body: what is posted: a text, or an object or list, which is sent as JSON; method: GET, or POST, the default with a
        body. The request must change nothing: it may be repeated at any time.
    pods: sum, avg, max or min: the host of the url is a Service of the cluster ("api.shop", "api.shop.svc"), each of
        its ready pods is asked at the url's port, and the values are combined. Without it the Service picks one.
        each: a Pods metric for hpad.io/busy-metric; the host of the url is "pod", as in "http://pod:8080/jobs", and
        stands for the address of each pod of the target.
    missing_pods: error: a pod that fails is an error of the metric; average: it counts as the average of the others, as
        long as at least half of the pods answer.
    """

    url: str
    path: str
    params: list[str] = []
    format: Format = "json"
    method: Literal["GET", "POST"] | None = None
    body: str | dict[str, Any] | list[Any] | None = None
    pods: Combine | Literal["each"] | None = None
    missing_pods: Literal["error", "average"] = "error"

    def __post_init__(self) -> None:
        """Raises ValueError with a line for each error."""
        refuse(*self._errors())

    def _errors(self) -> Iterator[str]:
        if error := url_error(self.url, ("http", "https"), "http://host/path"):
            yield f"url: {error}"
        elif urllib.parse.urlsplit(self.url).fragment:
            yield f"url: {shown(public(self.url))} is followed by #, which no server reads: write %23 if it is meant"
        elif self.pods == EACH and urllib.parse.urlsplit(self.url).hostname != POD:
            yield f'url: {shown(public(self.url))} has not the host "pod", as in "http://pod:8080/jobs"'
        elif self.pods not in (None, EACH) and self.service is None:
            yield f'url: {shown(public(self.url))} does not name a Service, as in "http://api.shop.svc:8080/stats"'
        yield from time_errors("url", self.url)
        if self.content is not None:
            yield from time_errors("body", self.content)
            if self.method == "GET":
                yield "body: a GET has none; leave out method, or write POST"
        if self.missing_pods == "average" and self.pods in (None, EACH):
            yield "missing_pods: has an effect with pods: sum, avg, max or min only"
        try:
            documents.selector(self.path) if self.format == "prometheus" else documents.steps(self.path)
        except ValueError as error:
            yield str(error)

    @property
    def service(self) -> tuple[str, str] | None:
        """Name and namespace of the Service that the url's host names, None if it names none."""
        match = _SERVICE.fullmatch(urllib.parse.urlsplit(self.url).hostname or "")
        return (match[1], match[2]) if match else None

    @property
    def content(self) -> str | None:
        """What is sent as the body of the request, before times are filled in."""
        if self.body is None or isinstance(self.body, str):
            return self.body
        return msgspec.json.encode(self.body).decode()

    @property
    def content_type(self) -> str:
        """The media type of the body, which the header Content-Type of the source replaces."""
        return "text/plain; charset=utf-8" if isinstance(self.body, str) else "application/json"


class OwnDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The place of a number that an Autoscaler brings along, in a document of the server of `base_url`.

    url: the document, behind base_url, such as "/queues/mail?state=ready"; with times as in the configuration.
    path: the number in it; with format prometheus the series, without regular expressions.
    params: the labels that the metric's selector must give, sent as parameters of the URL.
    format: of the document: json, xml, yaml, or prometheus (its text format).
    """

    url: Annotated[str, msgspec.Meta(max_length=2000)]
    path: Annotated[str, msgspec.Meta(max_length=500)]
    params: list[str] = []
    format: Format = "json"

    def __post_init__(self) -> None:
        """Raises ValueError with a line for each error."""
        refuse(*_below_errors(self.url), *time_errors("url", self.url), *self._path_errors())

    def _path_errors(self) -> Iterator[str]:
        try:
            documents.selector(self.path, exact=True) if self.format == "prometheus" else documents.steps(self.path)
        except ValueError as error:
            yield str(error)

    def below(self, base_url: str) -> Metric:
        """Returns the same as a metric of the configuration."""
        return Metric(f"{base_url.rstrip('/')}{self.url}", self.path, self.params, self.format)


def _below_errors(url: str) -> Iterator[str]:
    """Yields an error unless the URL is a path that no server resolves to a place above its begin."""
    text = _PLACE.sub("0", url)
    path = text.partition("?")[0]
    # Old servers take other bytes than those of UTF-8 for a dot: %c0%ae.
    steps = {step.partition(";")[0] for step in re.split(r"[/\\]", urllib.parse.unquote(path))}
    odd = "#" in text or path.startswith("//") or "%25" in path or any("\ufffd" in step for step in steps)
    if not _PATH.fullmatch(text) or odd or steps & {".", ".."}:
        yield f'url: {shown(url)} is not a path behind base_url, such as "/queues/mail"'


class HttpJsonSettings(HttpLoginSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """metrics: name -> the place of its number.

    base_url: the begin of the URLs that queries of Autoscalers may read, such as "http://stats.shop:8080/public".
    headers, params: sent with each request, params as parameters of the URL, such as {X-API-KEY: {file: …}} or
        {api_key: {file: …}}; a value may be {file: …} or {env: …}, which is read again for each request.
    username: for basic authentication; password: of the user; password_file: a file that holds it, read for each
        request; password_env: an environment variable that holds it.
    bearer_token: instead of a user; bearer_token_file: a file that holds it, read for each request; bearer_token_env:
        an environment variable that holds it; oauth2: where to get tokens, instead of both.
    ca: a PEM file to trust instead of the system's; cert, key, key_password: PEM files of a client certificate, and the
        key's password, which may be {file: …} or {env: …}. Files are loaded again when they change. server_name: on the
        server's certificate, if not the url's; insecure: trust any certificate.
    proxy: the URL of an HTTP proxy. max_bytes, max_elements: a document with more bytes, or with more values, lists and
        objects, is refused, and only its own metrics fail. max_pods: of one Service; more are an error.
    request_timeout: of one document, or of all pods of a Service.
    """

    renamed: ClassVar[Mapping[str, str]] = {"header_files": "headers: {NAME: {file: …}}"}
    needs_password: ClassVar[bool] = False

    metrics: dict[str, Metric] = msgspec.field(default_factory=dict)
    base_url: str = ""
    params: dict[str, str | SecretRef] = msgspec.field(default_factory=dict)
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = 1 << 20
    max_elements: Annotated[int, msgspec.Meta(ge=1)] = 50_000
    max_pods: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 200
    request_timeout: str = "5s"

    def errors(self) -> Iterator[str]:
        """Yields the errors in the fields."""
        if not self.metrics and not self.base_url:
            example = 'depth: {url: "http://host/stats", path: depth}'
            yield f"metrics: is empty; write a metric, such as {example}, or base_url for queries of Autoscalers"
        if self.base_url and (error := url_error(self.base_url, ("http", "https"), "http://host/path", query=False)):
            yield f"base_url: {error}"
        yield from super().errors()

    def http_options(self, timeout: float = 0.0) -> HttpOptions:
        """Returns the options of requests; raises ValueError."""
        return msgspec.structs.replace(super().http_options(timeout), params=self.params)


# Times in a URL or a body: `<<now>>`, `<<now-5m>>`, `<<now-5m:ms>>`, filled in for each request.

_PLACE: Final = re.compile(r"<<([^<>]*)>>")
_TIME: Final = re.compile(r"now(?:([+-])([0-9a-z.]+))?(?::(ms|iso))?")
_FARTHEST: Final = timedelta(days=3660)


def with_times(text: str, now: datetime) -> str:
    """Returns the text with its times: seconds since 1970, with :ms milliseconds, with :iso as in RFC 3339 (UTC)."""
    return _PLACE.sub(lambda found: _written(found[1], now), text)


def time_errors(field: str, text: str) -> Iterator[str]:
    """Yields "field: text" for each place that is no time."""
    for found in _PLACE.finditer(text):
        try:
            _parsed(found[1])
        except ValueError:
            yield f'{field}: {shown(found[0])} is not a time, as in "<<now-5m>>"'


def _parsed(inner: str) -> tuple[timedelta, str]:
    """Returns the distance from now, and the form; raises ValueError."""
    match = _TIME.fullmatch(inner)
    if match is None:
        raise ValueError(inner)
    sign, duration, form = match.groups()
    distance = parse_duration(duration) if duration else timedelta()
    if distance > _FARTHEST:
        raise ValueError(inner)
    return (-distance if sign == "-" else distance), form or "s"


def _written(inner: str, now: datetime) -> str:
    distance, form = _parsed(inner)
    time = now + distance
    if form == "iso":
        return time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(int(time.timestamp() * (1000 if form == "ms" else 1)))
