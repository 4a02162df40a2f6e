"""One bounded HTTP request and its answer, without credentials and redirects; bounded JSON; the errors of requests."""

import asyncio
import re
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import aiohttp
import msgspec
import yarl

from hpad.adapter import AdapterError, Context, read_part, reason
from hpad.adapter_http.options import HttpOptions, Tls
from hpad.api.text import punctuation


class RequestFailedError(AdapterError):
    """The server gave no usable answer; another server of the same source may."""


class TooLargeError(RequestFailedError):
    """The answer has more than `max_bytes` bytes; the server works, and its other answers may be used."""

    def __init__(self, name: str, max_bytes: int) -> None:
        super().__init__(f"{name} answers more than max_bytes ({max_bytes})", alive=True)


# The first row that fits counts: a subclass stands before its base class.
_FAILURES: Final[tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...]] = (
    (aiohttp.ClientConnectorSSLError, "does not speak TLS as expected: is the address an http:// one?"),
    (aiohttp.ClientProxyConnectionError, "cannot be reached: there is no connection to the proxy"),
    (aiohttp.ClientHttpProxyError, "cannot be reached: the proxy refuses the connection"),
    ((aiohttp.ClientPayloadError, asyncio.IncompleteReadError), "broke off in the middle of its answer"),
    (aiohttp.ClientResponseError, "did not answer in HTTP: is this the right port?"),
    (socket.gaierror, "cannot be found: its host name does not resolve"),
    (UnicodeDecodeError, "answered with a text that is not UTF-8"),
    # A part of a name that is empty or too long fails the encoding of the name.
    ((aiohttp.InvalidURL, UnicodeError), "cannot be found: its host name is not valid"),
    (ConnectionRefusedError, "refused the connection"),
    # In TLS 1.3 a server refuses a client's certificate, or the lack of one, only after the handshake.
    (ssl.SSLError, "closed the TLS connection: does it require a client certificate (cert)?"),
    (aiohttp.ClientConnectorError, "cannot be reached"),
    (
        (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError, EOFError),
        "closed the connection without an answer",
    ),
    (OSError, "cannot be reached"),
)


_NOT_TLS: Final = "WRONG_VERSION_NUMBER"
"""What OpenSSL says of an answer in plain text."""


def failure(error: BaseException) -> str:
    """Describes a failed connection: the end of a sentence that begins with the name of the server."""
    certificate = _in_chain(error, ssl.SSLCertVerificationError)
    if certificate is not None:
        detail = getattr(certificate, "verify_message", "")
        return f"has a certificate that is not trusted{f' ({detail})' if detail else ''}: configure ca"
    over_http = isinstance(error, aiohttp.ClientConnectorError)
    if getattr(_in_chain(error, ssl.SSLError), "reason", "") == _NOT_TLS and not over_http:
        return "does not speak TLS: is this a port without TLS?"
    sentences = (text for kind, text in _FAILURES if _in_chain(error, kind) is not None)
    return next(sentences, f"did not answer ({reason(error)})")


def _in_chain(error: BaseException, kind: type[BaseException] | tuple[type[BaseException], ...]) -> Any:
    """Returns the error itself, the one that it wraps, or its cause, if that is of this kind."""
    chain = (getattr(error, "certificate_error", None), error, getattr(error, "os_error", None), error.__cause__)
    return next((each for each in chain if isinstance(each, kind)), None)


FORM: Final = "application/x-www-form-urlencoded"
"""The media type of a form, which `urllib.parse.urlencode` writes."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `url` is percent-encoded; `name` is the server's in errors.

    `content` is the body. `headers` are those of this request; headers of the settings replace them.
    `server_name` is the name on the server's certificate, if not the host of the URL. A longer answer than `max_bytes`,
    or than that of the options, is refused (0: the options alone count); `cut`: it is cut there.
    """

    url: str
    name: str
    method: str = "GET"
    content: bytes | None = None
    headers: Mapping[str, str] = {}
    server_name: str = ""
    max_bytes: int = 0
    cut: bool = False


class Response(msgspec.Struct, frozen=True):
    """An answer with any status; `reason` is the text beside the status."""

    status: int
    reason: str
    content_type: str
    location: str
    body: bytes
    retry_after: str = ""


class Exchange:
    """Sends single requests with the TLS, the proxy and the limits of one source."""

    def __init__(self, context: Context, options: HttpOptions) -> None:
        self.tls = Tls(options.tls)
        self._session = context.http
        self._options = options
        self._seconds = context.within(options.timeout)
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=options.connect_timeout)

    async def send(self, request: Request, headers: Mapping[str, str]) -> Response:
        """Returns the answer to one request, whatever its status; no redirect is followed. `headers` are in addition.

        Raises RequestFailedError, or AdapterError for unusable TLS files.
        """
        target = yarl.URL(request.url, encoded=True)
        options = self._options
        tls = await self.tls.context() if target.scheme == "https" else True
        try:
            async with (
                asyncio.timeout(self._seconds),
                self._session.request(
                    request.method,
                    target,
                    data=request.content,
                    headers=_merged(request.headers, headers),
                    ssl=tls,
                    server_hostname=request.server_name or options.tls.server_name or None,
                    proxy=options.proxy or None,
                    allow_redirects=False,
                    timeout=self._timeout,
                ) as answer,
            ):
                body = await self._body(answer, request)
        except TimeoutError:
            raise RequestFailedError(f"{request.name} did not answer within {self._seconds:g}s") from None
        except (aiohttp.ClientError, OSError, UnicodeError) as error:
            raise RequestFailedError(f"{request.name} {failure(error)}") from None
        location = answer.headers.get("Location", "")
        later = answer.headers.get("Retry-After", "")
        return Response(answer.status, answer.reason or "", answer.content_type, location, body, later)

    async def _body(self, answer: aiohttp.ClientResponse, request: Request) -> bytes:
        body, most = bytearray(), self._options.max_bytes
        most = min(most, request.max_bytes or most)
        # Not by Content-Length, which a server may omit or get wrong.
        while part := await read_part(answer):
            body += part
            if len(body) > most and request.cut:
                return bytes(body[:most])
            if len(body) > most:
                raise TooLargeError(request.name, most)
        return bytes(body)


def _merged(own: Mapping[str, str], configured: Mapping[str, str]) -> dict[str, str]:
    """Returns both; a configured header replaces one of the request, in any case of letters."""
    replaced = {name.lower() for name in configured}
    return {**{name: text for name, text in own.items() if name.lower() not in replaced}, **configured}


T = TypeVar("T")
UNDECODABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What the decoders of msgspec raise for an answer of another form; the last one for lists nested too deeply."""
MAX_ELEMENTS: Final = 1_000_000
"""The most values, lists and objects of a JSON body, unless the caller has a limit of its own: 16 MiB of `{}` would
otherwise become a gigabyte of objects."""


def decoded(
    decoder: msgspec.json.Decoder[T], body: bytes, name: str, expected: str, *, max_elements: int | None = None
) -> T:
    """Returns a JSON body as the decoder's type.

    Values, lists and objects are counted before any of them is made: at most `max_elements`, which errors name as a
    setting, or MAX_ELEMENTS. The depth is bounded by Python's recursion limit.
    Raises AdapterError, which names the server and what it should have answered, such as "a list of queues".
    """
    most = MAX_ELEMENTS if max_elements is None else max_elements
    # A part of a body (msgspec.Raw) was counted with it.
    if isinstance(body, bytes) and len(body) > most and count_elements(body, most) > most:
        limit = f"{most} values" if max_elements is None else f"max_elements ({most})"
        raise AdapterError(f"{name} answers more than {limit}", alive=True)
    try:
        return decoder.decode(body)
    except UNDECODABLE:
        raise AdapterError(f"{name} answered something other than {expected}") from None


_TITLE: Final = re.compile(r"<title[^>]*>([^<]*)", re.IGNORECASE)
_READ_OF_REFUSAL: Final = 4096
_LONGEST_REFUSAL: Final = 200


def first_line(body: bytes) -> str:
    """Returns what the body of a refusal says, as ": text" for the end of an error; "" without text.

    That is its first line, the title of a page, or JSON as it is, and at most 200 characters of it. Proxies and servers
    explain a refusal that way.
    """
    text = body[:_READ_OF_REFUSAL].decode("utf-8", "replace").strip()
    if text.startswith("<"):
        title = _TITLE.search(text)
        text = title[1].strip() if title else ""
    line = " ".join(text.split()) if text[:1] in "{[" else text.partition("\n")[0].strip()
    if not line:
        return ""
    return f": {line[:_LONGEST_REFUSAL]}{'…' if len(line) > _LONGEST_REFUSAL else ''}"


def count_elements(body: bytes, limit: int) -> int:
    """Returns the number of values, lists and objects of a JSON text; an empty list or object counts twice.

    Each element is the first in a list or object, or follows a comma. These characters do not count within strings.
    """
    return 1 + punctuation(body, b",[{", limit - 1)
