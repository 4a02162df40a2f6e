"""Requests to one Prometheus server, and the errors of its HTTP API.

Source: Prometheus, "HTTP API": format overview.
"""

import asyncio
import contextlib
import urllib.parse
from collections.abc import Mapping
from datetime import timedelta

import msgspec

from hpad.adapter import AdapterError, Context, parse_duration
from hpad.adapter_http import FORM, UNDECODABLE, Http, Request, decoded, first_line
from hpad_adapters.prometheus import samples
from hpad_adapters.prometheus.settings import PrometheusServer

_LONGEST_TEXT = 300
_GRACE_SECONDS = 1.0
_LONG = 1 << 20
"""The size of an answer, in bytes, beyond which a thread decodes it: so many take some 20 ms."""
_MILLISECOND = timedelta(milliseconds=1)
_MAX_WARNINGS = 100
MOST_OF_OWN = 1 << 20
"""Bytes of the answer to a query of an Autoscaler: its series are added up, and hpad reads those of all teams."""
_ADVICE = {
    401: "the credentials are missing or wrong (username, password, bearer_token, headers)",
    403: "the credentials do not allow this",
    404: "there is no Prometheus API at this address; check the url, and its path",
    422: "the query cannot be executed",
    429: "the server has had too many requests",
    503: "the server is overloaded, not ready, or gave up on the query",
}
_FAULT_OF_THE_QUERY = (400, 422)
_LASTING = (400, 401, 403, 404, 422)


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    """The frame of every answer. An error has `error` and no data.

    `is_partial` is of VictoriaMetrics: some of its storage nodes did not answer. Go writes an absent value as null, and
    so an empty list that was never made.
    """

    status: str
    data: msgspec.Raw = msgspec.Raw(b"{}")
    error: str | None = None
    warnings: list[str] | None = None
    is_partial: bool | None = None


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_NAMES = msgspec.json.Decoder(list[str] | None)


def _is_envelope(body: bytes) -> bool:
    """Returns whether the server itself answers, not a proxy with JSON of its own."""
    try:
        _ENVELOPE.decode(body)
    except UNDECODABLE:
        return False
    return True


class PrometheusConnection:
    """Queries the server of one source. Raises only AdapterError."""

    def __init__(self, settings: PrometheusServer, context: Context) -> None:
        self._settings = settings
        self._context = context
        timeout = parse_duration(settings.query_timeout)
        self._timeout = f"{max(1, timeout // _MILLISECOND)}ms"  # Prometheus does not accept "1.5s"
        self._seconds = context.within(timeout.total_seconds() + _GRACE_SECONDS)
        self._semaphore = asyncio.Semaphore(settings.concurrency)
        self._of_own = asyncio.Semaphore(max(settings.concurrency - 1, 1))
        self._warned: set[str] = set()
        self._base = settings.url.rstrip("/")
        self.name = f'Prometheus "{context.name}" ({self._base})'
        self._http = Http(context, settings.http_options(self._seconds))

    async def query(self, expression: str, at: float, *, own: bool = False) -> list[samples.PrometheusSeries]:
        """Returns the series of an instant query at that time (seconds since 1970).

        `own`: an Autoscaler brings it along. Of these there may be thousands: one request at a time stays free for the
        queries of the configuration, and an answer longer than MOST_OF_OWN is refused.
        """
        form = {"query": expression, "time": f"{at:.3f}", "timeout": self._timeout}
        sent = False
        try:
            # The wait for the semaphore is part of the timeout: otherwise slow queries in a row exceed the timeout of
            # the batch, and the answers received so far are lost with it.
            free = self._of_own if own else contextlib.nullcontext()
            async with asyncio.timeout(self._seconds), free, self._semaphore:
                sent = True
                data = await self._data("query", form, self._settings.method, MOST_OF_OWN if own else 0)
        except TimeoutError:
            raise AdapterError(self._late(sent)) from None
        if len(data) > _LONG:
            return await asyncio.to_thread(samples.series, data, self.name)
        return samples.series(data, self.name)

    def _late(self, sent: bool) -> str:
        if sent:
            return f"{self.name} did not answer within {self._seconds:g}s"
        others = f"other queries used up the concurrency ({self._settings.concurrency})"
        return f"{self.name} was not asked within {self._seconds:g}s, because {others}"

    async def series_names(self, selector: str, since: float, until: float) -> list[str]:
        """Returns the names of the series that a selector matched between two times (seconds since 1970)."""
        form = {"match[]": selector, "start": f"{since:.3f}", "end": f"{until:.3f}"}
        data = await self._data("label/__name__/values", form, "GET")
        return decoded(_NAMES, data, self.name, samples.ANSWER) or []

    async def _data(self, call: str, form: Mapping[str, str], method: str, max_bytes: int = 0) -> msgspec.Raw:
        post = method == "POST"
        parameters = dict(self._settings.params) if post else {**self._settings.params, **form}
        url = f"{self._base}/api/v1/{call}"
        if parameters:
            url = f"{url}?{urllib.parse.urlencode(parameters)}"
        content, headers = (urllib.parse.urlencode(form).encode(), {"Content-Type": FORM}) if post else (None, {})
        request = Request(url=url, name=self.name, method=method, content=content, headers=headers, max_bytes=max_bytes)
        response = await self._http.send(request)
        return self.checked(response.status, response.content_type, response.body)

    def checked(self, status: int, content_type: str, body: bytes) -> msgspec.Raw:
        """Returns the data of a good answer; raises AdapterError for a failure or a partial answer."""
        is_json = content_type == "application/json"
        if status == 200 and not is_json:
            said = first_line(body)
            raise AdapterError(f"{self.name} answers {content_type}, not JSON; is that a Prometheus?{said}")
        if status != 200 and not (is_json and _is_envelope(body)):
            said = first_line(body).removeprefix(": ")
            raise AdapterError(self._refusal(status, said), lasting=status in _LASTING)
        envelope = decoded(_ENVELOPE, body, self.name, samples.ANSWER)
        if status != 200 or envelope.status != "success":
            blame = "spec" if status in _FAULT_OF_THE_QUERY else "source"
            raise AdapterError(self._refusal(status, envelope.error or ""), blame, lasting=status in _LASTING)
        if envelope.is_partial:
            raise AdapterError(f"{self.name} answers in part only (isPartial): a part of its storage did not answer")
        self._warn(envelope.warnings or [])
        return envelope.data

    def _refusal(self, status: int, error: str) -> str:
        advice = f", {_ADVICE[status]}" if status in _ADVICE else ""
        text = f": {error[:_LONGEST_TEXT]}" if error else ""
        return f"{self.name} answers {status}{advice}{text}"

    def _warn(self, warnings: list[str]) -> None:
        """Logs each warning once, not with every answer."""
        for warning in set(warnings) - self._warned:
            self._context.log.warning("prometheus warns", source=self._context.name, warning=warning[:_LONGEST_TEXT])
        # Warnings may hold changing text: the set must not grow for ever.
        self._warned = set(warnings) | (self._warned if len(self._warned) < _MAX_WARNINGS else set())
