"""Authentication of HTTP requests: client certificates, bearer tokens from a file, bearer tokens the cluster accepts.

Any of the configured ways suffices. A refusal carries only its status, never a reason.

A TokenReview names the user of a token, and a SubjectAccessReview says whether that user may `get` the path as a
non-resource URL (controller-runtime, metrics/filters: WithAuthenticationAndAuthorization). hpad needs the ClusterRole
system:auth-delegator for both.
"""

import asyncio
import hashlib
import hmac
from collections import OrderedDict
from enum import Enum, auto
from pathlib import Path
from typing import Any

import msgspec
import structlog
from aiohttp import web

from hpad.clock import Clock, SystemClock
from hpad.kube import errors
from hpad.kube.client import Client
from hpad.serve import ServeError
from hpad.telemetry.episode import Episode

_MAX_TOKEN_BYTES = 8192
"""A service account's token has about 1,000 bytes."""
_MAX_TOKENS = 64
"""Tokens in a file. Each request is compared with all of them."""
_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
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

    def open(self) -> None:
        """Reads the file. Blocks. Raises ServeError if it is unreadable, has no tokens or too many."""
        self._digests = self._read()

    def refresh(self) -> bool:
        """Reads the file again and returns whether its tokens changed. Blocks.

        Raises ServeError, and the previous tokens stay valid.
        """
        before, self._digests = self._digests, self._read()
        return self._digests != before

    def accept(self, token: str) -> bool:
        """Returns whether the token is in the file, in constant time."""
        digest, found = _digest(token), False
        for known in self._digests:
            found |= hmac.compare_digest(digest, known)
        return found

    def _read(self) -> tuple[bytes, ...]:
        try:
            with self._file.open("rb") as content:
                lines = content.read(_MAX_TOKENS * _MAX_TOKEN_BYTES).split(b"\n")
        except OSError as error:
            raise ServeError(f"listen_token_file: {self._file}: {error.strerror}") from None
        tokens = [line.strip() for line in lines if line.strip()]
        if not 0 < len(tokens) <= _MAX_TOKENS:
            raise ServeError(
                f"listen_token_file: {self._file}: holds {len(tokens)} tokens, not 1 to {_MAX_TOKENS}, one per line"
            )
        return tuple(map(_digest, tokens))


def _digest(token: str | bytes) -> bytes:
    return hashlib.sha256(token.encode() if isinstance(token, str) else token).digest()


class Verdict(Enum):
    ALLOWED = auto()
    UNKNOWN = auto()
    """No user has this token."""
    FORBIDDEN = auto()


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _TokenReview(msgspec.Struct):
    status: _TokenStatus = msgspec.field(default_factory=_TokenStatus)


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


class Reviewer:
    """Asks the cluster about tokens. Caches up to 1,024 verdicts for up to 60 seconds, by token digest and path."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._verdicts: OrderedDict[tuple[bytes, str], tuple[Verdict, float]] = OrderedDict()
        self._slots = asyncio.Semaphore(_CONCURRENT_REVIEWS)

    async def review(self, token: str, path: str) -> Verdict:
        """Returns whether the token's user may `get` the path. Raises errors.ApiError if the cluster cannot tell."""
        key = (_digest(token), path)
        cached = self._verdicts.get(key)
        if cached is not None and self._clock.monotonic() < cached[1]:
            return cached[0]
        async with self._slots:
            verdict = await self._ask(token, path)
        self._remember(key, verdict)
        return verdict

    async def _ask(self, token: str, path: str) -> Verdict:
        answer = await self._post(_TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        review = _decode(answer, _TokenReview).status
        if not review.authenticated or not review.user.username:
            return Verdict.UNKNOWN
        spec = {
            "user": review.user.username,
            "uid": review.user.uid,
            "groups": review.user.groups,
            "extra": review.user.extra,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        answer = await self._post(_ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        access = _decode(answer, _AccessReview).status
        return Verdict.ALLOWED if access.allowed and not access.denied else Verdict.FORBIDDEN

    async def _post(self, path: str, version: str, kind: str, spec: dict[str, Any]) -> bytes:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        return await self._client.request("POST", path, body=body, timeout=_REVIEW_TIMEOUT)

    def _remember(self, key: tuple[bytes, str], verdict: Verdict) -> None:
        seconds = _ALLOWED_SECONDS if verdict is Verdict.ALLOWED else _REFUSED_SECONDS
        self._verdicts[key] = (verdict, self._clock.monotonic() + seconds)
        self._verdicts.move_to_end(key)
        while len(self._verdicts) > _MAX_VERDICTS:
            self._verdicts.popitem(last=False)


def _decode(answer: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise errors.ApiError(500, "InternalError", f"the review cannot be decoded: {error}") from None


class Authenticator:
    """Admits or refuses requests.

    `certificates`: a client certificate suffices; TLS has verified it or refused the connection. `tokens` and
    `reviewer` are the other configured ways.
    """

    def __init__(
        self, *, certificates: bool, tokens: Tokens | None, reviewer: Reviewer | None, clock: Clock | None = None
    ) -> None:
        self._certificates = certificates
        self._tokens = tokens
        self._reviewer = reviewer
        self._failing = Episode(
            structlog.get_logger("hpad.serve"),
            clock or SystemClock(),
            "the cluster does not answer token reviews",
            "the cluster answers token reviews again",
        )

    @property
    def open(self) -> bool:
        """Whether every request is admitted."""
        return not self._certificates and self._tokens is None and self._reviewer is None

    async def admit(self, request: web.Request) -> None:
        """Returns if the request may be answered. Raises web.HTTPException 401, 403, or 503 if the cluster fails."""
        if self.open or (self._certificates and _has_certificate(request)):
            return
        token = _bearer_token(request)
        if token is None:
            raise web.HTTPUnauthorized(headers=_CHALLENGE)
        if self._tokens is not None and self._tokens.accept(token):
            return
        verdict = await self._review(token, request.path) if self._reviewer is not None else Verdict.UNKNOWN
        if verdict is Verdict.FORBIDDEN:
            raise web.HTTPForbidden
        if verdict is Verdict.UNKNOWN:
            raise web.HTTPUnauthorized(headers=_CHALLENGE)

    async def _review(self, token: str, path: str) -> Verdict:
        assert self._reviewer is not None
        try:
            verdict = await self._reviewer.review(token, path)
        except errors.ApiError as error:
            self._failing.occurred(error=error.message)
            raise web.HTTPServiceUnavailable from None
        self._failing.ended()
        return verdict


def _has_certificate(request: web.Request) -> bool:
    return request.transport is not None and bool(request.transport.get_extra_info("peercert"))


def _bearer_token(request: web.Request) -> str | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not 0 < len(token) <= _MAX_TOKEN_BYTES or not token.isascii():
        return None
    return token
