"""PUBLIC: what adapters that speak HTTP share: secrets, TLS, bounded requests, OAuth2 tokens and error sentences.

A secret is text in the settings, the content of a file, or an environment variable. Files and variables are read again
for each use, so a rotated secret needs no restart. One trailing line end ("\\n" or "\\r\\n") is removed from both; any
other white space belongs to the secret.

An error message is a sentence that begins with the name of the server. It never holds a secret, the parameters of a
URL, or the text of a foreign exception, which may repeat the URL.
"""

import asyncio
import math
import os
import re
import socket
import ssl
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import aiohttp
import msgspec
import yarl

from hpad.adapter import AdapterError, Context, read_part, reason, shown

T = TypeVar("T")
_MAX_REDIRECTS: Final = 3
_KEEP_METHOD: Final = (307, 308)
_NOT_IN_A_HEADER: Final = "\r\n\0"


class SecretRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A secret that is kept outside the settings.

    file: the file that holds it, read again for each use; env: the environment variable that holds it.
    """

    file: str = ""
    env: str = ""

    def __post_init__(self) -> None:
        if bool(self.file) == bool(self.env):
            raise ValueError("give one of file and env")


Secret = str | SecretRef


def secret(value: str, file: str, env: str) -> Secret:
    """The secret of three settings of which at most one is given: `password`, `password_file` and `password_env`."""
    return SecretRef(file=file, env=env) if file or env else value


async def read_secrets(secrets: Mapping[str, Secret]) -> dict[str, str]:
    """The text of each secret by the name of its setting, which errors repeat.

    Files are read in a thread. Raises AdapterError naming the file or variable that is absent, empty or unreadable.
    """
    if any(isinstance(each, SecretRef) and each.file for each in secrets.values()):
        return await asyncio.to_thread(_read_all, secrets)
    return _read_all(secrets)


def _read_all(secrets: Mapping[str, Secret]) -> dict[str, str]:
    return {setting: _read(setting, each) for setting, each in secrets.items()}


def _read(setting: str, value: Secret) -> str:
    if isinstance(value, str):
        return value
    if value.env:
        where, text = f"the environment variable {value.env}", os.environ.get(value.env)
        if text is None:
            raise AdapterError(f"{setting}: {where} is not set")
    else:
        where, text = value.file, _content(setting, value.file)
    text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
    if not text:
        raise AdapterError(f"{setting}: {where} is empty")
    return text


def _content(setting: str, file: str) -> str:
    try:
        return Path(file).read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise AdapterError(f"{setting}: {file} cannot be read: {_file_fault(error)}") from None


def _file_fault(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or reason(error) if isinstance(error, OSError) else "it is not UTF-8 text"


class TlsOptions(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files and names for TLS: the authorities to trust, and the client certificate with its key and password."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    key_password: Secret = ""
    server_name: str = ""
    insecure: bool = False

    @property
    def files(self) -> tuple[str, ...]:
        """The files that are named."""
        return tuple(file for file in (self.ca, self.cert, self.key) if file)


class Tls:
    """The TLS context of one source, made when it is first needed and again when one of its files has changed."""

    def __init__(self, options: TlsOptions) -> None:
        self._options = options
        self._loaded: tuple[list[tuple[int, int, int]], ssl.SSLContext] | None = None
        self._lock = asyncio.Lock()

    async def context(self) -> ssl.SSLContext:
        """The context for the files as they are now; raises AdapterError naming the files that cannot be used."""
        if self._loaded is not None and not self._options.files:
            return self._loaded[1]
        async with self._lock:
            return await asyncio.to_thread(self._current)

    def _current(self) -> ssl.SSLContext:
        """A file that is replaced while it is read is seen at the next use: its state is taken before."""
        try:
            state = [(found.st_mtime_ns, found.st_ino, found.st_size) for found in map(os.stat, self._options.files)]
            if self._loaded is not None and self._loaded[0] == state:
                return self._loaded[1]
            context = _tls_context(self._options)
        except OSError as error:  # ssl.SSLError is one
            files = error.filename or ", ".join(self._options.files)
            raise AdapterError(f"ca, cert or key: {files} cannot be used: {_file_fault(error)}") from None
        self._loaded = state, context
        return context


def _tls_context(options: TlsOptions) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=options.ca or None)
    if options.cert:
        # An empty password keeps OpenSSL from asking for one on the terminal.
        context.load_cert_chain(options.cert, options.key or None, _read("key_password", options.key_password))
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def url_flaw(url: str, schemes: tuple[str, ...], example: str) -> str:
    """Why a setting is not the URL of a server, "" if it is. A URL that may hold a password is not repeated."""
    try:
        parts = urllib.parse.urlsplit(url)
        bad_port = parts.port == 0
    except ValueError:
        return "is not a URL, or its port is not a number"
    if "@" in parts.netloc:
        return "contains credentials: write them as settings of their own"
    if parts.scheme not in schemes or not parts.hostname or bad_port:
        return f'{shown(url)} is not of the form "{example}"'
    return ""


class OAuth2(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Tokens by the client credentials grant (RFC 6749, section 4.4).

    token_url: of the identity provider; client_id: the name of hpad there; client_secret: its secret;
        client_secret_file: a file that holds it; client_secret_env: an environment variable that holds it.
    scopes, params: further parameters of the request, such as {audience: rabbitmq}.
    client_auth: how the client authenticates: basic (a header), or body (fields of the form).
    """

    token_url: str
    client_id: str
    client_secret: str = ""
    client_secret_file: str = ""
    client_secret_env: str = ""
    scopes: list[str] = []
    params: dict[str, str] = {}
    client_auth: Literal["basic", "body"] = "basic"

    def __post_init__(self) -> None:
        if flaw := url_flaw(self.token_url, ("http", "https"), "https://login.example.com/oauth/token"):
            raise ValueError(f"token_url: {flaw}")
        if sum(map(bool, (self.client_secret, self.client_secret_file, self.client_secret_env))) != 1:
            raise ValueError("client_secret: give one of client_secret, client_secret_file and client_secret_env")

    def __repr__(self) -> str:
        return f"OAuth2(token_url={self.token_url!r}, client_id={self.client_id!r}, …)"

    @property
    def secret(self) -> Secret:
        """The secret of the client."""
        return secret(self.client_secret, self.client_secret_file, self.client_secret_env)


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How requests are sent, and what is accepted as an answer.

    `username` with `password`, `bearer_token` and `oauth2` exclude each other. `proxy` is the URL of an HTTP proxy
    without credentials. `timeout` and `connect_timeout` are in seconds, for one request and for its connection.
    """

    headers: Mapping[str, Secret] = {}
    username: str = ""
    password: Secret = ""
    bearer_token: Secret = ""
    oauth2: OAuth2 | None = None
    tls: TlsOptions = TlsOptions()
    proxy: str = ""
    timeout: float = 5.0
    connect_timeout: float = 5.0
    max_bytes: int = 1 << 20


class Response(msgspec.Struct, frozen=True):
    """An answer with any status but a redirect that was followed; `reason` is the text beside the status."""

    status: int
    reason: str
    content_type: str
    location: str
    body: bytes


class RequestFailedError(AdapterError):
    """The server gave no usable answer; another server of the same source may."""


class TooLargeError(RequestFailedError):
    """The answer has more than `max_bytes` bytes; the server works, and other answers of it may be used."""

    def __init__(self, name: str, max_bytes: int) -> None:
        super().__init__(f"{name} answers more than max_bytes ({max_bytes})", lasting=True, alive=True)


class Http:
    """Sends requests with the credentials, the TLS, the proxy and the limits of one source.

    All methods raise AdapterError, and nothing else: RequestFailedError where a server is at fault.
    """

    def __init__(self, context: Context, options: HttpOptions) -> None:
        self.clock = context.clock
        self._session = context.http
        self._options = options
        self._tls = Tls(options.tls)
        self._tokens = Tokens(options.oauth2, self) if options.oauth2 is not None else None
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=options.connect_timeout)
        if options.tls.insecure:
            context.log.warning("server certificates are not verified", source=context.name)

    async def fetch(
        self, url: str, *, name: str, method: str = "GET", form: Mapping[str, str] | None = None
    ) -> Response:
        """The answer to a request with credentials. `url` is percent-encoded, `name` is the server's in errors.

        A token that the server refuses (401) is replaced once. A redirect is followed on the same scheme, host and port
        only, so that no other server sees credentials.
        """
        headers = await self.headers()
        response = await self._followed(url, name, method, form, headers)
        if response.status == 401 and self._tokens is not None:
            self._tokens.discard(headers["Authorization"].removeprefix("Bearer "))
            response = await self._followed(url, name, method, form, await self.headers())
        return response

    async def headers(self) -> dict[str, str]:
        """The headers of a request, with credentials."""
        options = self._options
        secrets = {f"headers: {name}": value for name, value in options.headers.items()}
        texts = await read_secrets({**secrets, "password": options.password, "bearer_token": options.bearer_token})
        headers = {name: sendable(f"headers: {name}", texts[f"headers: {name}"]) for name in options.headers}
        if options.username:
            basic = aiohttp.encode_basic_auth(options.username, texts["password"], encoding="utf-8")
            headers["Authorization"] = basic
        elif token := sendable("bearer_token", texts["bearer_token"]) or await self._token():
            headers["Authorization"] = f"Bearer {token}"
        return headers

    async def bearer(self) -> str:
        """The token of the settings or of the identity provider, "" where the settings name neither."""
        texts = await read_secrets({"bearer_token": self._options.bearer_token})
        return texts["bearer_token"] or await self._token()

    async def tls(self) -> ssl.SSLContext:
        """The TLS context, for connections that an adapter opens itself."""
        return await self._tls.context()

    async def exchange(
        self,
        method: str,
        url: str,
        *,
        name: str,
        form: Mapping[str, str] | None,
        headers: Mapping[str, str],
        server_name: str = "",
    ) -> Response:
        """The answer to one request with these headers, whatever its status; no redirect is followed."""
        target = yarl.URL(url, encoded=True)
        options = self._options
        tls = await self._tls.context() if target.scheme == "https" else True
        try:
            async with (
                asyncio.timeout(options.timeout),
                self._session.request(
                    method,
                    target,
                    data=form,
                    headers=headers,
                    ssl=tls,
                    server_hostname=server_name or None,
                    proxy=options.proxy or None,
                    allow_redirects=False,
                    timeout=self._timeout,
                ) as answer,
            ):
                body = await self._body(answer, name)
        except TimeoutError:
            raise RequestFailedError(f"{name} did not answer within {options.timeout:g}s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise RequestFailedError(f"{name} {failure(error)}") from None
        location = answer.headers.get("Location", "")
        return Response(answer.status, answer.reason or "", answer.content_type, location, body)

    async def _body(self, answer: aiohttp.ClientResponse, name: str) -> bytes:
        body = bytearray()
        while part := await read_part(answer):
            body += part
            if len(body) > self._options.max_bytes:
                raise TooLargeError(name, self._options.max_bytes)
        return bytes(body)

    async def _followed(
        self, url: str, name: str, method: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> Response:
        server_name = self._options.tls.server_name
        for _ in range(_MAX_REDIRECTS + 1):
            response = await self.exchange(method, url, name=name, form=form, headers=headers, server_name=server_name)
            if not 300 <= response.status < 400 or not response.location:
                return response
            if method != "GET" and response.status not in _KEEP_METHOD:
                raise RequestFailedError(
                    f"{name} answers a {method} with the redirect {response.status}: configure the final address"
                )
            url = _redirected(url, response.location, name)
        raise RequestFailedError(f"{name} redirects more than {_MAX_REDIRECTS} times in succession")

    async def _token(self) -> str:
        return await self._tokens.token() if self._tokens is not None else ""


def sendable(setting: str, text: str) -> str:
    """The text, if a header can carry it; else raises AdapterError."""
    if any(character in text for character in _NOT_IN_A_HEADER):
        raise AdapterError(f"{setting}: the value contains a line break, which no header can carry")
    return text


def _redirected(url: str, location: str, name: str) -> str:
    """The address of a redirect on the same origin; raises RequestFailedError naming only the host of another one."""
    source = yarl.URL(url, encoded=True)
    try:
        target = source.join(yarl.URL(location, encoded=True))
        same, host = target.origin() == source.origin(), target.host
    except ValueError:
        same, host = False, None
    if not same:
        raise RequestFailedError(
            f"{name} redirects to another host ({host or 'unknown'}): configure the final address",
            lasting=True,
        )
    return str(target)


_LIFE_BY_DEFAULT: Final = 300.0
_EARLY_SECONDS: Final = 30.0
_EARLY_SHARE: Final = 0.1
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}")


class _Granted(msgspec.Struct):
    """The answer of RFC 6749, section 5.1; some providers write `expires_in`, in seconds, as text."""

    access_token: str
    expires_in: float | str = _LIFE_BY_DEFAULT


class _Refused(msgspec.Struct):
    error: str


class Tokens:
    """The OAuth2 token of one source: requested when it is first needed, and again shortly before it expires."""

    def __init__(self, settings: OAuth2, http: Http) -> None:
        self._settings = settings
        self._http = http
        self._name = f"the token_url {settings.token_url}"
        self._token = ""
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        """A token that has not expired; raises AdapterError naming the provider."""
        async with self._lock:
            if not self._token or self._http.clock.monotonic() >= self._until:
                self._token, life = await self._granted()
                self._until = self._http.clock.monotonic() + life - min(_EARLY_SECONDS, life * _EARLY_SHARE)
            return self._token

    def discard(self, token: str) -> None:
        """Forgets a token that the server has refused; a newer one, which another request got meanwhile, stays."""
        if self._token == token:
            self._token = ""

    async def _granted(self) -> tuple[str, float]:
        response = await self._requested()
        if response.status != 200:
            code = _error_code(response.body)
            raise AdapterError(
                f"{self._name} answered {response.status}{code}: check client_id, client_secret and scopes"
            )
        granted = decoded(_GRANTED, response.body, self._name, "a token")
        try:
            life = float(granted.expires_in)
            token = sendable("access_token", granted.access_token)
        except (ValueError, AdapterError):
            life, token = math.nan, ""
        if not token or math.isnan(life):  # text may say "nan", and no moment is ever after that
            raise AdapterError(f"{self._name} answered something other than a token")
        return token, life

    async def _requested(self) -> Response:
        settings = self._settings
        text = (await read_secrets({"client_secret": settings.secret}))["client_secret"]
        form = {"grant_type": "client_credentials", **settings.params}
        if settings.scopes:
            form["scope"] = " ".join(settings.scopes)
        headers = {}
        if settings.client_auth == "body":
            form |= {"client_id": settings.client_id, "client_secret": text}
        else:  # section 2.3.1: each part is form-encoded first
            quoted = urllib.parse.quote_plus(settings.client_id), urllib.parse.quote_plus(text)
            headers["Authorization"] = aiohttp.encode_basic_auth(*quoted)
        try:
            return await self._http.exchange("POST", settings.token_url, name=self._name, form=form, headers=headers)
        except RequestFailedError as error:  # not of the server: another one of the same source would need a token too
            raise AdapterError(error.message) from None


_GRANTED: Final = msgspec.json.Decoder(_Granted)


def _error_code(body: bytes) -> str:
    """The provider's error code (section 5.2). Nothing else of the answer is repeated, because it may hold a secret."""
    try:
        code = msgspec.json.decode(body, type=_Refused).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return f" ({code})" if _ERROR_CODE.fullmatch(code) else ""


_STRING: Final = re.compile(rb'"[^"\\]*(?:\\(?:.|\Z)[^"\\]*)*(?:"|\Z)', re.DOTALL)
"""A JSON string, up to the end of the document where it is not closed: it matches at each quote, in linear time."""


def decoded(
    decoder: msgspec.json.Decoder[T], body: bytes, name: str, expected: str, *, max_elements: int | None = None
) -> T:
    """A JSON body as the decoder's type; `expected` says in the error what it should have been.

    Values, lists and objects are counted before any of them is made. The depth is bounded by Python's recursion limit.
    Raises AdapterError.
    """
    if max_elements is not None and count_elements(body, max_elements) > max_elements:
        raise AdapterError(f"{name} answers more than max_elements ({max_elements})", lasting=True, alive=True)
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise AdapterError(f"{name} answered something other than {expected}") from None


def count_elements(body: bytes, limit: int) -> int:
    """How many values, lists and objects a JSON text holds; an empty list or object counts twice.

    Each is the first in a list or object, or follows a comma. In strings these characters mean nothing. Strings are
    left out only if there are more than `limit` such characters, because that takes longer.
    """
    count = _delimiters(body)
    return count if count <= limit else _delimiters(_STRING.sub(b"", body))


def _delimiters(body: bytes) -> int:
    return 1 + body.count(b",") + body.count(b"[") + body.count(b"{")


_FAILURES: Final[tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...]] = (
    (aiohttp.ClientConnectorSSLError, "does not speak TLS as expected: is the address an http:// one?"),
    (aiohttp.ClientProxyConnectionError, "cannot be reached: there is no connection to the proxy"),
    (aiohttp.ClientHttpProxyError, "cannot be reached: the proxy refuses the connection"),
    ((aiohttp.ClientPayloadError, asyncio.IncompleteReadError), "broke off in the middle of its answer"),
    (aiohttp.ClientResponseError, "did not answer in HTTP: is this the right port?"),
    (socket.gaierror, "cannot be found: its host name does not resolve"),
    (ConnectionRefusedError, "refused the connection"),
    # In TLS 1.3 a server refuses a client's certificate, or the lack of one, only after the handshake.
    (ssl.SSLError, "closed the TLS connection: does it require a client certificate (cert)?"),
    (aiohttp.ClientConnectorError, "cannot be reached"),
    ((aiohttp.ServerDisconnectedError, aiohttp.ClientOSError), "closed the connection without an answer"),
    ((ConnectionError, EOFError), "closed the connection without an answer"),
    (OSError, "cannot be reached"),
)
"""The first row that fits tells what went wrong."""


def failure(error: BaseException) -> str:
    """What went wrong on a connection: the end of a sentence that begins with the name of the server."""
    certificate = _in_chain(error, ssl.SSLCertVerificationError)
    if certificate is not None:
        detail = getattr(certificate, "verify_message", "")
        return f"has a certificate that is not trusted{f' ({detail})' if detail else ''}: configure ca"
    sentences = (text for kind, text in _FAILURES if _in_chain(error, kind) is not None)
    return next(sentences, f"could not be asked ({reason(error)})")


def _in_chain(error: BaseException, kind: type[BaseException] | tuple[type[BaseException], ...]) -> Any:
    """The error itself, the one that it wraps, or its cause, if that is of this kind."""
    chain = (getattr(error, "certificate_error", None), error, getattr(error, "os_error", None), error.__cause__)
    return next((each for each in chain if isinstance(each, kind)), None)
