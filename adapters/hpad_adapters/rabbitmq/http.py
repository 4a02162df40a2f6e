"""Tokens of an identity provider: the client credentials grant of RFC 6749, section 4.4.

What went wrong on the way to a server, in words; never an exception's own text, which may hold the URL.

Passwords, tokens, headers and certificates: from the configuration, the environment, or files.
"""

import asyncio
import math
import os
import re
import ssl
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote_plus

import aiohttp
import msgspec

from hpad.adapter import AdapterError, Context, read_part
from hpad_adapters.rabbitmq.settings import Elsewhere, OAuth2, Settings


def reason(error: aiohttp.ClientError) -> str:
    """The end of a sentence that begins with the server's name."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return "has a certificate that is not trusted: configure ca"
        case aiohttp.ClientConnectorSSLError():
            return "does not speak TLS as expected: is the address an http:// one?"
        case aiohttp.ClientConnectorDNSError():
            return "cannot be found: its host name does not resolve"
        case aiohttp.ClientConnectorError() if isinstance(error.os_error, ConnectionRefusedError):
            return "refused the connection"
        case aiohttp.ClientConnectorError():
            return (
                f"cannot be reached: {os.strerror(error.os_error.errno) if error.os_error.errno else 'no connection'}"
            )
        case aiohttp.ClientPayloadError():
            return "broke off in the middle of its answer"
        case aiohttp.ClientResponseError():
            return "did not answer in HTTP: is this the port of the management API (15672), not of AMQP (5672)?"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientOSError():
            return "closed the connection without an answer"
    return f"could not be asked ({reason(error)})"


_UNFIT = "\r\n\0"
_Stamp = tuple[int, int, int]
_APART = ("password", "client_secret", "bearer_token")


async def text(field: str, value: str | Elsewhere) -> str:
    """The value, wherever it is kept; raises AdapterError naming the file or variable that is not there."""
    if isinstance(value, str):
        return value
    if value.env:
        if value.env not in os.environ:
            raise AdapterError(f"{_setting(field, 'env')}: the environment has no variable {value.env}")
        return os.environ[value.env]
    return await asyncio.to_thread(_content, field, value.file)


async def headers(settings: Settings) -> dict[str, str]:
    """The headers that the operator wants to be sent; raises AdapterError."""
    found = {name: await text(f"headers: {name}", value) for name, value in settings.headers.items()}
    for name, value in found.items():
        if any(character in value for character in _UNFIT):
            raise AdapterError(f"headers: {name}: what is there holds a line break, so that no header can carry it")
    return found


class Tls:
    """The TLS context of one source, made when first needed, and again when its files change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files = tuple(file for file in (settings.ca, settings.cert, settings.key) if file)
        self._made: tuple[list[_Stamp], ssl.SSLContext] | None = None

    async def context(self) -> ssl.SSLContext:
        """Raises AdapterError naming the files that cannot be used."""
        if self._made is not None and not self._files:
            return self._made[1]
        stamps = await asyncio.to_thread(_stamps, self._files)
        if self._made is None or self._made[0] != stamps:
            password = await text("key_password", self._settings.key_password)
            self._made = stamps, await asyncio.to_thread(_tls_context, self._settings, password)
        return self._made[1]


def _stamps(files: Iterable[str]) -> list[_Stamp]:
    try:
        return [(status.st_mtime_ns, status.st_ino, status.st_size) for status in map(os.stat, files)]
    except OSError as error:
        raise AdapterError(f"ca, cert or key cannot be used ({error.filename}): {error.strerror}") from None


def _tls_context(settings: Settings, password: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca or None)
        if settings.cert:  # a password that is given, even if empty, keeps OpenSSL from asking the terminal
            context.load_cert_chain(settings.cert, settings.key or None, password)
    except OSError as error:  # ssl.SSLError among them
        files = ", ".join(file for file in (settings.ca, settings.cert, settings.key) if file)
        raise AdapterError(f"ca, cert or key cannot be used ({files}): {error.strerror or error}") from None
    if settings.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _content(field: str, file: str) -> str:
    try:
        return Path(file).read_text("utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise AdapterError(f"{_setting(field, 'file')} {file} cannot be read: {why}") from None


def _setting(field: str, place: str) -> str:
    """The name of the setting that says where the value is."""
    return f"{field}_{place}" if field in _APART else field


_MAX_BODY_BYTES = 1 << 20
_LIFE_IF_UNSAID = 300.0
_EARLY_SECONDS = 30.0
_EARLY_SHARE = 0.1
_CODE = re.compile(r"[a-z_]{1,40}")


class _Granted(msgspec.Struct):
    access_token: str
    expires_in: float | str = _LIFE_IF_UNSAID  # some providers write the number as text


class _Refused(msgspec.Struct):
    error: str


class Tokens:
    """The token of one source: asked for when first needed, and again shortly before it expires."""

    def __init__(self, settings: OAuth2, context: Context, tls: Tls, timeout: timedelta) -> None:
        self._settings = settings
        self._http = context.http
        self._clock = context.clock
        self._tls = tls
        self._timeout = timeout.total_seconds()
        self._token = ""
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        """A token that is good for a while; raises AdapterError naming the provider."""
        async with self._lock:
            if not self._token or self._clock.monotonic() >= self._until:
                self._token, life = await self._granted()
                self._until = self._clock.monotonic() + life - min(_EARLY_SECONDS, life * _EARLY_SHARE)
            return self._token

    def forget(self, token: str) -> None:
        """The broker refused it; a newer one, which another request may have got meanwhile, is kept."""
        if self._token == token:
            self._token = ""

    async def _granted(self) -> tuple[str, float]:
        status, body = await self._asked()
        where = f"the token_url {self._settings.token_url}"
        if status != 200:
            raise AdapterError(f"{where} answered {status}{_code(body)}: check client_id, client_secret and scopes")
        try:
            granted = msgspec.json.decode(body, type=_Granted)
            life = float(granted.expires_in)
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise AdapterError(f"{where} answered something else than a token") from None
        sendable = granted.access_token and not any(character in granted.access_token for character in "\r\n\0")
        if not sendable or math.isnan(life):  # text may say "nan", and no moment would ever be after that
            raise AdapterError(f"{where} answered something else than a token")
        return granted.access_token, life

    async def _asked(self) -> tuple[int, bytes]:
        settings = self._settings
        secret = await text("client_secret", settings.secret)
        form = {"grant_type": "client_credentials", **settings.params}
        if settings.scopes:
            form["scope"] = " ".join(settings.scopes)
        headers = {}
        if settings.client_auth == "body":
            form |= {"client_id": settings.client_id, "client_secret": secret}
        else:  # section 2.3.1: each part in the form's own encoding first
            headers["Authorization"] = aiohttp.encode_basic_auth(quote_plus(settings.client_id), quote_plus(secret))
        tls = await self._tls.context() if settings.token_url.startswith("https:") else True
        where = f"the token_url {settings.token_url}"
        try:
            async with (
                asyncio.timeout(self._timeout),
                self._http.post(
                    settings.token_url, data=form, headers=headers, ssl=tls, allow_redirects=False
                ) as response,
            ):
                return response.status, await _body(response)
        except TimeoutError:
            raise AdapterError(f"{where} did not answer within {self._timeout:g}s") from None
        except aiohttp.ClientError as error:
            raise AdapterError(f"{where} {reason(error)}") from None


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """As much as anybody needs of it: what is cut short is no JSON."""
    body = b""
    while len(body) < _MAX_BODY_BYTES and (part := await read_part(response)):
        body += part
    return body[:_MAX_BODY_BYTES]


def _code(body: bytes) -> str:
    """The provider's error code (section 5.2); nothing else of the answer is repeated, for it may hold anything."""
    try:
        code = msgspec.json.decode(body, type=_Refused).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    return f" ({code})" if _CODE.fullmatch(code) else ""
