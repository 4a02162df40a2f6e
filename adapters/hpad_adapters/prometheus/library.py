"""Queries through prometheus-api-client, with the credentials, the TLS and the limits of the source. Everything blocks.

Import this in a thread, and only to ask: it loads requests.
"""

import io
import ssl
from datetime import datetime
from typing import Any

import requests
import urllib3
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.adapters import HTTPAdapter

from hpad.adapter import AdapterError, reason
from hpad_adapters.prometheus.connection import Access, Connection, Head

_CONNECT_SECONDS = 5.0


def asked(connection: Connection, access: Access, expression: str, span: tuple[datetime, datetime, int]) -> Any:
    """The result of a range query, or where both ends are one moment of an instant query; raises AdapterError."""
    begin, end, step = span
    timeout: Any = (_CONNECT_SECONDS, access.seconds)  # seconds to connect, and without a byte
    session = _Session(connection, access)
    limit = {"timeout": access.patience}
    try:
        with PrometheusConnect(
            url=access.base, session=session, timeout=timeout, method=access.settings.method, retry=_once()
        ) as client:
            session.mount(f"{access.base}/api", _Transport(access))  # the library has mounted one without TLS options
            if begin == end:
                return client.custom_query(expression, params={"time": f"{end.timestamp():.3f}", **limit})
            return client.custom_query_range(expression, begin, end, str(step), params=limit)
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:  # the latter from reading the body
        raise AdapterError(f"{connection.where} {_failure(error)}") from None
    except (PrometheusApiClientException, KeyError, TypeError, ValueError):
        raise AdapterError(f"{connection.where} answers JSON that is not that of Prometheus") from None


class _Session(requests.Session):
    """Sends what the library asks as the source would, and judges the answer by the same rules."""

    def __init__(self, connection: Connection, access: Access) -> None:
        super().__init__()
        self.trust_env = False
        self.headers.update({"Accept": "application/json", "Accept-Encoding": "identity", **access.headers})
        self._connection = connection
        self._settings = access.settings

    def request(  # type: ignore[override]  # the library gives everything by name
        self, method: str, url: str, params: Any = None, **options: Any
    ) -> requests.Response:
        """A form in the body of a POST, so that no query is too long for a URL; no redirect is followed."""
        fixed = dict(self._settings.params)
        parameters, form = (fixed, params) if method == "POST" else ({**fixed, **(params or {})}, None)
        options |= {"allow_redirects": False, "stream": True}
        response = super().request(method, url, params=parameters, data=form, **options)
        body = response.raw.read(self._settings.max_bytes + 1, decode_content=True)
        response.close()
        if len(body) > self._settings.max_bytes:
            raise self._connection.too_long()
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip()
        self._connection.checked(Head(response.status_code, kind, response.headers.get("Location", "")), body)
        response.raw = io.BytesIO(body)
        return response


class _Transport(HTTPAdapter):
    """One attempt, over the TLS of the source: requests itself would trust certifi's authorities besides."""

    def __init__(self, access: Access) -> None:
        self._tls = _context(access.tls)
        self._server_name = access.settings.server_name or None
        super().__init__(max_retries=_once())

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        """The pool with the source's TLS."""
        super().init_poolmanager(*arguments, ssl_context=self._tls, server_hostname=self._server_name, **options)

    def build_connection_pool_key_attributes(self, request: Any, verify: Any, cert: Any = None) -> Any:
        """Nothing of requests' own about certificates."""
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, {}

    def cert_verify(self, *_: Any) -> None:
        """The context sees to that."""


def _context(tls: ssl.SSLContext | bool) -> ssl.SSLContext:
    if isinstance(tls, ssl.SSLContext):
        return tls
    context = ssl.create_default_context()
    if not tls:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # the settings say `insecure`
    return context


def _once() -> urllib3.Retry:
    return urllib3.Retry(0, redirect=False)


def _failure(error: requests.RequestException | urllib3.exceptions.HTTPError) -> str:
    """What happened, without the URL, which the library's own text repeats."""
    if isinstance(error, requests.exceptions.SSLError):
        return "has no TLS connection for us: is its certificate trusted (ca), and does it want one (cert)?"
    if isinstance(error, requests.exceptions.Timeout | urllib3.exceptions.TimeoutError):
        return "did not answer in time"
    if isinstance(error, urllib3.exceptions.DecodeError):
        return "answers in an encoding that it does not keep to"
    if isinstance(error, requests.exceptions.ConnectionError | urllib3.exceptions.ProtocolError):
        return "cannot be reached, or broke off its answer"
    return f"cannot be asked ({reason(error)})"
