"""The HTTP client of one source: credentials, OAuth2 tokens (RFC 6749, section 4.4) and redirects."""

import asyncio
import math
import re
import ssl
import urllib.parse
from typing import Final

import aiohttp
import msgspec

from hpad.adapter import AdapterError, Context, hide, public
from hpad.adapter_http.exchange import FORM, UNDECODABLE, Exchange, Request, RequestFailedError, Response, decoded
from hpad.adapter_http.options import HttpOptions, OAuth2, fits_header, read_secrets
from hpad.clock import Clock

_LIFE_BY_DEFAULT: Final = 300.0
_EARLY_SECONDS: Final = 30.0
_EARLY_SHARE: Final = 0.1
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}")
_TOKEN: Final = re.compile(r"[!-~]{1,16384}")
"""RFC 6750, section 2.1, has fewer characters and no bound; servers take headers of 8 to 16 KiB."""


class _Granted(msgspec.Struct):
    """The answer of RFC 6749, section 5.1; some providers write `expires_in`, in seconds, as text."""

    access_token: str
    expires_in: float | str = _LIFE_BY_DEFAULT


class _Refused(msgspec.Struct):
    error: str


_GRANTED: Final = msgspec.json.Decoder(_Granted)
_REFUSED: Final = msgspec.json.Decoder(_Refused)


class OAuth2Tokens:
    """The OAuth2 token of one source: requested when it is first needed, and again shortly before it expires."""

    def __init__(self, settings: OAuth2, exchange: Exchange, clock: Clock) -> None:
        self._settings = settings
        self._exchange = exchange
        self._clock = clock
        self._name = f"the token_url {public(settings.token_url)}"
        self._token = ""
        self._until = 0.0
        self._lock = asyncio.Lock()

    async def token(self) -> str:
        """Returns a token that has not expired; raises AdapterError naming the provider."""
        async with self._lock:
            if not self._token or self._clock.monotonic() >= self._until:
                self._token, life = await self._granted()
                self._until = self._clock.monotonic() + life - min(_EARLY_SECONDS, life * _EARLY_SHARE)
            hide(self._token)
            return self._token

    def discard(self, token: str) -> None:
        """Forgets a token that the server has refused."""
        # Another request may have replaced it already: the newer token stays.
        if self._token == token:
            self._token = ""

    async def _granted(self) -> tuple[str, float]:
        """Requests a token; returns it with its life in seconds."""
        response = await self._requested()
        if response.status != 200:
            raise AdapterError(f"{self._name} answered {response.status}{_refusal(response)}")
        granted = decoded(_GRANTED, response.body, self._name, "a token")
        try:
            life = float(granted.expires_in)
        except ValueError:
            life = math.nan
        # A text may be "nan" or "-inf", and no time compares as later than what follows: the token would stay for ever.
        if not math.isfinite(life) or not _TOKEN.fullmatch(granted.access_token):
            raise AdapterError(f"{self._name} answered something other than a token")
        return granted.access_token, life

    async def _requested(self) -> Response:
        settings = self._settings
        text = (await read_secrets({"client_secret": settings.secret}))["client_secret"]
        form = {"grant_type": "client_credentials", **settings.params}
        if settings.scopes:
            form["scope"] = " ".join(settings.scopes)
        headers = {"Content-Type": FORM}
        if settings.client_auth == "body":
            form |= {"client_id": settings.client_id, "client_secret": text}
        else:  # section 2.3.1: each part is form-encoded first
            quoted = urllib.parse.quote_plus(settings.client_id), urllib.parse.quote_plus(text)
            headers["Authorization"] = aiohttp.encode_basic_auth(*quoted)
            hide(headers["Authorization"])
        try:
            content = urllib.parse.urlencode(form).encode()
            request = Request(url=settings.token_url, name=self._name, method="POST", content=content)
            return await self._exchange.send(request, headers)
        except RequestFailedError as error:
            # A RequestFailedError makes the caller try the next server, which would need a token as well.
            raise AdapterError(error.message) from None


_ADVICE: Final = {
    "invalid_client": "check client_id, client_secret and client_auth",
    "unauthorized_client": "the client may not request tokens by client_credentials",
    "invalid_scope": "check scopes",
}
"""What to do about the error codes of RFC 6749, section 5.2, that the settings cause."""


def _refusal(response: Response) -> str:
    """Returns the provider's error code in parentheses, and what to do where that is known.

    Nothing else of the answer is repeated, because it may hold a secret.
    """
    try:
        found = _REFUSED.decode(response.body).error
    except UNDECODABLE:
        found = ""
    code = f" ({found})" if _ERROR_CODE.fullmatch(found) else ""
    if 300 <= response.status < 400:
        return f"{code}, a redirect to {public(response.location)}: write the address where tokens are granted"
    advice = _ADVICE.get(found) or (_ADVICE["invalid_client"] if response.status == 401 else "")
    return f"{code}: {advice}" if advice else code


class Http:
    """Sends requests with the credentials, the TLS, the proxy and the limits of one source.

    All methods raise only AdapterError; RequestFailedError where a server is at fault.
    """

    def __init__(self, context: Context, options: HttpOptions) -> None:
        self._options = options
        self._exchange = Exchange(context, options)
        self._tokens = (
            OAuth2Tokens(options.oauth2, self._exchange, context.clock) if options.oauth2 is not None else None
        )
        if options.tls.insecure:
            context.log.warning("server certificates are not verified", source=context.name)

    async def send(self, request: Request) -> Response:
        """Returns the answer to a request with the credentials, headers and parameters of the settings.

        A token that the server refuses (401) is replaced once. A redirect is not followed, so that no other server sees
        credentials.
        """
        if self._options.params:
            request = msgspec.structs.replace(request, url=await self._with_params(request.url))
        headers = await self.headers()
        response = await self._exchange.send(request, headers)
        if response.status == 401 and self._tokens is not None:
            self.discard(headers["Authorization"].removeprefix("Bearer "))
            headers = await self.headers()
            response = await self._exchange.send(request, headers)
        if 300 <= response.status < 400 and response.location:
            where = f"a redirect ({response.status}) to {public(response.location)}"
            text = f"answers with {where}, which is not followed: write that address"
            raise RequestFailedError(f"{request.name} {text}", lasting=True)
        return response

    async def headers(self) -> dict[str, str]:
        """Returns the headers of a request, with credentials."""
        options = self._options
        secrets = {f"headers: {name}": value for name, value in options.headers.items()}
        texts = await read_secrets({**secrets, "password": options.password, "bearer_token": options.bearer_token})
        headers = {name: _sendable(f"headers: {name}", texts[f"headers: {name}"]) for name in options.headers}
        if options.username:
            basic = aiohttp.encode_basic_auth(options.username, texts["password"], encoding="utf-8")
            headers["Authorization"] = basic
            hide(basic)
        elif token := _sendable("bearer_token", texts["bearer_token"]) or await self._token():
            headers["Authorization"] = f"Bearer {token}"
        return headers

    async def bearer(self) -> str:
        """Returns the token of the settings or of the identity provider, "" where the settings name neither."""
        texts = await read_secrets({"bearer_token": self._options.bearer_token})
        return texts["bearer_token"] or await self._token()

    def discard(self, token: str) -> None:
        """Forgets a token of the identity provider that a server has refused, as `send` does for a 401."""
        if self._tokens is not None:
            self._tokens.discard(token)

    async def tls(self) -> ssl.SSLContext:
        """Returns the TLS context, for connections that an adapter opens itself."""
        return await self._exchange.tls.context()

    async def _with_params(self, url: str) -> str:
        """Returns the URL with the parameters of the settings, which may be secrets, at its end."""
        texts = await read_secrets({f"params: {name}": value for name, value in self._options.params.items()})
        encoded = urllib.parse.urlencode({name: texts[f"params: {name}"] for name in self._options.params})
        return f"{url}{'&' if '?' in url else '?'}{encoded}"

    async def _token(self) -> str:
        return await self._tokens.token() if self._tokens is not None else ""


def _sendable(setting: str, text: str) -> str:
    """Returns the text, if a header can carry it; else raises AdapterError."""
    if not fits_header(text):
        raise AdapterError(f"{setting}: the value contains a line break or control character, unfit for a header")
    return text
