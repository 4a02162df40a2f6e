"""ApiError, the only exception of requests to an API server, made from its answers and from foreign exceptions."""

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import aiohttp
import msgspec

from hpad.api.text import reason

T = TypeVar("T")
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What a decoder of msgspec raises for a body that is not the expected JSON; RecursionError for deep nesting."""
CERTIFICATE = "Certificate"
DISCONNECTED = "Disconnected"
PROXY = "Proxy"
STALE = "Stale"
TIMEOUT = "Timeout"
TOO_LARGE = "TooLarge"
_LONGEST = 1 << 31  # seconds; JSON has numbers of any size

# Reason and message by HTTP status code if the answer is no Status.
# Source: apimachinery, api/errors/errors.go: NewGenericServerResponse.
_UNEXPLAINED = {
    400: ("BadRequest", "the server rejected our request for an unknown reason"),
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    403: ("Forbidden", "the server has forbidden the request"),
    404: ("NotFound", "the server could not find the requested resource"),
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


@dataclass(eq=False)
class ApiError(Exception):
    """A failed request. `status` is the HTTP status code, or 0 if there was no answer (connection, TLS, timeout).

    `reason` is the machine-readable reason of Kubernetes ("NotFound", "Conflict", "Expired", ...); `message` is the
    server's text for conditions and events, and never contains a credential; `retry_after` is in seconds, None if the
    server did not send it. `no_resource`: the server does not have the resource, as opposed to the object.
    `namespace_ends`: the namespace is being deleted, and takes no new objects.
    """

    status: int
    reason: str
    message: str
    retry_after: float | None = None
    no_resource: bool = False
    namespace_ends: bool = False

    def __str__(self) -> str:
        return self.message

    @property
    def conflict(self) -> bool:
        """Returns whether another client wrote in between; a name that exists (AlreadyExists) is no conflict."""
        return self.status == 409 and self.reason != "AlreadyExists"

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def test_failed(self) -> bool:
        """Whether a JSON patch was refused, as after a `test` in it has failed."""
        return self.status == 422

    @property
    def unauthenticated(self) -> bool:
        """Returns whether authentication of the client or of the server failed: the credentials may be outdated."""
        return self.status == 401 or self.reason == CERTIFICATE

    @property
    def gone(self) -> bool:
        """Returns whether the resourceVersion or the continue token has expired."""
        return self.status == 410

    @property
    def stale(self) -> bool:
        """Returns whether no request was sent because the cached objects are too old for a decision."""
        return self.status == 0 and self.reason == STALE

    @property
    def passing(self) -> bool:
        """Returns whether the same request may succeed later: no answer, too many requests, or a server failure."""
        return (self.status in {0, 408, 429} and self.reason != TOO_LARGE) or self.status >= 500


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct, rename="camel"):
    name: str = ""
    retry_after_seconds: int | None = None
    causes: tuple[_Cause, ...] | None = None


class ApiStatus(msgspec.Struct):
    """The fields of metav1.Status that are read."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_STATUS = msgspec.json.Decoder(ApiStatus)
_NAMESPACE_ENDS: Final = "NamespaceTerminating"
"""Cause of the refusal of a new object (k8s.io/api, core/v1/types.go: NamespaceTerminatingCause)."""


_DEEPEST: Final = 10_000
"""The levels of JSON that an API server takes (sigs.k8s.io/json, decode.go: maxNestingDepth)."""


def skimmed(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw) -> T:
    """Decodes JSON with objects that are left undecoded or passed over, however deep these are. Raises UNREADABLE.

    Authors of custom objects choose how deep they are. One that cannot be decoded must not hide the others of a list.
    """
    try:
        return decoder.decode(raw)
    except RecursionError:
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(limit + _DEEPEST)
        try:
            return decoder.decode(raw)
        finally:
            sys.setrecursionlimit(limit)


def decoded(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw, problem: str) -> T:
    """Decodes the body of a 2xx answer. Raises ApiError with status 0 and `problem` if it is not the expected JSON."""
    try:
        return skimmed(decoder, body)
    except UNREADABLE as error:
        raise ApiError(0, "BadAnswer", f"{problem}: {error}") from error


def from_answer(code: int, body: bytes, headers: Mapping[str, str], request: str = "") -> ApiError:
    """Returns the error in an answer: its Status, or the text of Kubernetes for the status code.

    `request`, such as "get pods.metrics.k8s.io", is appended to the latter in parentheses.
    """
    retry_after = headers.get("Retry-After", "")
    after = float(retry_after) if retry_after.isdecimal() else None  # API servers never send a date
    status = _decode(body)
    if status is None:
        return _unexplained(code, body, after, request)
    details = status.details
    if after is None and details is not None and details.retry_after_seconds is not None:
        after = float(min(details.retry_after_seconds, _LONGEST))
    code = status.code or code
    # Recorded answers: without details a metric is missing, with a name an object (tests/data/fixtures/metrics, scale).
    no_resource = code == 404 and details is not None and not details.name
    ends = details is not None and any(cause.reason == _NAMESPACE_ENDS for cause in details.causes or ())
    return ApiError(code, status.reason, status.message, after, no_resource=no_resource, namespace_ends=ends)


def from_event(body: bytes) -> ApiError:
    """Returns the error in an ERROR change of a watch."""
    status = _decode(body)
    if status is None:
        return ApiError(500, "InternalError", "the watch reported an error without a Status")
    return ApiError(status.code or 500, status.reason, status.message)


def _decode(body: bytes) -> ApiStatus | None:
    try:
        status = _STATUS.decode(body)
    except UNREADABLE:
        return None
    return status if status.kind == "Status" else None


def _unexplained(code: int, body: bytes, after: float | None, request: str) -> ApiError:
    text = body[:2048].decode("utf-8", "replace").strip()
    reason, message = "Unknown", f"the server responded with the status code {code} but did not return more information"
    if code in _UNEXPLAINED:
        reason, message = _UNEXPLAINED[code]
    elif code >= 500:
        reason, message = "InternalError", f'an error on the server ("{text or "unknown"}") has prevented the request'
        message += " from succeeding"
    return ApiError(code, reason, f"{message} ({request})" if request else message, after, no_resource=code == 404)


def system_text(error: OSError) -> str:
    """Returns the system's text for a failed connection; asyncio's own text contains a tuple."""
    if error.errno and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return error.strerror or str(error) or reason(error)


FOREIGN: Final = (aiohttp.ClientError, OSError, asyncio.IncompleteReadError, UnicodeError, RuntimeError)
"""What connecting, or a request by aiohttp, raises if there is no complete answer."""


def explained(server: str, error: Exception) -> tuple[str, str]:
    """Returns reason and message for one of FOREIGN. The order of the cases matters: some derive from others."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return unreachable(server, error.certificate_error)
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return PROXY, f"the proxy before {server} {_refusal_of_proxy(error)}"
        case aiohttp.ClientConnectorError():
            return unreachable(server, error.os_error)
        case aiohttp.ClientResponseError():
            problem = error.message.strip().splitlines()[0] if error.message.strip() else "not HTTP/1.1"
            return DISCONNECTED, f"the answer of {server} cannot be read: {problem}"
        case aiohttp.ClientPayloadError():
            return DISCONNECTED, f"the answer of {server} broke off ({reason(EOFError())})"
        case aiohttp.ServerDisconnectedError():
            return DISCONNECTED, f"{server} closed the connection without an answer"
        case TimeoutError():
            return unreachable(server, TimeoutError())
        case UnicodeError() | RuntimeError():
            return unreachable(server, error)
        case ssl.SSLError():
            return CERTIFICATE, f"{server}: the TLS connection was refused: {error.reason}"
        case _:
            return DISCONNECTED, f"the answer of {server} broke off ({reason(error)})"


def _refusal_of_proxy(error: aiohttp.ClientProxyConnectionError | aiohttp.ClientHttpProxyError) -> str:
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"answered {error.status} {error.message}"
    return f"cannot be reached: {system_text(error.os_error)}"


def unreachable(server: str, error: Exception) -> tuple[str, str]:
    """Returns reason and message if there is no connection; `error` is that of the socket, of TLS or of the name."""
    match error:
        case TimeoutError(errno=None):
            return TIMEOUT, f"{server} did not answer in time"
        case ssl.SSLCertVerificationError():
            return CERTIFICATE, f"{server}: the certificate is not accepted: {error}"
        case ssl.SSLError():
            return CERTIFICATE, f"{server}: no TLS connection: {error}"
        case UnicodeError():  # the encoding of host names (IDNA) refuses an empty label, or one that is too long
            return "Connection", f"{server} cannot be reached: that is no name of a host"
        case OSError():
            return "Connection", f"{server} cannot be reached: {system_text(error)}"
        case _:  # a RuntimeError: no thread could be started to resolve the name
            return "Connection", f"no request can be sent to {server}: {error}"
