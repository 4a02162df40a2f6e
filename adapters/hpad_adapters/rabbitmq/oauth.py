"""Tokens of an identity provider: the client credentials grant of RFC 6749, section 4.4."""

import asyncio
import math
import re
from datetime import timedelta
from urllib.parse import quote_plus

import aiohttp
import msgspec

from hpad.adapter import AdapterError, Context, read_part
from hpad_adapters.rabbitmq import failures, secrets
from hpad_adapters.rabbitmq.settings import OAuth2

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

    def __init__(self, settings: OAuth2, context: Context, tls: secrets.Tls, timeout: timedelta) -> None:
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
        secret = await secrets.text("client_secret", settings.secret)
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
            raise AdapterError(f"{where} {failures.reason(error)}") from None


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
