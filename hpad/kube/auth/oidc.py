"""Tokens of an OpenID Connect provider, refreshed as `kubectl` does for the `oidc` auth-provider of a kubeconfig.

Ours, because the loader of kubernetes_asyncio speaks to the provider without checking its certificate. Everything here
blocks; nothing of it puts a token into a text.
"""

import base64
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from urllib.parse import quote, urlencode

import msgspec

from hpad.api.text import shown
from hpad.kube.auth.credentials import ConfigError

T = TypeVar("T")
_LEAST = timedelta(seconds=90)  # what a token has to be good for still
_TIMEOUT_S = 15.0


class _Claims(msgspec.Struct):
    exp: float | None = None


class _Discovered(msgspec.Struct):
    token_endpoint: str


class _Refreshed(msgspec.Struct):
    id_token: str = ""
    refresh_token: str = ""


class _Refusal(msgspec.Struct):
    error: str = "no reason given"


@dataclass(frozen=True)
class Tokens:
    """A pair of tokens; either may be empty."""

    id_token: str = field(default="", repr=False)
    refresh_token: str = field(default="", repr=False)

    @property
    def expires(self) -> datetime | None:
        """When the id-token ends; None where it does not say (or cannot be read, or names no year of ours)."""
        parts = self.id_token.split(".")
        try:
            claims = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=="), type=_Claims)
            return datetime.fromtimestamp(claims.exp, UTC) if claims.exp is not None else None
        except (IndexError, ValueError, OverflowError, OSError, RecursionError):
            return None

    def good(self, now: datetime) -> bool:
        expires = self.expires
        return bool(self.id_token) and (expires is None or now < expires - _LEAST)


def current(settings: Mapping[str, str], held: Tokens, now: datetime) -> Tokens:
    """Tokens that are good now: those of the kubeconfig, those held from before, or new ones of the provider.

    `settings` is the `config` of the auth-provider. Raises ConfigError.
    """
    written = Tokens(settings.get("id-token", ""), settings.get("refresh-token", ""))
    for tokens in (held, written):
        if tokens.good(now):
            return tokens
    refresh = held.refresh_token or written.refresh_token
    if not refresh:
        raise ConfigError("the id-token has expired, and there is no refresh-token: log in again")
    return _refresh(settings, refresh)


def _refresh(settings: Mapping[str, str], refresh: str) -> Tokens:
    issuer = settings.get("idp-issuer-url", "").rstrip("/")
    if not issuer.startswith(("https://", "http://127.0.0.1:")):
        raise ConfigError(f"idp-issuer-url {shown(issuer)} is no https URL")
    trust = _trust(settings)
    found = _ask(urllib.request.Request(f"{issuer}/.well-known/openid-configuration"), trust, _Discovered)
    form = {"grant_type": "refresh_token", "refresh_token": refresh, "client_id": settings.get("client-id", "")}
    answer = _ask(_grant(found.token_endpoint, form, settings.get("client-secret", "")), trust, _Refreshed)
    if not answer.id_token:
        raise ConfigError(f"{issuer} answered without an id_token")
    return Tokens(answer.id_token, answer.refresh_token or refresh)


def _grant(endpoint: str, form: Mapping[str, str], secret: str) -> urllib.request.Request:
    """RFC 6749, section 6; the client proves itself by HTTP Basic (section 2.3.1) where it has a secret."""
    request = urllib.request.Request(endpoint, data=urlencode(form).encode())
    if secret:
        pair = f"{quote(form['client_id'], safe='')}:{quote(secret, safe='')}"
        request.add_header("Authorization", "Basic " + base64.b64encode(pair.encode()).decode())
    return request


def _trust(settings: Mapping[str, str]) -> ssl.SSLContext:
    data, file = settings.get("idp-certificate-authority-data"), settings.get("idp-certificate-authority")
    try:
        pem = base64.b64decode(data).decode() if data else None
        return ssl.create_default_context(cafile=None if pem else file, cadata=pem)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise ConfigError(f"the provider's certificate authority cannot be used: {error}") from None


def _ask(request: urllib.request.Request, trust: ssl.SSLContext, kind: type[T]) -> T:
    host = request.host
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=trust) as answer:
            return msgspec.json.decode(answer.read(), type=kind)
    except urllib.error.HTTPError as error:
        with error:
            said = _refusal(error.read())
        raise ConfigError(f"{host} answered {error.code}: {said}") from None
    except (urllib.error.URLError, OSError) as error:
        raise ConfigError(f"{host} cannot be asked: {getattr(error, 'reason', error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{host} answered something else: {error}") from None


def _refusal(body: bytes) -> str:
    """The provider's error code ("invalid_grant"): nothing else of an answer is quoted."""
    try:
        return msgspec.json.decode(body, type=_Refusal).error[:80]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _Refusal().error
