"""Which HTTP requests are answered: those with a bearer token from a file, or with one that the cluster accepts.

Any of the configured ways suffices. A refusal carries only its status, never a reason.

A TokenReview names the user of a token, and a SubjectAccessReview decides whether that user may `get` the path as a
non-resource URL (controller-runtime, metrics/filters: WithAuthenticationAndAuthorization). hpad needs the ClusterRole
system:auth-delegator for both. The JSON API counts as the page, `/`: the ClusterRole system:discovery lets every user
`get` /api/*.

Without authentication on loopback, requests must name this machine in their Host header. A web page can make its own
name resolve to 127.0.0.1 and have a browser read the response (DNS rebinding); the browser then sends the foreign name.
"""

import asyncio
import functools
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Final

import structlog
from aiohttp import web

from hpad.api.loopback import is_loopback
from hpad.clock import Clock
from hpad.files import opened
from hpad.kube import access, errors
from hpad.kube.client import Client
from hpad.serve import ServeError
from hpad.telemetry.episode import Episode

_MAX_TOKEN_BYTES = 8192
"""A service account's token has about 1,000 bytes."""
_MAX_TOKENS = 64
"""Tokens in a file. Each request is compared with all of them."""
_ALLOWED_SECONDS = 60.0
_REFUSED_SECONDS = 30.0  # long enough that a scraper without rights does not cause reviews with each scrape
_MAX_VERDICTS = 1024
_CONCURRENT_REVIEWS = 4
_REVIEW_TIMEOUT = 5.0
_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="hpad"'}


class Tokens:
    """The bearer tokens of a file, one per line. An old and a new token can both be valid during a rotation."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._digests: tuple[bytes, ...] = ()

    def refresh(self) -> bool:
        """Reads the file and returns whether its tokens changed. Blocks.

        Raises ServeError if it is unreadable, has no tokens or too many; the previous tokens stay valid.
        """
        before, self._digests = self._digests, self._read()
        return self._digests != before

    def accept(self, token: str) -> bool:
        """Returns whether the token is in the file, in constant time."""
        digest, found = _digest(token), False
        for known in self._digests:  # all of them: ending at a match would reveal its place by the time taken
            found |= hmac.compare_digest(digest, known)
        return found

    def _read(self) -> tuple[bytes, ...]:
        try:
            with opened(self._file) as content:
                lines = content.read(_MAX_TOKENS * _MAX_TOKEN_BYTES).split(b"\n")
        except OSError as error:
            raise ServeError(f"listen_token_file: {self._file}: {error.strerror}") from None
        tokens = [line.strip() for line in lines if line.strip()]
        if not 0 < len(tokens) <= _MAX_TOKENS:
            raise ServeError(
                f"listen_token_file: {self._file}: has {len(tokens)} tokens, not 1 to {_MAX_TOKENS}, one per line"
            )
        return tuple(map(_digest, tokens))


def _digest(token: str | bytes) -> bytes:
    return hashlib.sha256(token.encode() if isinstance(token, str) else token).digest()


class Verdict(Enum):
    ALLOWED = auto()
    UNKNOWN = auto()
    """No user has this token."""
    FORBIDDEN = auto()


class Reviewer:
    """Has the cluster review tokens. Caches up to 1,024 verdicts for up to 60 seconds, by token digest and path."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._verdicts: OrderedDict[tuple[bytes, str], tuple[Verdict, float]] = OrderedDict()
        self._requests = asyncio.Semaphore(_CONCURRENT_REVIEWS)

    async def review(self, token: str, path: str) -> Verdict:
        """Returns whether the token's user may `get` the path. Raises errors.ApiError if the review fails."""
        key = (_digest(token), path)
        cached = self._verdicts.get(key)
        if cached is not None and self._clock.monotonic() < cached[1]:
            return cached[0]
        async with self._requests:
            verdict = await self._request(token, path)
        self._remember(key, verdict)
        return verdict

    async def _request(self, token: str, path: str) -> Verdict:
        review = functools.partial(access.review, self._client, timeout=_REVIEW_TIMEOUT)
        token_status = await review("authentication.k8s.io/v1", "TokenReview", {"token": token})
        user = token_status.user
        if not token_status.authenticated or not user.username:
            return Verdict.UNKNOWN
        spec = {
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        rights = await review("authorization.k8s.io/v1", "SubjectAccessReview", spec)
        return Verdict.ALLOWED if rights.allowed and not rights.denied else Verdict.FORBIDDEN

    def _remember(self, key: tuple[bytes, str], verdict: Verdict) -> None:
        seconds = _ALLOWED_SECONDS if verdict is Verdict.ALLOWED else _REFUSED_SECONDS
        self._verdicts[key] = (verdict, self._clock.monotonic() + seconds)
        self._verdicts.move_to_end(key)
        while len(self._verdicts) > _MAX_VERDICTS:
            self._verdicts.popitem(last=False)


class Authenticator:
    """Admits or refuses requests. `tokens` and `reviewer` are the configured ways."""

    def __init__(self, *, tokens: Tokens | None, reviewer: Reviewer | None, clock: Clock) -> None:
        self._tokens = tokens
        self._reviewer = reviewer
        self._failing = Episode(
            structlog.get_logger("hpad.serve"),
            clock,
            "the cluster does not answer token reviews",
            "the cluster answers token reviews again",
        )

    @property
    def open(self) -> bool:
        """Whether every request is admitted."""
        return self._tokens is None and self._reviewer is None

    async def admit(self, request: web.Request) -> None:
        """Returns if the request may be answered. Raises web.HTTPException 401, 403, or 503 if the cluster fails."""
        if self.open:
            return
        token = _bearer_token(request)
        if token is None:
            raise web.HTTPUnauthorized(headers=_CHALLENGE)
        if self._tokens is not None and self._tokens.accept(token):
            return
        if self._reviewer is None:
            raise web.HTTPUnauthorized(headers=_CHALLENGE)
        verdict = await self._review(self._reviewer, token, _reviewed_path(request.path))
        if verdict is Verdict.FORBIDDEN:
            raise web.HTTPForbidden
        if verdict is Verdict.UNKNOWN:
            raise web.HTTPUnauthorized(headers=_CHALLENGE)

    async def _review(self, reviewer: Reviewer, token: str, path: str) -> Verdict:
        try:
            verdict = await reviewer.review(token, path)
        except errors.ApiError as error:
            self._failing.occurred(error=error.message)
            raise web.HTTPServiceUnavailable from None
        self._failing.ended()
        return verdict


def _reviewed_path(path: str) -> str:
    """Returns the path that a user needs: that of the page for the JSON API."""
    return "/" if path.startswith("/api/") else path


def _bearer_token(request: web.Request) -> str | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not 0 < len(token) <= _MAX_TOKEN_BYTES or not token.isascii():
        return None
    return token


REFUSAL: Final = (
    "421: Misdirected Request\n"
    "This port needs no authentication, so it answers only requests for localhost, 127.0.0.1 or [::1].\n"
    "To use other names, configure authentication, for example with listen_token_file.\n"
)


def all_loopback(addresses: Iterable[str]) -> bool:
    """Returns whether all addresses belong to the loopback device."""
    return all(map(is_loopback, addresses))


def is_local(hosts: Sequence[str]) -> bool:
    """Returns whether the Host headers name loopback. A request without one does not come from a browser."""
    if len(hosts) != 1:
        return not hosts
    host = hosts[0].strip().lower()
    name = host.partition("]")[0][1:] if host.startswith("[") else host.partition(":")[0].removesuffix(".")
    return name.endswith(".localhost") or is_loopback(name)
