"""Past values of a metric by range queries, for commands only.

The queries go through prometheus-api-client, which blocks, so each runs in a thread with the credentials, the TLS and
the limits of the source. Import this module in a thread: it loads requests.
"""

import asyncio
import io
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import requests
import urllib3
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.adapters import HTTPAdapter

from hpad.adapter import AdapterError, Answer, reason
from hpad.adapter_http import TooLargeError, named_redirect
from hpad_adapters.prometheus import samples
from hpad_adapters.prometheus.batches import Batch
from hpad_adapters.prometheus.connection import PrometheusAccess, PrometheusConnection
from hpad_adapters.prometheus.settings import QueryWindow

_CONNECT_SECONDS = 5.0
_ONCE = urllib3.Retry(0, redirect=False)
_Range = tuple[datetime, datetime, int]
"""The first and the last time, and the seconds between two times."""


async def answers(connection: PrometheusConnection, batch: Batch, times: Sequence[datetime]) -> list[Answer]:
    """Returns the answers that the query of the batch would have had at each time; raises AdapterError.

    `times` ascend at equal distances of whole seconds.
    """
    whole = [moment.replace(microsecond=0) for moment in times]
    step = max(1, round((whole[-1] - whole[0]).total_seconds() / max(1, len(whole) - 1)))
    series = await _series(connection, batch, (whole[0], whole[-1], step))
    (entry,) = batch.entries
    window = entry.recipe.window
    found: list[Answer] = []
    for moment in whole:
        ((_, rows),) = batch.answers(_at(series, moment, window))
        try:
            found.append(samples.sample(entry, rows, moment))
        except AdapterError as error:
            found.append(error)
    return found


async def _series(connection: PrometheusConnection, batch: Batch, span: _Range) -> list[samples.PrometheusSeries]:
    access = await connection.access()
    begin, end, _ = span
    window = batch.entries[0].recipe.window
    if window is None:
        found = await asyncio.to_thread(_ranged, connection, access, batch.expression(), span)
    else:
        # A range query cannot return samples of a window: one instant query fetches all of them.
        fetch = f"{int((end - begin).total_seconds() + window.reach.total_seconds()) + 1}s"
        text = batch.expression(msgspec.structs.replace(window, fetch=fetch))
        found = await asyncio.to_thread(_ranged, connection, access, text, (end, end, 0))
    try:
        return msgspec.convert(found or [], list[samples.PrometheusSeries])
    except (msgspec.ValidationError, RecursionError):
        raise _not_prometheus(connection) from None


def _at(
    series: Sequence[samples.PrometheusSeries], moment: datetime, window: QueryWindow | None
) -> list[samples.PrometheusSeries]:
    """Returns the series as an instant query at that time would have returned them."""
    now = moment.timestamp()
    since = now if window is None else now - window.reach.total_seconds()
    found = []
    for each in series:
        points = [point for point in each.values or [] if since <= point[0] <= now]
        if points:
            found.append(samples.PrometheusSeries(metric=each.metric, values=points))
    return found


def _ranged(connection: PrometheusConnection, access: PrometheusAccess, expression: str, span: _Range) -> object:
    """Returns the result of a range query, or of an instant query for one time. Blocks; raises AdapterError."""
    begin, end, step = span
    timeout: Any = (_CONNECT_SECONDS, access.seconds)  # seconds to connect, and without a byte
    session = _Session(connection, access)
    limit = {"timeout": access.timeout}
    try:
        with PrometheusConnect(
            url=access.base, session=session, timeout=timeout, method=access.settings.method, retry=_ONCE
        ) as client:
            # The library has mounted a transport without TLS options; the longest prefix of a URL wins.
            session.mount(f"{access.base}/api", _Transport(access))
            if begin == end:
                return client.custom_query(expression, params={"time": f"{end.timestamp():.3f}", **limit})
            return client.custom_query_range(expression, begin, end, str(step), params=limit)
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:  # the latter from reading the body
        raise AdapterError(f"{connection.name} {_failure(error)}") from None
    except (PrometheusApiClientException, KeyError, TypeError, ValueError):
        raise _not_prometheus(connection) from None


class _Session(requests.Session):
    """Sends the requests of the library as the source would, and checks their answers by the same rules."""

    def __init__(self, connection: PrometheusConnection, access: PrometheusAccess) -> None:
        super().__init__()
        self.trust_env = False
        self.headers.update({"Accept": "application/json", "Accept-Encoding": "identity", **access.headers})
        if access.settings.insecure:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        if access.settings.proxy:
            self.proxies = {"http": access.settings.proxy, "https": access.settings.proxy}
        self._connection = connection
        self._settings = access.settings

    def request(  # type: ignore[override]  # the library passes all arguments by name
        self, method: str, url: str, params: Any = None, **options: Any
    ) -> requests.Response:
        """Sends a POST with its form in the body, so that no query is too long for a URL; follows no redirect."""
        fixed = dict(self._settings.params)
        parameters, form = (fixed, params) if method == "POST" else ({**fixed, **(params or {})}, None)
        options |= {"allow_redirects": False, "stream": True}
        response = super().request(method, url, params=parameters, data=form, **options)
        body = response.raw.read(self._settings.max_bytes + 1, decode_content=True)
        response.close()
        if len(body) > self._settings.max_bytes:
            raise TooLargeError(self._connection.name, self._settings.max_bytes)
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip()
        if 300 <= response.status_code < 400:
            where = named_redirect(response.headers.get("Location", ""), {k: str(v) for k, v in self.headers.items()})
            raise AdapterError(
                f"{self._connection.name} redirects, which queries of the past do not follow: "
                f"correct the url; it names {where or 'no other'}"
            )
        self._connection.checked(response.status_code, kind, body)
        response.raw = io.BytesIO(body)
        return response


class _Transport(HTTPAdapter):
    """One attempt, with the TLS of the source; requests itself would also trust certifi's authorities."""

    def __init__(self, access: PrometheusAccess) -> None:
        self._tls = access.tls
        self._server_name = access.settings.server_name or None
        super().__init__(max_retries=_ONCE)

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """Creates the connection pool with the source's TLS."""
        super().init_poolmanager(*arguments, ssl_context=self._tls, server_hostname=self._server_name, **options)

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        """Returns the pool key without the certificate options of requests."""
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, {}

    def cert_verify(self, *_: Any) -> None:
        """Does nothing: the TLS context verifies certificates."""


def _failure(error: requests.RequestException | urllib3.exceptions.HTTPError) -> str:
    """Describes the error without the URL, which the library's own text repeats."""
    if isinstance(error, requests.exceptions.SSLError):
        return "refuses or fails TLS: is its certificate trusted (ca), and does it require one (cert)?"
    if isinstance(error, requests.exceptions.Timeout | urllib3.exceptions.TimeoutError):
        return "did not answer in time"
    if isinstance(error, urllib3.exceptions.DecodeError):
        return "answers with a broken content encoding"
    if isinstance(error, requests.exceptions.ConnectionError | urllib3.exceptions.ProtocolError):
        return "cannot be reached, or broke off its answer"
    return f"did not answer ({reason(error)})"


def _not_prometheus(connection: PrometheusConnection) -> AdapterError:
    return AdapterError(f"{connection.name} answered something other than an answer of the Prometheus API")
