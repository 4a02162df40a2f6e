"""Who may look: each way of showing who one is, tried in turn. Refusals say nothing but that they are refusals.

Bearer tokens of a file.

Asking the cluster who a bearer token belongs to and what he may see, as controller-runtime's metrics endpoint does.

TokenReview says whose the token is, SubjectAccessReview whether that user may `get` the path as a non-resource URL.
hpad needs the rights of the ClusterRole system:auth-delegator for it.
"""

import asyncio
import hashlib
import hmac
from collections import OrderedDict
from enum import Enum, auto
from pathlib import Path
from typing import Any, Protocol

import msgspec
import structlog
from aiohttp import web

from hpad.clock import Clock, SystemClock
from hpad.kube import errors
from hpad.kube.client import Client
from hpad.serve import ServeError
from hpad.telemetry.episode import Episode

LONGEST = 8192
"""Bytes of a token; service accounts' have about a thousand."""
_MOST = 64
"""Tokens in a file: each request is compared with all of them."""


class Tokens:
    """The tokens of a file, a line each, so that an old and a new one can both be good for a while."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._digests: tuple[bytes, ...] = ()

    def open(self) -> None:
        """Read the file for the first time; blocks. Raises ServeError, also for a file without any token."""
        self._digests = self._read()

    def refresh(self) -> bool:
        """Whether the file holds others than before; blocks. Raises ServeError: the last good ones stay in use."""
        before, self._digests = self._digests, self._read()
        return self._digests != before

    def accept(self, token: str) -> bool:
        """Whether it is one of them; takes the same time wherever a wrong one differs."""
        digest, right = _digest(token.encode()), False
        for known in self._digests:
            right |= hmac.compare_digest(digest, known)
        return right

    def _read(self) -> tuple[bytes, ...]:
        try:
            with self._file.open("rb") as content:
                lines = content.read(_MOST * LONGEST).split(b"\n")
        except OSError as error:
            raise ServeError(f"listen_token_file: {self._file}: {error.strerror}") from None
        tokens = [line.strip() for line in lines if line.strip()]
        if not 0 < len(tokens) <= _MOST:
            raise ServeError(
                f"listen_token_file: {self._file}: holds {len(tokens)} tokens; 1 to {_MOST} are needed, a line each"
            )
        return tuple(map(_digest, tokens))


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_ALLOWED_S = 60.0
_REFUSED_S = 30.0  # long enough to keep a scraper without rights from asking the cluster each time
_REMEMBERED = 1024
_AT_ONCE = 4
_TIMEOUT_S = 5.0


class Verdict(Enum):
    ALLOWED = auto()
    UNKNOWN = auto()
    """The token is nobody's."""
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
    """Remembers verdicts for up to a minute, a bounded number of them, by the token's digest and the path."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._held: OrderedDict[tuple[bytes, str], tuple[Verdict, float]] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def review(self, token: str, path: str) -> Verdict:
        """Whether the token's owner may see the path; raises errors.ApiError where the cluster cannot tell."""
        key = (hashlib.sha256(token.encode()).digest(), path)
        held = self._held.get(key)
        if held is not None and self._clock.monotonic() < held[1]:
            return held[0]
        async with self._turns:
            verdict = await self._ask(token, path)
        self._remember(key, verdict)
        return verdict

    async def _ask(self, token: str, path: str) -> Verdict:
        answer = await self._post(_TOKENS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        who = _read(answer, _TokenReview).status
        if not who.authenticated or not who.user.username:
            return Verdict.UNKNOWN
        spec = {
            "user": who.user.username,
            "uid": who.user.uid,
            "groups": who.user.groups,
            "extra": who.user.extra,
            "nonResourceAttributes": {"path": path, "verb": "get"},
        }
        answer = await self._post(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        may = _read(answer, _AccessReview).status
        return Verdict.ALLOWED if may.allowed and not may.denied else Verdict.FORBIDDEN

    async def _post(self, path: str, version: str, kind: str, spec: dict[str, Any]) -> bytes:
        body = msgspec.json.encode({"apiVersion": version, "kind": kind, "spec": spec})
        return await self._client.request("POST", path, body=body, timeout=_TIMEOUT_S)

    def _remember(self, key: tuple[bytes, str], verdict: Verdict) -> None:
        lasts = _ALLOWED_S if verdict is Verdict.ALLOWED else _REFUSED_S
        self._held[key] = (verdict, self._clock.monotonic() + lasts)
        self._held.move_to_end(key)
        while len(self._held) > _REMEMBERED:
            self._held.popitem(last=False)


def _read(answer: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.MsgspecError as error:
        raise errors.ApiError(500, "InternalError", f"the review cannot be read: {error}") from None


_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="hpad"'}


class Accepts(Protocol):
    """Knows tokens; `serve.tokens.Tokens` does."""

    def accept(self, token: str) -> bool: ...


class Authenticator:
    """`certificates`: a client certificate lets in (TLS has verified it, or refused the connection)."""

    def __init__(
        self, *, certificates: bool, known: Accepts | None, reviewer: Reviewer | None, clock: Clock | None = None
    ) -> None:
        self._certificates = certificates
        self._known = known
        self._reviewer = reviewer
        log = structlog.get_logger("hpad.serve")
        unknown = "the cluster cannot say whose a token is"
        self._unknown = Episode(log, clock or SystemClock(), unknown, "the cluster says whose tokens are again")

    @property
    def open(self) -> bool:
        """Whether nobody has to show anything."""
        return not self._certificates and self._known is None and self._reviewer is None

    async def admit(self, request: web.Request) -> None:
        """Return if the request may be answered; raises web.HTTPException: 401, 403, or 503 if that cannot be told."""
        if self.open or (self._certificates and _certified(request)):
            return
        token = _bearer(request)
        if token is None:
            raise web.HTTPUnauthorized(headers=_CHALLENGE)
        if self._known is not None and self._known.accept(token):
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
            self._unknown.occurred(error=error.message)
            raise web.HTTPServiceUnavailable from None
        self._unknown.ended()
        return verdict


def _certified(request: web.Request) -> bool:
    return request.transport is not None and bool(request.transport.get_extra_info("peercert"))


def _bearer(request: web.Request) -> str | None:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not 0 < len(token) <= LONGEST or not token.isascii():
        return None
    return token
