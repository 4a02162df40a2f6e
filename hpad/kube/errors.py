"""What goes wrong between hpad and an API server: one exception, made in one place from whatever it was."""

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
NO_RESOURCE = "the server could not find the requested resource"

_LONGEST = 1 << 31  # seconds; a number of any size can stand in JSON

# What Kubernetes clients say where the answer is no Status object, by HTTP status code.
_UNEXPLAINED = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    403: ("Forbidden", "the server has forbidden the request"),
    404: ("NotFound", NO_RESOURCE),
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
    """No good answer. `status` is the HTTP code, or 0 where there was no answer at all (connection, TLS, timeout).

    `reason` is Kubernetes' machine-readable reason ("NotFound", "Conflict", "Expired", ...); `message` is the server's
    own text, fit for a condition or an event, and never holds a credential; `retry_after` is in seconds, None where the
    server did not say.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    def __repr__(self) -> str:
        return f"ApiError({self.status}, {self.reason!r}, {self.message!r})"

    @property
    def conflict(self) -> bool:
        """Somebody else wrote in between; a name that is taken (AlreadyExists) is another thing."""
        return self.status == 409 and self.reason != "AlreadyExists"

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def unknown_to_each_other(self) -> bool:
        """Whether the server does not believe who we are, or we do not believe the server: credentials may be old."""
        return self.status == 401 or self.reason == CERTIFICATE

    @property
    def gone(self) -> bool:
        """The resourceVersion or the continue token has expired."""
        return self.status == 410

    @property
    def stale(self) -> bool:
        """Not an answer: what is known of the cluster is too old to decide on, so that nothing was asked."""
        return self.status == 0 and self.reason == STALE

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later: no answer, too many requests, or the server's own failure."""
        return (self.status in {0, 408, 429} and self.reason != TOO_LARGE) or self.status >= 500


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: int | None = None


class Status(msgspec.Struct):
    """metav1.Status, narrowed."""

    kind: str = ""
    status: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(Status)


def from_answer(code: int, body: bytes, headers: Mapping[str, str], request: str = "") -> ApiError:
    """The error that an answer stands for: its Status, or, where it holds none, Kubernetes' text for the code.

    `request` ("get pods.metrics.k8s.io") is added to the latter in parentheses.
    """
    after = _seconds(headers.get("Retry-After"))
    status = _decode(body)
    if status is None:
        return _unexplained(code, body, after, request)
    details = status.details
    if after is None and details is not None and details.retry_after_seconds is not None:
        after = float(min(details.retry_after_seconds, _LONGEST))
    return ApiError(status.code or code, status.reason, status.message, after)


def from_event(body: bytes) -> ApiError:
    """The error inside an ERROR event of a watch."""
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
    return ApiError(code, reason, f"{message} ({request})" if request else message, after)


def _seconds(text: str | None) -> float | None:
    """Retry-After in seconds; a date (which API servers never send) counts as not said."""
    return float(text) if text is not None and text.isdecimal() else None


def _spoken(error: OSError) -> str:
    """Why there is no connection, in the words of the system; asyncio has its own, with a tuple in them."""
    if error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error)


_Say = Callable[[str, Any], str]
_FOREIGN: tuple[tuple[type[Exception], str, _Say], ...] = (
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
        lambda server, error: f"{server} cannot be reached: {_spoken(error.os_error)}",
    ),
    (  # asked of whoever looks names up: a label that is empty, or too long
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
    (  # TLS 1.3: the server looks at our certificate after the handshake
        ssl.SSLError,
        CERTIFICATE,
        lambda server, error: f"{server}: the TLS connection was refused: {error.reason}",
    ),
    # no room for one more thread, in which names are looked up
    (RuntimeError, "Connection", lambda server, error: f"{server} cannot be asked: {error}"),
    (Exception, CUT, lambda server, error: f"the answer of {server} broke off ({reason(error)})"),
)
"""What each foreign exception is here, the first that fits: its reason, and what to say of it."""


@contextmanager
def border(server: str) -> Iterator[None]:
    """Let no foreign exception through: those of HTTP, TLS and sockets become ApiError(status=0)."""
    try:
        yield
    except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError, UnicodeError, RuntimeError) as error:
        reason, say = next((reason, say) for kind, reason, say in _FOREIGN if isinstance(error, kind))
        raise ApiError(0, reason, say(server, error)) from error
