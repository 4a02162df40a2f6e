"""ApiError, the only exception of requests to an API server, and its creation from answers and foreign exceptions."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
import msgspec

from hpad.api.text import reason

CERTIFICATE = "Certificate"
CUT = "Cut"
STALE = "Stale"
TOO_LARGE = "TooLarge"
_NO_RESOURCE = "the server could not find the requested resource"

_LONGEST = 1 << 31  # seconds; JSON has numbers of any size

# Reason and message by HTTP status code if the answer is no Status. Source: errors.go: NewGenericServerResponse.
_UNEXPLAINED = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    403: ("Forbidden", "the server has forbidden the request"),
    404: ("NotFound", _NO_RESOURCE),
    405: ("MethodNotAllowed", "the server does not allow this method on the requested resource"),
    406: ("NotAcceptable", "the server was unable to respond with a content type that the client supports"),
    409: ("Conflict", "the server reported a conflict"),
    410: ("Expired", "the resource version is too old"),
    415: ("UnsupportedMediaType", "the server was unable to read the content type of the request"),
    422: ("Invalid", "the server rejected our request due to an error in our request"),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: (
        "Timeout",
        "the server was unable to return a response in the time allotted, but may still be processing the request",
    ),
}


class ApiError(Exception):
    """A failed request. `status` is the HTTP status code, or 0 if there was no answer (connection, TLS, timeout).

    `reason` is the machine-readable reason of Kubernetes ("NotFound", "Conflict", "Expired", ...); `message` is the
    server's text for conditions and events, and never holds a credential; `retry_after` is in seconds, None if the
    server did not send it. `no_resource`: the server does not have the resource, as opposed to the object.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float | None = None,
        *,
        no_resource: bool = False,
    ) -> None:
        super().__init__(message)
        self.no_resource = no_resource
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    def __repr__(self) -> str:
        return f"ApiError({self.status}, {self.reason!r}, {self.message!r})"

    @property
    def conflict(self) -> bool:
        """Whether another client wrote in between; a name that exists already (AlreadyExists) is no conflict."""
        return self.status == 409 and self.reason != "AlreadyExists"

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def unauthenticated(self) -> bool:
        """Whether authentication of the client or of the server failed: the credentials may be outdated."""
        return self.status == 401 or self.reason == CERTIFICATE

    @property
    def gone(self) -> bool:
        """Whether the resourceVersion or the continue token has expired."""
        return self.status == 410

    @property
    def stale(self) -> bool:
        """Whether no request was sent because the cached objects are too old for a decision."""
        return self.status == 0 and self.reason == STALE

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later: no answer, too many requests, or a failure of the server."""
        return (self.status in {0, 408, 429} and self.reason != TOO_LARGE) or self.status >= 500


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int | None = None


class Status(msgspec.Struct):
    """The fields of metav1.Status that are read."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(Status)


def from_answer(code: int, body: bytes, headers: Mapping[str, str], request: str = "") -> ApiError:
    """The error in an answer: its Status, or the text of Kubernetes for the status code.

    `request`, such as "get pods.metrics.k8s.io", is appended to the latter in parentheses.
    """
    after = _seconds(headers.get("Retry-After"))
    status = _decode(body)
    if status is None:
        return _unexplained(code, body, after, request)
    details = status.details
    if after is None and details is not None and details.retry_after_seconds is not None:
        after = float(min(details.retry_after_seconds, _LONGEST))
    code = status.code or code
    return ApiError(
        code, status.reason, status.message, after, no_resource=code == 404 and status.message.startswith(_NO_RESOURCE)
    )


def from_event(body: bytes) -> ApiError:
    """The error in an ERROR change of a watch."""
    status = _decode(body)
    if status is None:
        return ApiError(500, "InternalError", "the watch reported an error without saying which")
    return ApiError(status.code or 500, status.reason, status.message)


def _decode(body: bytes) -> Status | None:
    try:
        status = _STATUS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return status if status.kind == "Status" else None


def _unexplained(code: int, body: bytes, after: float | None, request: str) -> ApiError:
    text = body[:2048].decode("utf-8", "replace").strip()
    if code in _UNEXPLAINED:
        reason, message = _UNEXPLAINED[code]
    elif code >= 500:
        reason, message = "InternalError", f'an error on the server ("{text or "unknown"}") has prevented the request'
        message += " from succeeding"
    else:
        reason, message = "Unknown", f"the server responded with the status code {code} but did not return more"
        message += " information"
    return ApiError(code, reason, f"{message} ({request})" if request else message, after, no_resource=code == 404)


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; None for a date, which API servers never send."""
    return float(text) if text is not None and text.isdecimal() else None


def _system_text(error: OSError) -> str:
    """The system's text for a failed connection; asyncio's own text contains a tuple."""
    if error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)


_Text = Callable[[str, Any], str]
_FOREIGN: tuple[tuple[type[Exception], str, _Text], ...] = (
    (TimeoutError, "Timeout", lambda server, _: f"{server} did not answer in time"),
    (
        aiohttp.ClientConnectorCertificateError,
        CERTIFICATE,
        lambda server, error: f"{server}: the certificate is not accepted: {error.certificate_error}",
    ),
    (
        aiohttp.ClientConnectorSSLError,
        CERTIFICATE,
        lambda server, error: f"{server}: no TLS connection: {error.os_error}",
    ),
    (
        aiohttp.ClientConnectorError,
        "Connection",
        lambda server, error: f"{server} cannot be reached: {_system_text(error.os_error)}",
    ),
    (  # the name has an empty label, or one that is too long
        UnicodeError,
        "Connection",
        lambda server, _: f"{server} cannot be reached: that is no name of a host",
    ),
    (
        aiohttp.ClientHttpProxyError,
        "Proxy",
        lambda server, error: f"the proxy before {server} answered {error.status} {error.message}",
    ),
    (aiohttp.ServerDisconnectedError, CUT, lambda server, _: f"{server} closed the connection without an answer"),
    (  # with TLS 1.3 the server checks the client certificate after the handshake
        ssl.SSLError,
        CERTIFICATE,
        lambda server, error: f"{server}: the TLS connection was refused: {error.reason}",
    ),
    # no thread could be started to resolve the name
    (RuntimeError, "Connection", lambda server, error: f"{server} cannot be asked: {error}"),
    (Exception, CUT, lambda server, error: f"the answer of {server} broke off ({reason(error)})"),
)
"""For each foreign exception its reason and text; the first match counts."""


@contextmanager
def mapped(server: str) -> Iterator[None]:
    """Maps exceptions of HTTP, TLS and sockets to ApiError with status 0."""
    try:
        yield
    except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError, UnicodeError, RuntimeError) as error:
        reason, text = next((reason, text) for kind, reason, text in _FOREIGN if isinstance(error, kind))
        raise ApiError(0, reason, text(server, error)) from error
